"""What `LabelEmbeddingHead` does where nobody says otherwise: one constant, for every way to make such a head."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from labelemb.embeddings.make import EmbeddingName
from labelemb.losses.objective import Objective

MANY_LABELS = 4096
"""From here on a matrix of labels x labels costs more than the network in front of it."""


OBSERVED_ROWS = 256
"""Rows that go through the observer in a call with many labels."""


MOST_PRIOR_ROWS = 1000
"""More imagined rows would drown what was seen of a label."""


def prior_rows(num_labels: int) -> int:
    """Imagined rows of a running embedding's prior: one for each label, up to a limit."""
    return min(num_labels, MOST_PRIOR_ROWS)


class Default(NamedTuple):
    """An embedding, an objective and how many rows are observed."""

    embedding: Callable[[int], EmbeddingName]
    """The name of the embedding for a number of labels."""
    objective: Objective
    observe_rows: Callable[[int], int | None]
    """Observed rows of a call for a number of labels; None for all."""


def _some_of_many(num_labels: int) -> int | None:
    return None if num_labels < MANY_LABELS else OBSERVED_ROWS


def _dense_or_running(num_labels: int) -> EmbeddingName:
    return "dense" if num_labels < MANY_LABELS else "running"


DEFAULT = Default(_dense_or_running, Objective(), _some_of_many)
"""A learned matrix, or for many labels a running mean, with the paper's terms on the scale of cross entropy."""
