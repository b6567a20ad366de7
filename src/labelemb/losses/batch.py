"""Checks and flattens targets, weights and ignored rows: the input of every loss."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from labelemb.losses.terms import largest_at
from labelemb.support.arguments import out_of_range, require_floats, require_integers, require_number, require_tensor
from labelemb.support.tensors import can_look_at


class LabelRules(NamedTuple):
    """What a head knows about the rows of all its calls."""

    in_features: int
    num_labels: int
    ignore_index: int
    label_weight: Tensor | None
    dtype: torch.dtype  # of weights and losses


@dataclass(frozen=True)
class CallOptions:
    """What a call says beside hidden states and targets; see `Head.forward`."""

    sample_weight: Tensor | None = None
    num_items: int | float | Tensor | None = None
    observed_hidden: Tensor | None = None
    reduction: Literal["mean", "none"] = "mean"
    progress: float | Tensor | None = None
    soft_active: bool | Tensor = True

    def __post_init__(self) -> None:
        if self.reduction not in ("mean", "none"):
            raise ValueError(f'reduction is {self.reduction!r}, but must be "mean" or "none"')


@dataclass(frozen=True)
class Batch:
    """A call's rows. The hidden state of an ignored row is zeros here if it is not finite; see also `masked`."""

    hidden: Tensor  # (rows, in_features)
    observed_hidden: Tensor | None  # (rows, in_features), detached
    labels: Tensor | None  # (rows,), 0 where ignored; None with soft targets
    soft_targets: Tensor | None  # (rows, labels), each entry times its row's weight; None with integer labels
    unweighted_targets: Tensor | None  # (rows, labels), the same without any weight: they tell what is right
    valid: Tensor  # (rows,)
    all_valid: bool  # False also where nobody may look
    unweighted: bool  # all valid and of weight 1; False also where nobody may look
    weights: Tensor  # (rows,), 0 where ignored
    row_weights: Tensor  # (rows,), the same without the labels' weights
    divisor: (
        Tensor  # the sum of the weights or what the caller puts in its place, tiny and not 0: a loss of no rows is 0
    )
    shape: torch.Size  # the leading dimensions of hidden
    reduction: Literal["mean", "none"]
    progress: float | Tensor | None = None  # how far the training is; None without a clock
    soft_active: bool | Tensor = True  # whether the soft term has started
    observed: Batch | None = None  # the rows that the observer sees, where these are not all

    @property
    def for_observer(self) -> Batch:
        """The rows that the observer sees."""
        return self if self.observed is None else self.observed

    @property
    def valid_rows(self) -> Tensor:
        """How many rows are valid."""
        return self.valid.new_full((), len(self.valid), dtype=torch.long) if self.all_valid else self.valid.sum()

    @property
    def observer_input(self) -> Tensor:
        """The hidden states that the observer reads, behind a stop-gradient."""
        return self.hidden.detach() if self.observed_hidden is None else self.observed_hidden

    @property
    def top_labels(self) -> Tensor:
        """(rows, labels), where the soft target of a valid row is largest: there is the right answer."""
        targets = self.unweighted_targets
        assert targets is not None
        return (targets == targets.amax(-1, keepdim=True)) & self.valid.unsqueeze(-1)

    def masked(self, logits: Tensor) -> Tensor:
        """Logits to compute a loss from: zeros in the ignored rows."""
        return logits if self.all_valid else zeros_where_ignored(logits, self.valid)

    def rowwise(self, value: Tensor) -> Tensor:
        """Rows in the shape of the targets again."""
        return value if len(self.shape) == 1 else value.reshape(self.shape + value.shape[1:])


class Targets(NamedTuple):
    """Targets without their leading dimensions."""

    labels: Tensor | None  # (rows,)
    soft: Tensor | None  # (rows, labels)
    pairs: Tensor | None  # (rows, labels): soft targets times the labels' weights
    valid: Tensor  # (rows,)
    all_valid: bool  # False also where nobody may look


