"""Data: from files to tensors in memory, checked on the way."""

from labelemb.lab.data.dataset import Dataset, Examples, InputForm
from labelemb.lab.data.describe import describe_data
from labelemb.lab.data.fetch import fetch, fetchable_names
from labelemb.lab.data.images.examples import ImageExamples, ImageInputs
from labelemb.lab.data.inputs import input_form, read_inputs
from labelemb.lab.data.pairs.encoder import PairEncoder, PairInputs
from labelemb.lab.data.pairs.sequences import SequenceExamples
from labelemb.lab.data.readers import load_data, load_data_if_any
from labelemb.lab.data.texts.examples import TextExamples, TextInputs

__all__ = [
    "Dataset",
    "Examples",
    "ImageExamples",
    "ImageInputs",
    "InputForm",
    "PairEncoder",
    "PairInputs",
    "SequenceExamples",
    "TextExamples",
    "TextInputs",
    "describe_data",
    "fetch",
    "fetchable_names",
    "input_form",
    "load_data",
    "load_data_if_any",
    "read_inputs",
]
