"""One temperature that makes probabilities mean what they say."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor

from labelemb.targets import checked_labels
from labelemb.terms import widened

LOWEST, HIGHEST = 1e-3, 1e3
"""Inverse temperatures are searched in this range."""

Moments = Callable[[float], tuple[float, float]]


@torch.no_grad()
def fit_temperature(logits: Tensor, targets: Tensor, *, ignore_index: int = -100) -> float:
    """The temperature T for which softmax(logits / T) has the lowest cross entropy with the targets.

    logits (..., labels); targets integer labels (...). Divide logits by T before the softmax.
    """
    if logits.shape[:-1] != targets.shape or targets.is_floating_point():
        raise ValueError(
            f"logits have shape {tuple(logits.shape)} and targets {tuple(targets.shape)} ({targets.dtype}), but "
            f"(..., labels) and integer (...) are needed"
        )
    labels, valid = checked_labels(targets, logits.shape[-1], ignore_index)
    logits, targets = widened(logits[valid]).double(), labels[valid]
    if not len(targets):
        raise ValueError("there is no valid target to fit a temperature to")
    aimed = logits.gather(-1, targets.unsqueeze(-1)).sum().item()

    def slope_and_curvature(inverse: float) -> tuple[float, float]:
        mean, variance = _logit_moments(logits, inverse)
        return mean - aimed, variance

    return 1 / _minimise(slope_and_curvature)


@torch.no_grad()
def agreeing_temperature(
    hidden_batches: Iterable[Tensor], predict: Callable[[Tensor], Tensor], observe: Callable[[Tensor], Tensor]
) -> float:
    """The temperature for which softmax(predict(h) / T) has the lowest cross entropy with softmax(observe(h))."""
    batches = [hidden.reshape(-1, hidden.shape[-1]) for hidden in hidden_batches]
    if not any(len(hidden) for hidden in batches):
        raise ValueError("there is no hidden state to calibrate on")

    def pairs() -> Iterator[tuple[Tensor, Tensor]]:
        for hidden in batches:
            for part in hidden.split(512):  # bounds the memory for many labels
                yield widened(predict(part)).double(), part

    aimed = sum((widened(observe(part)).double().softmax(-1) * z1).sum().item() for z1, part in pairs())

    def slope_and_curvature(inverse: float) -> tuple[float, float]:
        moments = [_logit_moments(z1, inverse) for z1, _ in pairs()]
        return sum(mean for mean, _ in moments) - aimed, sum(variance for _, variance in moments)

    return 1 / _minimise(slope_and_curvature)


def _logit_moments(logits: Tensor, inverse: float) -> tuple[float, float]:
    """Mean and variance of the logits under softmax(inverse * logits), summed over the rows."""
    p = (inverse * logits).softmax(-1)
    mean = (p * logits).sum(-1)
    variance = (p * (logits - mean.unsqueeze(-1)) ** 2).sum(-1)
    return mean.sum().item(), variance.sum().item()


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
