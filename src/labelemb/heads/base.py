"""What all heads share: one call, one way to read targets, weights and ignored rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from labelemb.labelspace import LabelSpace
from labelemb.losses.batch import Batch, checked_weight, read_batch
from labelemb.losses.objective import Objective
from labelemb.losses.terms import LossTerms, RowTerms, brief, training_terms, widened


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
        counts = f"correct={int(self.correct)}" + ("" if self.observed is None else f", observed={int(self.observed)}")
        return f"HeadOutput(loss={brief(self.loss)}, {counts}, terms={self.terms!r})"


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
        self.register_buffer("weight", None if weight is None else checked_weight(weight, num_labels))
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
            num_items: divides in place of the sum of the row weights. Under gradient accumulation: the valid rows of
                the whole update. Where processes average their gradients (DDP): that number over the processes.
            step: optimiser updates so far (for `soft_after`); without it the head counts its training calls.
            progress: how far the training is, 0 to 1 (for `mass_floor`).
            observed_hidden: (..., in_features), what the observer reads in place of hidden.
            reduction: "mean", or "none" for a loss per row.
        """
        if targets is None:
            return self.logits(hidden)
        batch = read_batch(
            hidden,
            targets,
            in_features=self.in_features,
            num_labels=self.num_labels,
            ignore_index=self.ignore_index,
            label_weight=self._label_weight(),
            dtype=torch.promote_types(self.predictor.weight.dtype, torch.float32),
            sample_weight=sample_weight,
            num_items=num_items,
            observed_hidden=observed_hidden,
            step=step,
            progress=progress,
            reduction=reduction,
        )
        return self._training_output(batch)

    def _label_weight(self) -> Tensor | None:
        return self.weight

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
        sizes = f"in_features={self.in_features}, num_labels={self.num_labels}"
        return sizes if self.ignore_index == -100 else f"{sizes}, ignore_index={self.ignore_index}"


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
    targets = batch.unweighted_targets
    assert targets is not None
    top = targets == targets.amax(-1, keepdim=True)
    return (((logits == best) & top).any(-1) & batch.valid).sum()


def per_row_output(rows: RowTerms, objective: Objective, batch: Batch) -> tuple[Tensor, LossTerms]:
    """reduction="none": the rows in the shape of the targets, undivided."""
    loss = rows.supervision + training_terms(rows.terms(), objective)
    return batch.rowwise(loss), LossTerms(*(batch.rowwise(term) for term in rows.terms()))
