"""What all heads share: one call, one way to read targets, weights and ignored rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from labelemb.labelspace import LabelSpace
from labelemb.objective import LossTerms, Objective, RowTerms, training_terms, widened


@dataclass
class HeadOutput:
    """What a head gives for a batch with targets."""

    loss: Tensor
    """To call backward() on: a number, or with reduction="none" a value per row."""
    terms: LossTerms
    """The unweighted terms behind it; zeros where a head has no such term."""
    logits: Tensor | None
    """The predictor's logits, (..., labels); None where they were never in memory at once."""
    correct: Tensor
    """How many valid rows the predictor got right."""
    observed: Tensor | None
    """How many valid rows the observer got right; None for heads without an observer."""

    def __repr__(self) -> str:
        loss = f"{self.loss.item():.4f}" if self.loss.ndim == 0 else f"per row {tuple(self.loss.shape)}"
        counts = f"correct={int(self.correct)}" + ("" if self.observed is None else f", observed={int(self.observed)}")
        if self.loss.ndim:
            return f"HeadOutput(loss={loss}, {counts})"
        terms = ", ".join(f"{name} {value:.4f}" for name, value in self.terms.as_floats().items())
        return f"HeadOutput(loss={loss}, {counts}; {terms})"


class Batch(NamedTuple):
    """A call's rows, flattened and checked."""

    hidden: Tensor  # (rows, in_features)
    observed_hidden: Tensor | None  # (rows, in_features)
    labels: Tensor | None  # (rows,), 0 where ignored; None with soft targets
    soft_targets: Tensor | None  # (rows, labels), each entry times its row's weight; None with integer labels
    valid: Tensor  # (rows,)
    weights: Tensor  # (rows,), 0 where ignored
    row_weights: Tensor  # (rows,), the same without the labels' weights
    total: Tensor  # what the sums of rows are divided by
    shape: torch.Size  # the leading dimensions of hidden
    step: int | None
    progress: float | None
    reduction: Literal["mean", "none"]

    @property
    def all_valid(self) -> bool:
        return bool(self.valid.all())

    @property
    def divisor(self) -> Tensor:
        """`total`, or 1 where no row has any weight, so that the loss is then 0 and not NaN."""
        return torch.where(self.total > 0, self.total, 1)

    def rowwise(self, value: Tensor) -> Tensor:
        return value.unflatten(0, self.shape) if len(self.shape) != 1 else value


class TrainingTerms(NamedTuple):
    """What an implementation of the objective gives: the fields of `HeadOutput`, and where the observer was right."""

    loss: Tensor
    terms: LossTerms
    logits: Tensor | None
    correct: Tensor
    observed: Tensor | None
    right: Tensor  # (rows,), or (rows, labels with mass) for soft targets