def read_batch(hidden: Tensor, targets: Tensor, rules: LabelRules, options: CallOptions) -> Batch:
    """Check a head's call and flatten it."""
    require_floats("hidden", hidden)
    require_tensor("targets", targets)
    if hidden.ndim == 0 or hidden.shape[-1] != rules.in_features:
        raise ValueError(f"hidden has shape {tuple(hidden.shape)}, but its last size must be {rules.in_features}")
    shape, observed_hidden = hidden.shape[:-1], options.observed_hidden
    if observed_hidden is not None:
        require_floats("observed_hidden", observed_hidden)
        if observed_hidden.shape != hidden.shape:
            raise ValueError(
                f"observed_hidden has shape {tuple(observed_hidden.shape)}, but hidden has {tuple(hidden.shape)}"
            )
    labels, soft, pairs, valid, all_valid = _read_targets(targets, shape, rules)
    unweighted = all_valid and labels is not None and options.sample_weight is None and rules.label_weight is None
    row_weights = valid.new_ones(len(valid), dtype=rules.dtype) if all_valid else valid.to(rules.dtype)
    if options.sample_weight is not None:
        row_weights = row_weights * checked_sample_weight(options.sample_weight, shape, rules.dtype)
    if pairs is not None:
        pairs = pairs * row_weights.unsqueeze(-1)
        weights = pairs.sum(-1)
    else:
        assert labels is not None
        per_label = rules.label_weight
        weights = row_weights if per_label is None else row_weights * per_label.to(rules.dtype)[labels]
    hidden = _rows_of(hidden)
    observed = None if observed_hidden is None else _rows_of(observed_hidden.detach())
    if not all_valid:
        hidden = _finite_where_ignored(hidden, valid)
        observed = None if observed is None else _finite_where_ignored(observed, valid)
    return Batch(
        hidden=hidden,
        observed_hidden=observed,
        labels=labels,
        soft_targets=pairs,
        unweighted_targets=soft,
        valid=valid,
        all_valid=all_valid,
        unweighted=unweighted,
        weights=weights,
        row_weights=row_weights,
        divisor=_divisor(weights, unweighted, options.num_items),
        shape=shape,
        reduction=options.reduction,
        progress=options.progress,
        soft_active=options.soft_active,
    )


def count_correct(logits: Tensor, batch: Batch) -> Tensor:
    """Valid rows whose true label has the largest logit, ties included; with soft targets, whose top label has it."""
    logits = logits.detach()
    if batch.labels is None:
        best = logits == logits.amax(-1, keepdim=True)
        return (best & batch.top_labels).any(-1).sum()
    right = largest_at(logits, batch.labels.unsqueeze(-1))
    return right.sum() if batch.all_valid else (right.squeeze(-1) & batch.valid).sum()


def zeros_where_ignored(rows: Tensor, valid: Tensor) -> Tensor:
    """Rows (..., features) with zeros where they are not valid: 0 times what overflows there would be NaN."""
    return rows.masked_fill(~valid.unsqueeze(-1), 0)


def _rows_of(hidden: Tensor) -> Tensor:
    return hidden if hidden.ndim == 2 else hidden.reshape(-1, hidden.shape[-1])


def _finite_where_ignored(hidden: Tensor, valid: Tensor) -> Tensor:
    """Zeros where a row is ignored and not finite: even a weight of 0 would let it into the gradients.

    Other ignored rows stay, for their logits are part of a head's output.
    """
    finite = (hidden.detach() * 0).sum(-1) == 0  # fewer operations than isfinite
    return zeros_where_ignored(hidden, valid | finite)


class CheckedLabels(NamedTuple):
    """Integer targets as labels."""

    labels: Tensor  # 0 where ignored
    valid: Tensor
    all_valid: bool  # False also where nobody may look


