"""Data: from files to tensors in memory, checked on the way."""

from labelemb.lab.data.examples import Dataset, Examples, ImageExamples, TextExamples
from labelemb.lab.data.load import load_data

__all__ = ["Dataset", "Examples", "ImageExamples", "TextExamples", "load_data"]
