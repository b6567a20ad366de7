"""Data: from files to tensors in memory, checked on the way."""

from labelemb.lab.data.dataset import Dataset, Examples, ImageExamples, TextExamples
from labelemb.lab.data.describe import describe_data
from labelemb.lab.data.fetch import fetch, fetchable_names
from labelemb.lab.data.inputs import encode_texts, read_inputs
from labelemb.lab.data.pairs.parallel import PairEncoder
from labelemb.lab.data.pairs.sequences import SequenceExamples
from labelemb.lab.data.readers import load_data, load_data_if_any

__all__ = [
    "Dataset",
    "Examples",
    "ImageExamples",
    "PairEncoder",
    "SequenceExamples",
    "TextExamples",
    "describe_data",
    "encode_texts",
    "fetch",
    "fetchable_names",
    "load_data",
    "load_data_if_any",
    "read_inputs",
]
