"""Data: reads files to tensors in memory, with checks."""

from labelemb.lab.data.audited import AuditedData, read_audited
from labelemb.lab.data.dataset import Dataset, Examples, InputForm, InputPlace
from labelemb.lab.data.describe import describe_data
from labelemb.lab.data.fetch import fetch, fetchable_names
from labelemb.lab.data.folds import PARTS, Fold, Part
from labelemb.lab.data.hub import lasting_path
from labelemb.lab.data.images.examples import ImageExamples, ImageInputs
from labelemb.lab.data.inputs import input_form, read_inputs
from labelemb.lab.data.pairs.encoder import PairEncoder, PairInputs
from labelemb.lab.data.pairs.sequences import SequenceExamples
from labelemb.lab.data.readers import load_data, load_data_if_any
from labelemb.lab.data.texts.examples import TextExamples, TextInputs
from labelemb.lab.data.texts.tokens import TokenExamples, TokenInputs

__all__ = [
    "PARTS",
    "AuditedData",
    "Dataset",
    "Examples",
    "Fold",
    "ImageExamples",
    "ImageInputs",
    "InputForm",
    "InputPlace",
    "PairEncoder",
    "PairInputs",
    "Part",
    "SequenceExamples",
    "TextExamples",
    "TextInputs",
    "TokenExamples",
    "TokenInputs",
    "describe_data",
    "fetch",
    "fetchable_names",
    "input_form",
    "lasting_path",
    "load_data",
    "load_data_if_any",
    "read_audited",
    "read_inputs",
]
