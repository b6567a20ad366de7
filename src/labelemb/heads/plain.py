"""`PlainHead`: cross entropy, with or without label smoothing."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from labelemb.heads.logit_head import LogitHead
from labelemb.losses.batch import Batch


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
