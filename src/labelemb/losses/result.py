"""The result of a loss: the loss, its five terms, and counts."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class LossTerms(NamedTuple):
    """The five terms of the loss, without their weights: one number each, or one value per row."""

    hard: Tensor
    soft: Tensor
    observer: Tensor
    cap: Tensor
    embedding: Tensor

    def as_floats(self) -> dict[str, float]:
        """The terms as Python numbers by name, for logging; not for terms per row."""
        return {name: float(value.detach()) for name, value in zip(self._fields, self, strict=True)}

    def __repr__(self) -> str:
        shown = (f"{name}={brief(value)}" for name, value in zip(self._fields, self, strict=True))
        return f"LossTerms({', '.join(shown)})"


class RightLabels(NamedTuple):
    """How often the observer was right about some labels, which may repeat; both (k,)."""

    labels: Tensor
    counts: Tensor


class LossResult(NamedTuple):
    """The answer to a batch."""

    loss: Tensor
    terms: LossTerms
    logits: Tensor | None
    """(rows, labels); None where they were never in memory at once."""
    correct: Tensor | None
    """Valid rows that the predictor got right; None where nothing can tell."""
    observer_correct: Tensor | None = None
    """Observed rows that the observer got right; None without an observer."""
    observer_rows: Tensor | None = None
    """Valid rows that the observer saw."""
    right: RightLabels | None = None


def brief(value: Tensor) -> str:
    """A tensor in a line: its number, or the shape of many."""
    return f"{value.item():.4f}" if value.ndim == 0 else f"per row {tuple(value.shape)}"
