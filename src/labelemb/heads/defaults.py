"""The default settings of `LabelEmbeddingHead`, as one constant for all ways to make such a head."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from labelemb.embeddings.make import EmbeddingName
from labelemb.losses.objective import Objective

MANY_LABELS = 4096
"""From here on a matrix of labels x labels costs more than the network in front of it."""


OBSERVED_ROWS = 256
"""Rows that go through the observer in a call with many labels."""


MOST_PRIOR_ROWS, PRIOR_ROWS_OF_MANY = 1000, 100
"""More imagined rows would drown what was seen of a label; for more labels than the first number it is the second."""


def prior_rows(num_labels: int) -> int:
    """Imagined rows of a running embedding's prior: one for each label, where these are not too many."""
    return num_labels if num_labels <= MOST_PRIOR_ROWS else PRIOR_ROWS_OF_MANY


class Default(NamedTuple):
    """An embedding with its learning rate, an objective and how many rows are observed."""

    embedding: Callable[[int], EmbeddingName]
    """The name of the embedding for a number of labels."""
    objective: Objective
    observe_rows: Callable[[int], int | None]
    """Observed rows of a call for a number of labels; None for all."""
    embedding_lr: float
    """Learning rate of an embedding that is trained by gradient."""
    prior_rows: Callable[[int], float]
    """Imagined rows of a running embedding for a number of labels."""


def _some_of_many(num_labels: int) -> int | None:
    return None if num_labels < MANY_LABELS else OBSERVED_ROWS


def _dense_or_running(num_labels: int) -> EmbeddingName:
    return "dense" if num_labels < MANY_LABELS else "running"


DEFAULT = Default(_dense_or_running, Objective(), _some_of_many, embedding_lr=0.05, prior_rows=prior_rows)
"""A learned matrix, or for many labels a running mean with a prior; the paper's terms on the scale of cross entropy.

The matrix has a learning rate of its own: at the usual 0.001 of Adam it lags behind the observer in a short training.
"""
