"""Data: from files to tensors in memory, checked on the way."""

from labelemb.lab.data.describe import describe_data
from labelemb.lab.data.encode import encode_texts, read_inputs
from labelemb.lab.data.examples import Dataset, Examples, ImageExamples, TextExamples
from labelemb.lab.data.fetch import fetch, fetchable_names
from labelemb.lab.data.load import load_data, load_data_if_any
from labelemb.lab.data.parallel_text import PairEncoder
from labelemb.lab.data.sequences import SequenceExamples

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
