"""What a loss gives: the loss itself, its five terms and what was counted on the way."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class LossTerms(NamedTuple):
    """The five terms, unweighted: reduced to a number each, or one value per row with reduction="none"."""

    hard: Tensor
    soft: Tensor
    observer: Tensor
    cap: Tensor
    embedding: Tensor

    def as_floats(self) -> dict[str, float]:
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
