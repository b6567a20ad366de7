"""Small scikit-learn classifiers, and whether two of them learned the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from labelemb.integrations.sklearn import LabelEmbeddingClassifier

NAMES = np.array(["apple", "bread", "cheese", "dates"])
"""The classes of the fixture `blobs`."""


def quick(**options: Any) -> LabelEmbeddingClassifier:
    """A small network, trained in a moment."""
    settings = {"hidden_layer_sizes": (12,), "max_iter": 8, "learning_rate_init": 0.02, "random_state": 0}
    return LabelEmbeddingClassifier(**settings | options)


def same_network(one: LabelEmbeddingClassifier, other: LabelEmbeddingClassifier, *, rtol: float = 0.0) -> None:
    torch.testing.assert_close(one.network_.state_dict(), other.network_.state_dict(), rtol=rtol, atol=rtol)
