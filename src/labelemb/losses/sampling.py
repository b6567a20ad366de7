"""Samples the rows that the observer sees, without a generator, so that runs can be resumed."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from labelemb.losses.batch import Batch
from labelemb.support.tensors import can_look_at


def observe_some(batch: Batch, most: int, draws: Tensor) -> Batch:
    """The batch with an `observed` part of up to `most` of its valid rows, drawn uniformly without replacement.

    An observed row stands for valid / observed rows, which multiplies its weight, so that sums over the part are
    unbiased estimates of sums over the batch. `draws` counts the draws so far: each number gives another one. Soft
    targets and losses per row observe all rows.
    """
    rows = len(batch.hidden)
    if batch.labels is None or batch.reduction == "none" or rows <= most:
        return batch
    chosen = first_by_hash(batch.valid, most, draws)  # (most,)
    valid = batch.valid[chosen]
    weight = batch.valid_rows.to(batch.weights.dtype) / valid.sum().clamp_min(1)
    observed = replace(
        batch,
        hidden=batch.observer_input[chosen],
        observed_hidden=None,
        labels=batch.labels[chosen],
        valid=valid,
        all_valid=batch.all_valid or (can_look_at(valid) and bool(valid.all())),
        unweighted=False,
        weights=batch.weights[chosen] * weight,
        row_weights=batch.row_weights[chosen] * weight,
        shape=chosen.shape,
    )
    return replace(batch, observed=observed)


def first_by_hash(valid: Tensor, count: int, draws: Tensor) -> Tensor:
    """The first `count` rows in the order of a hash of (draws, row), those that are not valid last."""
    rows = torch.arange(len(valid), device=valid.device)
    # multiplications wrap around; each step is one-to-one, so that no two rows have the same hash
    mixed = rows * _ODD[0] + draws * _ODD[1]
    mixed = (mixed ^ (mixed >> 32)) * _ODD[2]
    mixed = mixed ^ (mixed >> 29)
    return torch.where(valid, mixed, _LARGEST).topk(count, largest=False, sorted=False).indices


_LARGEST = (1 << 63) - 1
_ODD = (-0x61C8864680B583EB, -0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15)
"""Odd 64-bit constants with about as many ones as zeros (those of SplitMix64)."""
