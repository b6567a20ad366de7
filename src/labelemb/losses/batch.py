"""Targets, weights and ignored rows, checked and flattened: what every head starts from."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor


class Batch(NamedTuple):
    """A call's rows. One that is left out and not finite is zeros here; see also `harmless`."""

    hidden: Tensor  # (rows, in_features)
    observed_hidden: Tensor | None  # (rows, in_features), detached
    labels: Tensor | None  # (rows,), 0 where ignored; None with soft targets
    soft_targets: Tensor | None  # (rows, labels), each entry times its row's weight; None with integer labels
    unweighted_targets: Tensor | None  # (rows, labels), the same without any weight: they tell what is right
    valid: Tensor  # (rows,)
    all_valid: bool  # False also where nobody may look
    weights: Tensor  # (rows,), 0 where ignored
    row_weights: Tensor  # (rows,), the same without the labels' weights
    total: Tensor  # the sum of the weights, or what the caller puts in its place
    shape: torch.Size  # the leading dimensions of hidden
    step: int | None
    progress: float | None
    reduction: Literal["mean", "none"]

    @property
    def divisor(self) -> Tensor:
        """`total`, or a tiny number where no row has any weight: the loss, a sum of zeros, is then 0 and not NaN."""
        return self.total.clamp_min(torch.finfo(self.total.dtype).tiny)

    def harmless(self, logits: Tensor) -> Tensor:
        """Logits to compute a loss from: zeros in the rows that are left out."""
        return logits if self.all_valid else zeros_where_left_out(logits, self.valid)

    def rowwise(self, value: Tensor) -> Tensor:
        """Rows in the shape of the targets again."""
        return value if len(self.shape) == 1 else value.reshape(self.shape + value.shape[1:])


class Targets(NamedTuple):
    """Targets without their leading dimensions."""

    labels: Tensor | None  # (rows,)
    soft: Tensor | None  # (rows, labels)
    pairs: Tensor | None  # (rows, labels): soft targets times the labels' weights
    valid: Tensor  # (rows,)


def read_batch(
    hidden: Tensor,
    targets: Tensor,
    *,
    in_features: int,
    num_labels: int,
    ignore_index: int,
    label_weight: Tensor | None,
    dtype: torch.dtype,
    sample_weight: Tensor | None,
    num_items: int | float | Tensor | None,
    observed_hidden: Tensor | None,
    step: int | None,
    progress: float | None,
    reduction: Literal["mean", "none"],
) -> Batch:
    """Check a head's call and flatten it. `dtype` is that of weights and losses."""
    if hidden.ndim == 0 or hidden.shape[-1] != in_features:
        raise ValueError(f"hidden has shape {tuple(hidden.shape)}, but its last size must be {in_features}")
    shape = hidden.shape[:-1]
    if observed_hidden is not None and observed_hidden.shape != hidden.shape:
        raise ValueError(
            f"observed_hidden has shape {tuple(observed_hidden.shape)}, but hidden has {tuple(hidden.shape)}"
        )
    if progress is not None and not 0 <= progress <= 1:
        raise ValueError(f"progress is {progress}, but must be in [0, 1]")
    if reduction not in ("mean", "none"):
        raise ValueError(f'reduction is {reduction!r}, but must be "mean" or "none"')
    labels, soft, pairs, valid = _read_targets(targets, shape, num_labels, ignore_index, label_weight, dtype)
    row_weights = valid.to(dtype)
    if sample_weight is not None:
        row_weights = row_weights * _read_sample_weight(sample_weight, shape, dtype)
    if pairs is not None:
        pairs = pairs * row_weights.unsqueeze(-1)
        weights = pairs.sum(-1)
    else:
        assert labels is not None
        weights = row_weights if label_weight is None else row_weights * label_weight.to(dtype)[labels]
    hidden = hidden.reshape(-1, in_features)
    observed = None if observed_hidden is None else observed_hidden.detach().reshape(-1, in_features)
    all_valid = can_look_at(valid) and bool(valid.all())
    if not all_valid:
        hidden = _finite_where_left_out(hidden, valid)
        observed = None if observed is None else _finite_where_left_out(observed, valid)
    total = weights.sum() if num_items is None else _read_num_items(num_items, weights)
    return Batch(
        hidden,
        observed,
        labels,
        pairs,
        soft,
        valid,
        all_valid,
        weights,
        row_weights,
        total,
        shape,
        step,
        progress,
        reduction,
    )


def zeros_where_left_out(rows: Tensor, valid: Tensor) -> Tensor:
    """Rows (..., features) with zeros where they are not valid: 0 times what overflows there would be NaN."""
    return rows.masked_fill(~valid.unsqueeze(-1), 0)