class Head(nn.Module):
    """Everything after the hidden state: a predicting linear layer, and in training a loss.

    `head(hidden)` gives logits, exactly `head.predictor(hidden)`; `head(hidden, targets)` a `HeadOutput`. All heads
    take the same keywords, so one training loop serves all methods; a head without use for one ignores it.
    """

    def __init__(
        self,
        in_features: int,
        num_labels: int,
        *,
        bias: bool = True,
        weight: Tensor | None = None,
        ignore_index: int = -100,
    ) -> None:
        super().__init__()
        if in_features < 1 or num_labels < 2:
            raise ValueError(
                f"in_features is {in_features} and num_labels {num_labels}, but 1 feature and 2 labels are the least"
            )
        self.in_features, self.num_labels, self.ignore_index = in_features, num_labels, ignore_index
        self.predictor = nn.Linear(in_features, num_labels, bias=bias)
        self.weight: Tensor | None
        self.register_buffer("weight", None if weight is None else self._checked_weight(weight))
        self.temperature: Tensor
        self.register_buffer("temperature", torch.ones(()))

    def forward(
        self,
        hidden: Tensor,
        targets: Tensor | None = None,
        *,
        sample_weight: Tensor | None = None,
        num_items: int | float | Tensor | None = None,
        step: int | None = None,
        progress: float | None = None,
        observed_hidden: Tensor | None = None,
        reduction: Literal["mean", "none"] = "mean",
    ) -> Any:
        """Logits, or with targets a `HeadOutput`.

        Arguments:
            hidden: (..., in_features).
            targets: integer labels (...), `ignore_index` to leave a row out; or soft targets (..., num_labels) whose
                rows sum to 1, an all-zero row to leave it out.
            sample_weight: (...), multiplies a row's terms.
            num_items: divides in place of the sum of the row weights. Under gradient accumulation or data-parallel
                training: the valid rows of the whole update.
            step: optimiser updates so far (for `soft_after`); without it the head counts its training calls.
            progress: how far the training is, 0 to 1 (for `mass_floor`).
            observed_hidden: (..., in_features), what the observer reads in place of hidden.
            reduction: "mean", or "none" for a loss per row.
        """
        if targets is None:
            return self.logits(hidden)
        if reduction not in ("mean", "none"):
            raise ValueError(f'reduction is {reduction!r}, but must be "mean" or "none"')
        batch = self._batch(hidden, targets, sample_weight, num_items, observed_hidden, step, progress, reduction)
        return self._training_output(batch)

    def _training_output(self, batch: Batch) -> HeadOutput:
        raise NotImplementedError

    def logits(self, hidden: Tensor) -> Tensor:
        """The predictor's logits; a hidden state of another precision is converted, as autocast would."""
        return apply_linear(self.predictor, hidden)

    def probabilities(self, hidden: Tensor) -> Tensor:
        """Calibrated probabilities: softmax of the logits over the temperature found by `calibrate`, 1 before it."""
        return (widened(self.logits(hidden)) / self.temperature).softmax(-1)

    @torch.no_grad()
    def export_predictor(self, *, fold_temperature: bool = False) -> nn.Linear:
        """A copy of the predicting layer alone; with `fold_temperature` its softmax is calibrated."""
        layer = nn.Linear(self.in_features, self.num_labels, bias=self.predictor.bias is not None)
        layer = layer.to(self.predictor.weight)
        layer.load_state_dict(self.predictor.state_dict())
        if fold_temperature:
            for parameter in layer.parameters():
                parameter.div_(self.temperature)
        return layer

    def parameter_groups(
        self, lr: float, embedding_lr: float | None = None, weight_decay: float = 0.0
    ) -> list[dict[str, Any]]:
        """Groups for an optimiser: this head's layers at `lr`. Heads that learn an embedding add a group for it."""
        return [{"params": list(self.parameters()), "lr": lr, "weight_decay": weight_decay}]

    def label_space(self, names: Sequence[str] | None = None) -> LabelSpace | None:
        """What was learned about the labels, or None for a head that learns nothing about them."""
        return None

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, num_labels={self.num_labels}"

    def _checked_weight(self, weight: Tensor) -> Tensor:
        weight = torch.as_tensor(weight, dtype=torch.get_default_dtype()).detach().clone()
        if weight.shape != (self.num_labels,):
            raise ValueError(f"weight has shape {tuple(weight.shape)}, but must be ({self.num_labels},): one per label")
        if not bool(((weight >= 0) & weight.isfinite()).all()):
            raise ValueError(
                "weight has a negative or non-finite entry, but label weights must be finite and 0 or more"
            )
        return weight

    def _batch(
        self,
        hidden: Tensor,
        targets: Tensor,
        sample_weight: Tensor | None,
        num_items: int | float | Tensor | None,
        observed_hidden: Tensor | None,
        step: int | None,
        progress: float | None,
        reduction: Literal["mean", "none"],
    ) -> Batch:
        if hidden.ndim == 0 or hidden.shape[-1] != self.in_features:
            raise ValueError(f"hidden has shape {tuple(hidden.shape)}, but its last size must be {self.in_features}")
        shape = hidden.shape[:-1]
        if observed_hidden is not None:
            if observed_hidden.shape != hidden.shape:
                raise ValueError(
                    f"observed_hidden has shape {tuple(observed_hidden.shape)}, but hidden has {tuple(hidden.shape)}"
                )
            observed_hidden = observed_hidden.detach().reshape(-1, self.in_features)
        if progress is not None and not 0 <= progress <= 1:
            raise ValueError(f"progress is {progress}, but must be in [0, 1]")
        dtype = torch.promote_types(self.predictor.weight.dtype, torch.float32)
        soft = targets.is_floating_point()
        if soft:
            labels, valid, weights = None, *self._read_soft_targets(targets, shape, dtype)
        else:
            labels, valid, weights = self._read_labels(targets, shape, dtype)
        row_weights = valid.to(dtype)
        if sample_weight is not None:
            if sample_weight.shape != shape:
                raise ValueError(
                    f"sample_weight has shape {tuple(sample_weight.shape)}, but targets have {tuple(shape)}"
                )
            sample_weight = sample_weight.detach().reshape(-1).to(dtype)
            weights = weights * (sample_weight.unsqueeze(-1) if soft else sample_weight)
            row_weights = row_weights * sample_weight
        soft_targets = weights if soft else None
        if soft:
            weights = weights.sum(-1)
        total = weights.sum() if num_items is None else self._read_num_items(num_items, weights)
        return Batch(
            hidden.reshape(-1, self.in_features),
            observed_hidden,
            labels,
            soft_targets,
            valid,
            weights,
            row_weights,
            total,
            shape,
            step,
            progress,
            reduction,
        )

    def _read_labels(self, targets: Tensor, shape: torch.Size, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
        """Integer targets: labels with ignored rows at 0, which rows are valid, and their weights; all (rows,)."""
        if targets.dtype is torch.bool or targets.is_complex():
            raise TypeError(f"targets are {targets.dtype}, but must be integers, or floats of shape (..., labels)")
        if targets.shape != shape:
            raise ValueError(f"targets have shape {tuple(targets.shape)}, but the rows of hidden are {tuple(shape)}")
        labels = targets.reshape(-1).long()
        valid = labels != self.ignore_index
        if not self._checkable(labels):
            labels = torch.where(valid, labels, 0)
        elif self._out_of_range(labels) is not None:
            labels = torch.where(valid, labels, 0)
            bad = self._out_of_range(labels)
            if bad is not None:
                raise ValueError(
                    f"a target is {bad}, but must be in [0, {self.num_labels}), or {self.ignore_index} to be ignored"
                )
        weights = valid.to(dtype)
        if self.weight is not None:
            weights = weights * self.weight.to(dtype)[labels]
        return labels, valid, weights

    @staticmethod
    def _checkable(targets: Tensor) -> bool:
        """Whether values can be looked at without waiting for a device, or breaking a compiled graph."""
        return targets.device.type == "cpu" and not torch.compiler.is_compiling() and targets.numel() > 0

    def _out_of_range(self, labels: Tensor) -> int | None:
        low, high = torch.aminmax(labels)
        return next((bad for bad in (int(low), int(high)) if not 0 <= bad < self.num_labels), None)

    def _read_soft_targets(self, targets: Tensor, shape: torch.Size, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Soft targets: which rows are valid (rows,), and each entry times its label's weight (rows, labels)."""
        if targets.shape != (*shape, self.num_labels):
            raise ValueError(
                f"float targets have shape {tuple(targets.shape)}, but soft targets need {(*shape, self.num_labels)}; "
                f"labels must be integers"
            )
        soft = targets.detach().reshape(-1, self.num_labels).to(dtype)
        sums = soft.sum(-1)
        if self._checkable(soft):
            if bool((soft < 0).any()):
                raise ValueError(f"a soft target is {soft.min().item():g}, but must be 0 or more")
            tolerance = 1e-3 if targets.dtype.itemsize > 2 else 2e-2
            wrong = ~(((sums - 1).abs() <= tolerance) | (sums == 0))
            if bool(wrong.any()):
                raise ValueError(
                    f"a soft target sums to {sums[wrong][0].item():g}, but must sum to 1 (or be all 0 to be ignored)"
                )
        if self.weight is not None:
            soft = soft * self.weight.to(dtype)
        return sums > 0, soft

    @staticmethod
    def _read_num_items(num_items: int | float | Tensor, weights: Tensor) -> Tensor:
        if not isinstance(num_items, Tensor) and not (num_items > 0 and math.isfinite(num_items)):
            raise ValueError(f"num_items is {num_items}, but must be above 0")
        return torch.as_tensor(num_items, dtype=weights.dtype, device=weights.device)


def apply_linear(layer: nn.Linear, hidden: Tensor) -> Tensor:
    if hidden.dtype != layer.weight.dtype and not torch.is_autocast_enabled(hidden.device.type):
        hidden = hidden.to(layer.weight.dtype)
    return layer(hidden)


def count_correct(logits: Tensor, batch: Batch) -> Tensor:
    """Valid rows whose true label has the largest logit, ties included; with soft targets, whose top label has it."""
    logits = logits.detach()
    best = logits.amax(-1, keepdim=True)
    if batch.labels is not None:
        right = logits.gather(-1, batch.labels.unsqueeze(-1)) == best
        return (right.squeeze(-1) & batch.valid).sum()
    assert batch.soft_targets is not None
    top = batch.soft_targets == batch.soft_targets.amax(-1, keepdim=True)
    return (((logits == best) & top).any(-1) & batch.valid).sum()


def per_row_output(rows: RowTerms, objective: Objective, batch: Batch) -> tuple[Tensor, LossTerms]:
    """reduction="none": the rows in the shape of the targets, undivided."""
    loss = rows.supervision + training_terms(rows.terms(), objective)
    return batch.rowwise(loss), LossTerms(*(batch.rowwise(term) for term in rows.terms()))
