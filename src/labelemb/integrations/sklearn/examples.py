"""What there is to learn from: rows with their labels and weights."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.model_selection import train_test_split
from sklearn.utils import compute_class_weight
from sklearn.utils.validation import _check_sample_weight

from labelemb.integrations.sklearn.rows import Rows


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
    if sample_weight is not None or class_weight is not None:
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        if class_weight is not None:
            weights = weights * compute_class_weight(class_weight, classes=classes, y=y)[labels]
    index = np.arange(len(y)) if weights is None else np.flatnonzero(weights)
    if not len(index):
        raise ValueError("all sample weights are zero, but some row must weigh something")
    return Examples(Rows(X), labels, weights, index)