def _finite_where_left_out(hidden: Tensor, valid: Tensor) -> Tensor:
    """Zeros where a row is left out and not finite: even a weight of 0 would let it into the gradients.

    Other rows that are left out stay, for their logits are part of a head's output.
    """
    return zeros_where_left_out(hidden, valid | hidden.isfinite().all(-1))


def checked_labels(targets: Tensor, num_labels: int, ignore_index: int) -> tuple[Tensor, Tensor]:
    """Integer targets as labels, 0 where ignored, and which are valid. Their range is checked on the CPU."""
    if targets.is_floating_point() or targets.dtype is torch.bool or targets.is_complex():
        raise TypeError(f"targets are {targets.dtype}, but must be integer labels")
    labels = targets.long()
    valid = labels != ignore_index
    if not can_look_at(labels):
        return torch.where(valid, labels, 0), valid
    if _out_of_range(labels, num_labels) is not None:
        labels = torch.where(valid, labels, 0)
        bad = _out_of_range(labels, num_labels)
        if bad is not None:
            raise ValueError(f"a target is {bad}, but must be in [0, {num_labels}), or {ignore_index} to be ignored")
    elif 0 <= ignore_index < num_labels:
        labels = torch.where(valid, labels, 0)
    return labels, valid


def checked_weight(weight: Tensor, num_labels: int) -> Tensor:
    """A weight per label, copied."""
    weight = torch.as_tensor(weight, dtype=torch.get_default_dtype()).detach().clone()
    if weight.shape != (num_labels,):
        raise ValueError(f"weight has shape {tuple(weight.shape)}, but must be ({num_labels},): one per label")
    if not bool(((weight >= 0) & weight.isfinite()).all()):
        raise ValueError("weight has a negative or non-finite entry, but label weights must be finite and 0 or more")
    return weight


def can_look_at(values: Tensor) -> bool:
    """Whether values can be looked at without waiting for a device or breaking a compiled graph."""
    return values.device.type == "cpu" and not torch.compiler.is_compiling() and values.numel() > 0


def _out_of_range(labels: Tensor, num_labels: int) -> int | None:
    low, high = torch.aminmax(labels)
    return next((bad for bad in (int(low), int(high)) if not 0 <= bad < num_labels), None)


def _read_targets(
    targets: Tensor,
    shape: torch.Size,
    num_labels: int,
    ignore_index: int,
    label_weight: Tensor | None,
    dtype: torch.dtype,
) -> Targets:
    if targets.is_floating_point():
        if targets.shape != (*shape, num_labels):
            raise ValueError(
                f"float targets have shape {tuple(targets.shape)}, but soft targets need {(*shape, num_labels)}; "
                f"labels must be integers"
            )
        soft = _checked_soft_targets(targets.detach().reshape(-1, num_labels), dtype)
        valid = soft.sum(-1) > 0
        return Targets(None, soft, soft if label_weight is None else soft * label_weight.to(dtype), valid)
    if targets.shape != shape:
        raise ValueError(f"targets have shape {tuple(targets.shape)}, but the rows of hidden are {tuple(shape)}")
    labels, valid = checked_labels(targets.reshape(-1), num_labels, ignore_index)
    return Targets(labels, None, None, valid)


def _checked_soft_targets(targets: Tensor, dtype: torch.dtype) -> Tensor:
    soft = targets.to(dtype)
    if not can_look_at(soft):
        return soft
    if bool((soft < 0).any()):
        raise ValueError(f"a soft target is {soft.min().item():g}, but must be 0 or more")
    sums = soft.sum(-1)
    tolerance = 1e-3 if targets.dtype.itemsize > 2 else 2e-2
    wrong = ~(((sums - 1).abs() <= tolerance) | (sums == 0))
    if bool(wrong.any()):
        raise ValueError(
            f"a soft target sums to {sums[wrong][0].item():g}, but must sum to 1 (or be all 0 to be ignored)"
        )
    return soft


def _read_sample_weight(sample_weight: Tensor, shape: torch.Size, dtype: torch.dtype) -> Tensor:
    if sample_weight.shape != shape:
        raise ValueError(f"sample_weight has shape {tuple(sample_weight.shape)}, but targets have {tuple(shape)}")
    weights = sample_weight.detach().reshape(-1).to(dtype)
    if can_look_at(weights) and not bool((usable := (weights >= 0) & weights.isfinite()).all()):
        raise ValueError(f"a sample_weight is {weights[~usable][0].item():g}, but must be finite and 0 or more")
    return weights


def _read_num_items(num_items: int | float | Tensor, weights: Tensor) -> Tensor:
    if not isinstance(num_items, Tensor) and not (num_items > 0 and math.isfinite(num_items)):
        raise ValueError(f"num_items is {num_items}, but must be above 0")
    return torch.as_tensor(num_items, dtype=weights.dtype, device=weights.device)
