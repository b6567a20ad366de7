"""Temperature scaling: one temperature, fitted so that probabilities are calibrated.

The cross entropy is convex in the inverse temperature b, with the slope E_p[z] - aimed for p = softmax(b z), where
`aimed` is the mean logit of a row's target. Logits are taken relative to the row's largest, which changes nothing else.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from labelemb.losses.batch import checked_labels
from labelemb.support.arguments import require_floats, require_tensor
from labelemb.support.tensors import widened

LOWEST, HIGHEST = 1e-3, 1e3
"""Inverse temperatures are searched in this range."""

PART_ROWS = 512
"""Rows of logits at once, which bounds the memory for many labels."""

Moments = Callable[[float], tuple[float, float]]


class _Rows(NamedTuple):
    """Rows to fit a temperature to."""

    logits: Tensor  # (rows, labels), minus the largest of each row
    aimed: Tensor  # (rows,), the mean logit of the target, minus that largest
    weights: Tensor | None = None  # (rows,)


@torch.no_grad()
def fit_temperature(logits: Tensor, targets: Tensor, *, ignore_index: int = -100) -> float:
    """The temperature T for which softmax(logits / T) has the lowest cross entropy with the targets.

    If every target has the largest logit of its row, no temperature would be low enough. The fit then adds one
    imaginary row in which another label is right.

    Arguments:
        logits: (..., labels), of held-out rows.
        targets: (...), integer labels.
        ignore_index: target of rows that are left out.
    """
    require_floats("logits", logits)
    require_tensor("targets", targets)
    if logits.ndim == 0 or logits.shape[:-1] != targets.shape or targets.is_floating_point():
        raise ValueError(
            f"logits have shape {tuple(logits.shape)} and targets {tuple(targets.shape)} ({targets.dtype}), but "
            f"(..., labels) and integer (...) are needed"
        )
    labels, valid, _ = checked_labels(targets, logits.shape[-1], ignore_index)
    logits, targets = logits[valid], labels[valid]
    if not len(targets):
        raise ValueError("there is no valid target to fit a temperature to")
    return weighted_temperature(logits, logits.gather(-1, targets.unsqueeze(-1)).squeeze(-1))


@torch.no_grad()
def weighted_temperature(logits: Tensor, aimed: Tensor, weights: Tensor | None = None) -> float:
    """The temperature with the lowest cross entropy of rows (rows, labels) that may have weights (rows,).

    `aimed` (rows,) is the mean logit of a row's target: that of the label, or of a distribution over the labels. A
    weight counts as so many rows.
    """
    relative, best = _relative(logits)
    rows = _Rows(relative, aimed.to(best) - best, None if weights is None else weights.to(best))
    return _fit(lambda: iter([rows]))


@torch.no_grad()
def target_temperature(
    hidden_batches: Tensor | Iterable[Tensor],
    target_batches: Tensor | Iterable[Tensor],
    predict: Callable[[Tensor], Tensor],
    ignore_index: int = -100,
) -> float:
    """The temperature for which softmax(predict(h) / T) has the lowest cross entropy with integer targets."""
    hidden, targets = _listed(hidden_batches), _listed(target_batches)
    if len(hidden) != len(targets) or any(h.shape[:-1] != t.shape for h, t in zip(hidden, targets, strict=False)):
        raise ValueError(
            f"hidden states of shapes {[tuple(h.shape) for h in hidden][:3]} need targets of the same leading "
            f"dimensions, but they have {[tuple(t.shape) for t in targets][:3]}"
        )
    kept = []
    for states, wanted in zip(hidden, targets, strict=True):
        valid = wanted != ignore_index
        kept.append((states[valid], wanted[valid]))
    if not any(len(wanted) for _, wanted in kept):
        raise ValueError("there is no valid target to fit a temperature to")

    def parts() -> Iterator[_Rows]:
        for states, wanted in kept:
            for part, labels in zip(states.split(PART_ROWS), wanted.split(PART_ROWS), strict=True):
                logits, _ = _relative(predict(part))
                labels = checked_labels(labels, logits.shape[-1], ignore_index).labels
                yield _Rows(logits, logits.gather(1, labels.unsqueeze(1)).squeeze(1))

    return _fit(parts)


@torch.no_grad()
def agreeing_temperature(
    hidden_batches: Tensor | Iterable[Tensor],
    predict: Callable[[Tensor], Tensor],
    observe: Callable[[Tensor], Tensor],
) -> float:
    """The temperature for which softmax(predict(h) / T) has the lowest cross entropy with softmax(observe(h))."""
    batches = [hidden.reshape(-1, hidden.shape[-1]) for hidden in _listed(hidden_batches)]
    if not any(len(hidden) for hidden in batches):
        raise ValueError("there is no hidden state to calibrate on")

    def parts() -> Iterator[_Rows]:
        for hidden in batches:
            for part in hidden.split(PART_ROWS):
                logits, _ = _relative(predict(part))
                yield _Rows(logits, (widened(observe(part)).double().softmax(-1) * logits).sum(-1))

    return _fit(parts)


def _listed(batches: Tensor | Iterable[Tensor]) -> list[Tensor]:
    listed = [batches] if isinstance(batches, Tensor) else list(batches)
    for batch in listed:
        if not isinstance(batch, Tensor):
            raise TypeError(
                f"a batch is a {type(batch).__name__}, but must be a tensor: pass hidden states and targets apart, "
                f"calibrate([hidden, ...], [targets, ...])"
            )
    return listed


def warn_at_limit(temperature: float) -> None:
    """Warn of a temperature at an end of the range that is searched."""
    inverse = 1 / temperature
    if not LOWEST * (1 + 1e-4) < inverse < HIGHEST * (1 - 1e-4):
        warnings.warn(
            f"the temperature {temperature:.4g} is a limit of the search: no temperature fits, so look at the logits "
            f"and targets (are the predictions no better than chance?)",
            stacklevel=3,
        )


def _fit(parts: Callable[[], Iterator[_Rows]]) -> float:
    """The best temperature for rows that are made anew each time they are looked at, so that memory stays small."""
    goal = _Goal()
    for rows in parts():
        goal += _Goal.of(rows)
    aimed_sum = goal.logit_sum()

    def slope_and_curvature(inverse: float) -> tuple[float, float]:
        moments = [_logit_moments(rows, inverse) for rows in parts()]
        return sum(mean for mean, _ in moments) - aimed_sum, sum(variance for _, variance in moments)

    return 1 / _minimise(slope_and_curvature)


@dataclass(frozen=True)
class _Goal:
    """What targets ask of the logits, relative to the largest of each row and summed over weighted rows."""

    aimed: float = 0.0
    others: float = 0.0
    """Mean logits of the labels that are not the target."""
    weight: float = 0.0
    always_best: bool = True
    """Whether every target has the largest logit of its row."""

    @classmethod
    def of(cls, rows: _Rows) -> _Goal:
        logits, aimed, given = rows
        weights = torch.ones_like(aimed) if given is None else given
        others = (logits.sum(-1) - aimed) / max(1, logits.shape[-1] - 1)
        always_best = bool(((aimed >= 0) | (weights == 0)).all())
        return cls(float(weights @ aimed), float(weights @ others), float(weights.sum()), always_best)

    def __add__(self, more: _Goal) -> _Goal:
        return _Goal(
            self.aimed + more.aimed,
            self.others + more.others,
            self.weight + more.weight,
            self.always_best and more.always_best,
        )

    def logit_sum(self) -> float:
        """The sum that the mean logits of the prediction are to reach.

        Where every target has the largest logit, the likelihood would rise without end as the temperature falls: one
        row more, in which another label is right, is then counted in.
        """
        if not self.always_best:
            return self.aimed
        doubt = 1 / (self.weight + 1)
        return (1 - doubt) * self.aimed + doubt * self.others


def _relative(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Logits minus the largest of their row, and that largest (rows,), in float64."""
    logits = widened(logits).double()
    best = logits.amax(-1)
    return logits - best.unsqueeze(-1), best


