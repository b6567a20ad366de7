"""The training data of `fit`: rows of a dense or sparse matrix with labels and weights. Only batches are copied."""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
import torch
from sklearn.model_selection import train_test_split
from sklearn.utils import compute_class_weight
from sklearn.utils.validation import _check_sample_weight
from torch import Tensor


def precision_of(matrix: Any) -> torch.dtype:
    """What data of this precision is computed in: scikit-learn hands on nothing but float32 and float64."""
    return torch.float32 if matrix.dtype == np.float32 else torch.float64


class SparseBatch(NamedTuple):
    """Some rows of a sparse matrix, their entries one after the other."""

    features: Tensor  # (entries,), the column of each
    values: Tensor  # (entries,)
    starts: Tensor  # (rows,), the first entry of each row
    num_features: int

    def dense(self) -> Tensor:
        """(rows, features)."""
        lengths = torch.diff(self.starts, append=self.starts.new_tensor([len(self.features)]))
        row = torch.repeat_interleave(torch.arange(len(self.starts)), lengths)
        full = self.values.new_zeros(len(self.starts), self.num_features)
        return full.index_put_((row, self.features.long()), self.values, accumulate=True)


class Rows:
    """The rows of a validated data matrix: an array, or a scipy CSR matrix."""

    def __init__(self, matrix: np.ndarray | scipy.sparse.csr_array) -> None:
        self.matrix = matrix

    def __len__(self) -> int:
        return self.matrix.shape[0]

    def batch(self, index: np.ndarray, dtype: torch.dtype) -> Tensor | SparseBatch:
        """The rows with these numbers in a network's precision, which may be that of earlier data."""
        part = self.matrix[index]  # always a copy, so that memory-mapped data is never written to
        if not scipy.sparse.issparse(part):
            return torch.from_numpy(part).to(dtype)
        return SparseBatch(
            torch.from_numpy(part.indices),
            torch.from_numpy(part.data).to(dtype),
            torch.from_numpy(part.indptr[:-1]),
            part.shape[1],
        )


@dataclass(frozen=True)
class Examples:
    """Rows, labels and weights of a data matrix, and the numbers of those that are used."""

    rows: Rows
    labels: np.ndarray  # (all rows,), places in classes_
    weights: np.ndarray | None  # (all rows,)
    index: np.ndarray  # (used rows,)

    def __len__(self) -> int:
        return len(self.index)

    def with_mean_weight_one(self) -> "Examples":
        """Weights as shares: a row of weight 2 then counts as two rows, also for what counts rows."""
        if self.weights is None:
            return self
        return replace(self, weights=self.weights / self.weights[self.index].mean())

    def split(self, fraction: float, random: np.random.RandomState) -> tuple["Examples", "Examples"]:
        """A part to train on, and this fraction to hold out, with the labels in proportion."""
        train, held_out = train_test_split(
            self.index, test_size=fraction, stratify=self.labels[self.index], random_state=random
        )
        return replace(self, index=train), replace(self, index=held_out)


def make_examples(X: Any, y: np.ndarray, classes: np.ndarray, *, sample_weight: Any, class_weight: Any) -> Examples:
    """Validated data as examples. A row of weight 0 is not used at all."""
    labels = np.searchsorted(classes, y).clip(max=len(classes) - 1)
    unknown = y[classes[labels] != y]
    if len(unknown):
        raise ValueError(f"y has the class {unknown[0]!r}, which is not among the classes {list(classes)}")
    weights = None
    if sample_weight is not None:
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    index = np.arange(len(y)) if weights is None else np.flatnonzero(weights)
    if class_weight is not None and len(index):
        of_rows = _weights_of_classes(class_weight, classes, y[index])[labels]
        weights = of_rows if weights is None else weights * of_rows
        index = np.flatnonzero(weights)
    if not len(index):
        raise ValueError("all sample weights are zero, but some row must weigh something")
    return Examples(Rows(X), labels, weights, index)


def _weights_of_classes(class_weight: Any, classes: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The weight of each class, (classes,), where `y` are the labels of the rows that weigh something.

    "balanced" has no weight for a class without such rows, and none is needed: it is 1.
    """
    counted = np.isin(classes, y) if isinstance(class_weight, str) else np.full(len(classes), True)
    weights = np.ones(len(classes))
    weights[counted] = compute_class_weight(class_weight, classes=classes[counted], y=y)
    return weights
