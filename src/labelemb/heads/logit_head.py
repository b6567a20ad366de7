"""`LogitHead`: the base of heads whose loss needs the predictor's logits only."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from labelemb.heads.base import Head, HeadOutput
from labelemb.losses.batch import Batch, count_correct
from labelemb.losses.parts import without_autocast
from labelemb.losses.result import LossTerms
from labelemb.support.tensors import widened


class LogitHead(Head):
    """Base class of heads whose loss needs only the predictor's logits.

    The loss of a row is hard_weight times its cross entropy plus soft_weight times its soft part, which a subclass
    computes in `_soft_rows`.
    """

    hard_weight = 1.0
    soft_weight = 0.0

    def _training_output(self, batch: Batch) -> HeadOutput:
        logits = self.logits(batch.hidden)
        wide = batch.masked(widened(logits))
        with without_autocast(logits.device.type):
            loss, terms = self._per_row(wide, batch) if batch.reduction == "none" else self._mean(wide, batch)
        correct = count_correct(logits, batch)
        if self.training:
            self._learn(wide.detach(), batch)
        return HeadOutput(loss, terms, batch.rowwise(logits), correct)

    def _mean(self, logits: Tensor, batch: Batch) -> tuple[Tensor, LossTerms]:
        hard, soft, loss = self._rows(logits, batch)
        total, zero = batch.divisor, batch.divisor.new_zeros(())
        terms = LossTerms(hard.detach().sum() / total, soft.detach().sum() / total, zero, zero, zero)
        return loss.sum() / total, terms

    def _per_row(self, logits: Tensor, batch: Batch) -> tuple[Tensor, LossTerms]:
        hard, soft, loss = self._rows(logits, batch)
        zero = torch.zeros_like(hard)
        return batch.rowwise(loss), LossTerms(*(batch.rowwise(term) for term in (hard, soft, zero, zero, zero)))

    def _rows(self, logits: Tensor, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """The unweighted hard and soft part of each row and its loss, each times the row's weight; all (rows,)."""
        hard = hard_rows(logits, batch)
        soft = self._soft_rows(logits, batch)
        hard_share, soft_share = self._shares(batch)
        return hard, soft, hard_share * hard + soft_share * soft

    def _shares(self, batch: Batch) -> tuple[Tensor | float, Tensor | float]:
        """How much the hard and the soft part weigh."""
        return self.hard_weight, self.soft_weight

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
