"""`PlainHead`: cross entropy, with or without label smoothing."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from labelemb.embeddings.even import EvenTargets
from labelemb.heads.base import HeadOutput, computed
from labelemb.heads.clock import Clock
from labelemb.heads.implementation import Implementation, ImplementationChoice
from labelemb.heads.logit_head import LogitHead
from labelemb.losses.batch import Batch
from labelemb.losses.chunked import chunked_loss
from labelemb.losses.objective import Objective
from labelemb.losses.parts import Parts
from labelemb.losses.result import LossTerms
from labelemb.losses.terms import target_shares


class PlainHead(LogitHead):
    """Cross entropy, with or without label smoothing: the baseline with the call of all heads.

    It equals `F.cross_entropy` with two exceptions: a batch without valid rows gives 0 instead of NaN, and soft targets
    with label weights are divided by the sum of their weights, so a one-hot row counts like its integer label.

    Arguments:
        in_features: size of the hidden state.
        num_labels: number of labels.
        label_smoothing: share of the target that is spread evenly over all labels, in [0, 1].
        mass_floor: share of the target that the true label keeps at the end of the training; it rises linearly from 0,
            and `label_smoothing` is then the largest share that is spread. Needs progress= in calls, or total_steps=;
            without both it is at its end value from the first call on. 0: no schedule.
            `PlainHead(d, m, label_smoothing=0.9, mass_floor=0.9)` is the schedule of label embedding without learned
            similarities.
        total_steps: number of optimiser updates of the whole training, for a mass floor.
        bias: whether the predictor has a bias.
        weight: (num_labels,), a weight per label, as in `nn.CrossEntropyLoss`. None: all labels have weight 1.
        ignore_index: target of rows that are left out.
        impl: "auto", "autograd" or "chunked", as in `LabelEmbeddingHead`: with many logits, the loss is computed in
            chunks. Label weights together with label smoothing use plain autograd.
        chunk_rows: rows whose logits are in memory at once. None: chosen for the device.
    """

    def __init__(
        self,
        in_features: int,
        num_labels: int,
        *,
        label_smoothing: float = 0.0,
        mass_floor: float = 0.0,
        total_steps: int | None = None,
        bias: bool = True,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        impl: Implementation = "auto",
        chunk_rows: int | None = None,
    ) -> None:
        if not 0 <= label_smoothing <= 1:
            raise ValueError(f"label_smoothing is {label_smoothing}, but must be in [0, 1]")
        if mass_floor and not label_smoothing:
            raise ValueError(f"mass_floor={mass_floor} would be ignored: without label_smoothing= nothing is spread")
        if impl == "chunked" and weight is not None and label_smoothing:
            raise ValueError('label weights with label smoothing need impl="autograd" or "auto"')
        ImplementationChoice(impl, chunk_rows)
        rest = None if mass_floor else 1 - label_smoothing
        mixing = Objective(hard_weight=rest, soft_weight=label_smoothing, mass_floor=mass_floor)
        clock = Clock(mass_floor, total_steps=total_steps)
        super().__init__(in_features, num_labels, bias=bias, weight=weight, ignore_index=ignore_index, clock=clock)
        self.mixing, self.impl, self.chunk_rows = mixing, impl, chunk_rows
        self.label_smoothing, self.mass_floor = label_smoothing, mass_floor
        self.hard_weight, self.soft_weight = 1 - label_smoothing, label_smoothing

    def _training_output(self, batch: Batch) -> HeadOutput:
        choice = ImplementationChoice(self.impl, self.chunk_rows)
        weighted_entries = self.weight is not None and self.label_smoothing > 0  # other terms than the chunks have
        if weighted_entries or not choice.uses_chunks(batch, self.num_labels):
            return super()._training_output(batch)
        targets = EvenTargets(self.num_labels) if self.label_smoothing else None
        found = chunked_loss(Parts(computed(self.predictor), None, targets, self.mixing), batch, choice.options)
        return HeadOutput(found.loss, found.terms, found.logits, found.correct)

    def _mean(self, logits: Tensor, batch: Batch) -> tuple[Tensor, LossTerms]:
        if self.label_smoothing or batch.labels is None or not batch.unweighted:
            return super()._mean(logits, batch)
        # one operation for all rows: with few labels, starting operations is what costs
        loss = F.cross_entropy(logits, batch.labels, reduction="sum") / batch.divisor
        zero = batch.divisor.new_zeros(())
        return loss, LossTerms(loss.detach(), zero, zero, zero, zero)

    def _shares(self, batch: Batch) -> tuple[Tensor | float, Tensor | float]:
        if not self.mass_floor:
            return self.hard_weight, self.soft_weight
        even = batch.weights.new_full((), 1 / self.num_labels)
        return target_shares(even, self.mixing, batch.progress)

    def _soft_rows(self, logits: Tensor, batch: Batch) -> Tensor:
        """Cross entropy with the even distribution; label weights weigh its entries, as in F.cross_entropy."""
        if self.label_smoothing == 0:
            return torch.zeros_like(batch.weights)
        log_p = F.log_softmax(logits, dim=-1)
        row_weight = batch.weights
        if self.weight is not None:
            log_p = log_p * self.weight.to(log_p.dtype)
            row_weight = batch.row_weights
        return -row_weight * log_p.mean(-1)

    def extra_repr(self) -> str:
        shown = f"{super().extra_repr()}, label_smoothing={self.label_smoothing}"
        return f"{shown}, mass_floor={self.mass_floor}" if self.mass_floor else shown
