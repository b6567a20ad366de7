"""`OnlineSmoothingHead`: online label smoothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor

from labelemb.heads.clock import Clock
from labelemb.heads.logit_head import LogitHead
from labelemb.labelspace import LabelSpace
from labelemb.losses.batch import Batch
from labelemb.losses.objective import Objective
from labelemb.losses.terms import target_shares
from labelemb.support.tensors import kept_wide, snapshot, sum_over_processes


class OnlineSmoothingHead(LogitHead):
    """Online label smoothing (Zhang et al. 2021): a label's soft target is its mean prediction of the last epoch.

    The loss is hard_weight H(y, z1') + soft_weight H(S_y, z1'). S_y is the mean of z1' over the rows of label y that
    were predicted right during the previous epoch; for a label without such rows it is the even distribution. The
    first epoch uses label smoothing of `first_smoothing`.

    Arguments:
        in_features: size of the hidden state.
        num_labels: number of labels.
        rows_per_epoch: number of training rows after which the soft targets are updated.
        hard_weight: weight of the true label. None: 0.5, or with a mass floor the share that the soft part leaves.
        soft_weight: weight of the soft targets; with a mass floor, the largest share they may have.
        first_smoothing: label smoothing of the first epoch, in [0, 1].
        mass_floor: share of the target that the true label keeps at the end of the training, as in
            `Objective.mass_floor`. Needs progress= in calls, or total_steps=; without both it is at its end value from
            the first call on. 0: no schedule.
        total_steps: number of optimiser updates of the whole training, for a mass floor.
        bias: whether the predictor has a bias.
        weight: (num_labels,), a weight per label, as in `nn.CrossEntropyLoss`. None: all labels have weight 1.
        ignore_index: target of rows that are left out.
    """

    def __init__(
        self,
        in_features: int,
        num_labels: int,
        *,
        rows_per_epoch: int,
        hard_weight: float | None = None,
        soft_weight: float = 0.5,
        first_smoothing: float = 0.1,
        mass_floor: float = 0.0,
        total_steps: int | None = None,
        bias: bool = True,
        weight: Tensor | None = None,
        ignore_index: int = -100,
    ) -> None:
        clock = Clock(mass_floor, total_steps=total_steps)
        super().__init__(in_features, num_labels, bias=bias, weight=weight, ignore_index=ignore_index, clock=clock)
        if not rows_per_epoch >= 1:
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
        # both are renewed in place before backward() runs
        targets, first_epoch = snapshot(self.targets).to(log_p.dtype, copy=True), snapshot(self.first_epoch)
        hard_share, soft_share = target_shares(targets.diagonal(), self.mixing, batch.progress)
        smoothing = torch.full_like(targets.diagonal(), self.first_smoothing)
        soft_share = torch.where(first_epoch, smoothing, soft_share)  # (labels,)
        hard_share = torch.where(first_epoch, 1 - smoothing, hard_share)
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
        """The soft targets in use: those of the last full epoch."""
        return LabelSpace.from_matrix(self.targets, names, kind="probability")

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, rows_per_epoch={self.rows_per_epoch}"