def checked_labels(targets: Tensor, num_labels: int, ignore_index: int) -> CheckedLabels:
    """Integer targets as labels, and which are valid. Their range is checked on the CPU."""
    require_integers("targets", targets)
    labels = targets.long()
    may_look = can_look_at(labels)
    if may_look and not 0 <= ignore_index < num_labels and out_of_range(labels, num_labels) is None:
        return CheckedLabels(labels, torch.ones_like(labels, dtype=torch.bool), True)
    valid = labels != ignore_index
    labels = torch.where(valid, labels, 0)
    bad = out_of_range(labels, num_labels) if may_look else None
    if bad is not None:
        raise ValueError(f"a target is {bad}, but must be in [0, {num_labels}), or {ignore_index} to be ignored")
    return CheckedLabels(labels, valid, may_look and bool(valid.all()))


def checked_weight(weight: Tensor, num_labels: int) -> Tensor:
    """A weight per label, copied."""
    weight = torch.as_tensor(weight, dtype=torch.get_default_dtype()).detach().clone()
    if weight.shape != (num_labels,):
        raise ValueError(f"weight has shape {tuple(weight.shape)}, but must be ({num_labels},): one per label")
    if not bool(((weight >= 0) & weight.isfinite()).all()):
        raise ValueError("weight has a negative or non-finite entry, but label weights must be finite and 0 or more")
    return weight


def checked_sample_weight(sample_weight: Tensor, shape: torch.Size, dtype: torch.dtype) -> Tensor:
    """The weight of each row, (rows,)."""
    require_tensor("sample_weight", sample_weight)
    if sample_weight.is_complex():
        raise TypeError(f"sample_weight is {sample_weight.dtype}, but must be real numbers")
    if sample_weight.shape != shape:
        raise ValueError(f"sample_weight has shape {tuple(sample_weight.shape)}, but targets have {tuple(shape)}")
    weights = sample_weight.detach().reshape(-1).to(dtype)
    if can_look_at(weights) and not bool((usable := (weights >= 0) & weights.isfinite()).all()):
        raise ValueError(f"a sample_weight is {weights[~usable][0].item():g}, but must be finite and 0 or more")
    return weights


def _read_targets(targets: Tensor, shape: torch.Size, rules: LabelRules) -> Targets:
    num_labels, label_weight = rules.num_labels, rules.label_weight
    if targets.is_floating_point():
        if targets.shape != (*shape, num_labels):
            raise ValueError(
                f"float targets have shape {tuple(targets.shape)}, but soft targets need {(*shape, num_labels)}; "
                f"labels must be integers"
            )
        soft = _checked_soft_targets(targets.detach().reshape(-1, num_labels), rules.dtype)
        valid = soft.sum(-1) > 0
        pairs = soft if label_weight is None else soft * label_weight.to(rules.dtype)
        return Targets(None, soft, pairs, valid, can_look_at(valid) and bool(valid.all()))
    if targets.shape != shape:
        raise ValueError(f"targets have shape {tuple(targets.shape)}, but the rows of hidden are {tuple(shape)}")
    labels, valid, all_valid = checked_labels(targets.reshape(-1), num_labels, rules.ignore_index)
    return Targets(labels, None, None, valid, all_valid)


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


def _divisor(weights: Tensor, unweighted: bool, num_items: int | float | Tensor | None) -> Tensor:
    if num_items is None and unweighted:
        return weights.new_full((), len(weights))
    total = weights.sum() if num_items is None else _read_num_items(num_items, weights)
    return total.clamp_min(torch.finfo(total.dtype).tiny)


def _read_num_items(num_items: int | float | Tensor, weights: Tensor) -> Tensor:
    require_number("num_items", num_items, "above 0")
    if not isinstance(num_items, Tensor):
        if not 0 < num_items < math.inf:
            raise ValueError(f"num_items is {num_items}, but must be above 0")
        return weights.new_full((), num_items)
    if can_look_at(num_items) and can_look_at(weights):
        value = num_items.item()
        # a count of the valid rows is 0 where there are none, and so is their loss
        if not 0 < value < math.inf and not (value == 0 and not bool(weights.any())):
            raise ValueError(f"num_items is {value}, but must be above 0")
    return num_items.detach().reshape(()).to(weights)
