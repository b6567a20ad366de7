"""`ConfidencePenaltyHead`: cross entropy with an entropy bonus."""

from __future__ import annotations

import math

import torch.nn.functional as F
from torch import Tensor

from labelemb.heads.logit_head import LogitHead
from labelemb.losses.batch import Batch


class ConfidencePenaltyHead(LogitHead):
    """Cross entropy minus `penalty` times the entropy of the prediction (Pereyra et al. 2017).

    `terms.soft` is the negative entropy, in nats.

    Arguments:
        in_features: size of the hidden state.
        num_labels: number of labels.
        penalty: weight of the entropy, 0 or more.
        bias: whether the predictor has a bias.
        weight: (num_labels,), a weight per label, as in `nn.CrossEntropyLoss`. None: all labels have weight 1.
        ignore_index: target of rows that are left out.
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
        if not 0 <= penalty < math.inf:
            raise ValueError(f"penalty is {penalty}, but must be finite and 0 or more")
        self.penalty = self.soft_weight = penalty

    def _soft_rows(self, logits: Tensor, batch: Batch) -> Tensor:
        log_p = F.log_softmax(logits, dim=-1)
        return batch.weights * (log_p.exp() * log_p).sum(-1)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, penalty={self.penalty}"