def _logit_moments(rows: _Rows, inverse: float) -> tuple[float, float]:
    """Mean and variance of the logits under softmax(inverse * logits), summed over the rows times their weights."""
    logits, _, weights = rows
    p = (inverse * logits).softmax(-1)
    mean = (p * logits).sum(-1)
    variance = (p * (logits - mean.unsqueeze(-1)) ** 2).sum(-1)
    moments = torch.stack([mean, variance])
    mean_sum, variance_sum = (moments.sum(-1) if weights is None else moments @ weights).tolist()
    return mean_sum, variance_sum


def _minimise(slope_and_curvature: Moments) -> float:
    """Newton on a convex function of the inverse temperature, kept inside a bracket that shrinks."""
    low, high, inverse = LOWEST, HIGHEST, 1.0
    for _ in range(100):
        slope, curvature = slope_and_curvature(inverse)
        if not math.isfinite(slope):
            raise ValueError("the logits are not finite, so that no temperature fits them")
        if slope == curvature == 0 and inverse == 1:  # all logits are equal: every temperature does
            return inverse
        low, high = (low, inverse) if slope > 0 else (inverse, high)
        proposal = inverse - slope / curvature if curvature > 0 else math.nan
        if not low < proposal < high:
            proposal = math.sqrt(low * high)
        if abs(proposal - inverse) <= 1e-9 * inverse:
            return proposal
        inverse = proposal
    return inverse
