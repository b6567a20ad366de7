"""The baseline and the peers as heads with the same call: what label embedding is compared with."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor

from labelemb.distributed import sum_over_processes
from labelemb.heads.base import Head, HeadOutput, count_correct
from labelemb.labelspace import LabelSpace
from labelemb.objective import Objective
from labelemb.precision import kept_wide
from labelemb.targets import Batch
from labelemb.terms import LossTerms, target_shares, widened


class LogitHead(Head):
    """A head whose loss needs the predictor's logits only. A subclass gives the hard and the soft part of each row."""

    hard_weight = 1.0
    soft_weight = 0.0

    def _training_output(self, batch: Batch) -> HeadOutput:
        logits = self.logits(batch.hidden)
        wide = batch.harmless(widened(logits))
        hard, soft, loss = self._rows(wide, batch)
        if batch.reduction == "none":
            zero = torch.zeros_like(hard)
            terms = LossTerms(*(batch.rowwise(term) for term in (hard, soft, zero, zero, zero)))
            loss = batch.rowwise(loss)
        else:
            total = batch.divisor
            loss = loss.sum() / total
            zero = loss.new_zeros(())
            terms = LossTerms(hard.detach().sum() / total, soft.detach().sum() / total, zero, zero, zero)
        correct = count_correct(logits, batch)
        if self.training:
            self._learn(wide.detach(), batch)
        return HeadOutput(loss, terms, batch.rowwise(logits), correct, None)

    def _rows(self, logits: Tensor, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """The unweighted hard and soft part of each row and its loss, each times the row's weight; all (rows,)."""
        hard = hard_rows(logits, batch)
        soft = self._soft_rows(logits, batch)
        return hard, soft, self.hard_weight * hard + self.soft_weight * soft

    def _soft_rows(self, logits: Tensor, batch: Batch) -> Tensor:
        raise NotImplementedError

    def _learn(self, logits: Tensor, batch: Batch) -> None:
        """Take what the head learns from a training call beside its gradients."""


def hard_rows(logits: Tensor, batch: Batch) -> Tensor:
    """The cross entropy of each row with its target, times the row's weight."""
    if batch.labels is not None:
        return batch.weights * F.cross_entropy(logits, batch.labels, reduction="none")
    assert batch.soft_targets is not None
    return -(batch.soft_targets * F.log_softmax(logits, dim=-1)).sum(-1)


class PlainHead(LogitHead):
    """Cross entropy, with `label_smoothing` the share of the target that is spread evenly over all labels.

    Equals `F.cross_entropy` in every option, except that a batch without any valid row gives 0 and not NaN, and that
    soft targets with label weights are divided by the sum of their weights, so that a one-hot row means its label.
    """

    def __init__(
        self,
        in_features: int,
        num_labels: int,
        *,
        label_smoothing: float = 0.0,
        bias: bool = True,
        weight: Tensor | None = None,
        ignore_index: int = -100,
    ) -> None:
        super().__init__(in_features, num_labels, bias=bias, weight=weight, ignore_index=ignore_index)
        if not 0 <= label_smoothing <= 1:
            raise ValueError(f"label_smoothing is {label_smoothing}, but must be in [0, 1]")
        self.label_smoothing = label_smoothing
        self.hard_weight, self.soft_weight = 1 - label_smoothing, label_smoothing

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
        return f"{super().extra_repr()}, label_smoothing={self.label_smoothing}"


class OnlineSmoothingHead(LogitHead):
    """Online label smoothing (Zhang et al. 2021): soft targets are last epoch's mean predictions of each label.

    The loss is hard_weight H(y, z1') + soft_weight H(S_y, z1'). S_y is the mean of z1' over the rows of label y that
    were predicted right during the previous epoch; a label without such rows keeps the even distribution. The
    first epoch is trained with label smoothing of `first_smoothing`.

    Arguments:
        rows_per_epoch: rows after which the matrix is renewed.
        mass_floor: with it, soft_weight is only the most that the soft part weighs: the true label keeps a rising
            share of the target, as in `Objective.mass_floor` (the call then needs progress=).
    """

    def __init__(
        self,
        in_features: int,
        num_labels: int,
        *,
        rows_per_epoch: int,
        hard_weight: float = 0.5,
        soft_weight: float = 0.5,
        first_smoothing: float = 0.1,
        mass_floor: float = 0.0,
        bias: bool = True,
        weight: Tensor | None = None,
        ignore_index: int = -100,
    ) -> None:
        super().__init__(in_features, num_labels, bias=bias, weight=weight, ignore_index=ignore_index)
        if rows_per_epoch < 1:
            raise ValueError(f"rows_per_epoch is {rows_per_epoch}, but must be 1 or more")
        if not 0 <= first_smoothing <= 1:
            raise ValueError(f"first_smoothing is {first_smoothing}, but must be in [0, 1]")
        self.rows_per_epoch, self.first_smoothing = rows_per_epoch, first_smoothing
        self.mixing = Objective(hard_weight=hard_weight, soft_weight=soft_weight, mass_floor=mass_floor)
        self.targets: Tensor
        self.register_buffer("targets", torch.full((num_labels, num_labels), 1 / num_labels))
        self.sums: Tensor
        self.register_buffer("sums", torch.zeros(num_labels, num_labels))
        self.counts: Tensor
        self.register_buffer("counts", torch.zeros(num_labels, dtype=torch.long))
        self.seen_rows: Tensor
        self.register_buffer("seen_rows", torch.zeros((), dtype=torch.long))
        self.first_epoch: Tensor
        self.register_buffer("first_epoch", torch.ones((), dtype=torch.bool))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        with kept_wide(self, ("targets", "sums")):
            super()._apply(fn, recurse)
        return self

    def _rows(self, logits: Tensor, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        log_p = F.log_softmax(logits, dim=-1)
        if self.mixing.mass_floor > 0 and batch.progress is None and self.training:
            raise ValueError("a mass floor rises with the training: pass progress= in [0, 1]")
        progress = 1.0 if batch.progress is None else batch.progress
        targets = self.targets.to(log_p.dtype, copy=True)  # renewed in place before backward() runs
        hard_share, soft_share = target_shares(targets.diagonal(), self.mixing, True, progress)
        smoothing = torch.full_like(targets.diagonal(), self.first_smoothing)
        soft_share = torch.where(self.first_epoch, smoothing, soft_share)  # (labels,)
        hard_share = torch.where(self.first_epoch, 1 - smoothing, hard_share)
        if batch.labels is not None:
            hard = batch.weights * -log_p.gather(1, batch.labels.unsqueeze(1)).squeeze(1)
            soft = batch.weights * -(targets[batch.labels] * log_p).sum(-1)
            return hard, soft, hard_share[batch.labels] * hard + soft_share[batch.labels] * soft
        assert batch.soft_targets is not None
        hard = batch.soft_targets * -log_p  # (rows, labels)
        soft = batch.soft_targets * -(log_p @ targets.T)
        return hard.sum(-1), soft.sum(-1), (hard_share * hard + soft_share * soft).sum(-1)

    @torch.no_grad()
    def _learn(self, logits: Tensor, batch: Batch) -> None:
        labels = logits.argmax(-1)  # rows that are right are rows of the predicted label
        if batch.labels is not None:
            right = (labels == batch.labels) & batch.valid
        else:
            assert batch.unweighted_targets is not None
            right = (labels == batch.unweighted_targets.argmax(-1)) & batch.valid
        gate = right.to(self.sums.dtype)
        seen = torch.nan_to_num(logits.softmax(-1)).to(self.sums.dtype) * gate.unsqueeze(1)
        sums = torch.zeros_like(self.sums).index_add_(0, labels, seen)
        counts = torch.zeros_like(self.counts).index_add_(0, labels, right.long())
        self.sums.add_(sum_over_processes(sums))
        self.counts.add_(sum_over_processes(counts))
        self.seen_rows.add_(sum_over_processes(batch.valid.sum()))
        ended = self.seen_rows >= self.rows_per_epoch
        known = (self.counts > 0).unsqueeze(1)
        means = torch.where(known, self.sums / self.counts.clamp_min(1).unsqueeze(1), 1 / self.num_labels)
        self.targets.copy_(torch.where(ended, means, self.targets))
        self.sums.mul_(~ended)
        self.counts.mul_(~ended)
        self.seen_rows.mul_(~ended)
        self.first_epoch.logical_and_(~ended)

    def label_space(self, names: Sequence[str] | None = None) -> LabelSpace:
        """The matrix of the last full epoch."""
        return LabelSpace.from_matrix(self.targets, names, kind="probability")

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, rows_per_epoch={self.rows_per_epoch}"


class ConfidencePenaltyHead(LogitHead):
    """Cross entropy minus `penalty` times the entropy of the prediction (Pereyra et al. 2017).

    `terms.soft` is the negative entropy.
    """

    def __init__(
        self,
        in_features: int,
        num_labels: int,
        *,
        penalty: float = 0.1,
        bias: bool = True,
        weight: Tensor | None = None,
        ignore_index: int = -100,
    ) -> None:
        super().__init__(in_features, num_labels, bias=bias, weight=weight, ignore_index=ignore_index)
        if not penalty >= 0:
            raise ValueError(f"penalty is {penalty}, but must be 0 or more")
        self.penalty = self.soft_weight = penalty

    def _soft_rows(self, logits: Tensor, batch: Batch) -> Tensor:
        log_p = F.log_softmax(logits, dim=-1)
        return batch.weights * (log_p.exp() * log_p).sum(-1)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, penalty={self.penalty}"


class TeacherFreeHead(LogitHead):
    """Teacher-free distillation with a virtual teacher (Tf-KD_reg of Yuan et al. 2020).

    The virtual teacher u gives the true label `correct_probability` and the others the rest in equal shares. The form
    here is the paper's equation: (1 - alpha) H(y, z1') + alpha KL(softmax(u / T), softmax(z1 / T)) with alpha =
    `weight_of_teacher`, averaged over rows. The authors' code leaves z1 unsoftened, averages the divergence over rows
    and labels, and multiplies it by a factor per data set. `terms.soft` is the divergence.
    """

    def __init__(
        self,
        in_features: int,
        num_labels: int,
        *,
        correct_probability: float = 0.99,
        temperature: float = 20.0,
        weight_of_teacher: float = 0.1,
        bias: bool = True,
        weight: Tensor | None = None,
        ignore_index: int = -100,
    ) -> None:
        super().__init__(in_features, num_labels, bias=bias, weight=weight, ignore_index=ignore_index)
        if not 0 < correct_probability < 1:
            raise ValueError(f"correct_probability is {correct_probability}, but must be in (0, 1)")
        if not temperature > 0:
            raise ValueError(f"temperature is {temperature}, but must be above 0")
        if not 0 <= weight_of_teacher <= 1:
            raise ValueError(f"weight_of_teacher is {weight_of_teacher}, but must be in [0, 1]")
        self.teacher_temperature = temperature
        self.hard_weight, self.soft_weight = 1 - weight_of_teacher, weight_of_teacher
        other = (1 - correct_probability) / (num_labels - 1)
        largest = max(correct_probability, other)  # subtracted, so that no temperature is too low for exp
        own_part = math.exp((correct_probability - largest) / temperature)
        other_part = math.exp((other - largest) / temperature)
        scale = own_part + (num_labels - 1) * other_part
        self.on_label, self.elsewhere = own_part / scale, other_part / scale

    def _soft_rows(self, logits: Tensor, batch: Batch) -> Tensor:
        log_p = F.log_softmax(logits / self.teacher_temperature, dim=-1)
        others = log_p.sum(-1)
        if batch.labels is not None:
            own = batch.weights * log_p.gather(1, batch.labels.unsqueeze(1)).squeeze(1)
        else:
            assert batch.soft_targets is not None
            own = (batch.soft_targets * log_p).sum(-1)
        aligned = (self.on_label - self.elsewhere) * own + self.elsewhere * batch.weights * others
        return batch.weights * self._negative_entropy() - aligned

    def _negative_entropy(self) -> float:
        """Of the softened teacher, which makes the term a divergence."""
        parts = ((self.on_label, 1), (self.elsewhere, self.num_labels - 1))
        return sum(count * part * math.log(part) for part, count in parts if part > 0)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, temperature={self.teacher_temperature}, weight_of_teacher={self.soft_weight}"
