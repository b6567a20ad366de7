"""`SoftTargetLoss`: a learned label space as a loss for any model that returns logits."""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labelemb.embeddings.fixed import FixedEmbedding
from labelemb.labelspace import LabelSpace
from labelemb.losses.batch import checked_labels, checked_weight, zeros_where_ignored
from labelemb.losses.parts import without_autocast
from labelemb.support.arguments import require_floats, require_tensor
from labelemb.support.tensors import widened


class SoftTargetLoss(nn.Module):
    """Cross entropy with the fixed soft targets of a label space, in place of `nn.CrossEntropyLoss`.

    The loss of a row is hard_weight H(y, z') + soft_weight H(e_y', z') with the rows e of the label space (Appendix B
    of the paper). Labels are the last axis of the logits: logits (..., labels) with integer targets (...).

    >>> space = LabelSpace.from_matrix(torch.tensor([[0.9, 0.1], [0.2, 0.8]]), ["cat", "dog"])
    >>> f"{SoftTargetLoss(space)(torch.tensor([[1.0, 0.0]]), torch.tensor([0])):.4f}"
    '0.3633'

    Arguments:
        space: a `LabelSpace` with its labels in the order of the logits; `space.reorder(names)` changes the order.
        hard_weight: weight of the true label, 0 or more. 0.5 and 0.5 keep the scale of cross entropy; the paper has 1
            and 1.
        soft_weight: weight of the soft target, 0 or more.
        weight: (labels,), a weight per label, as in `nn.CrossEntropyLoss`. None: all labels have weight 1.
        ignore_index: target of rows that are left out.
        reduction: "mean" divides by the sum of the label weights of the valid rows; "sum"; or "none" for a loss per
            row.
    """

    def __init__(
        self,
        space: LabelSpace,
        *,
        hard_weight: float = 0.5,
        soft_weight: float = 0.5,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: Literal["mean", "sum", "none"] = "mean",
    ) -> None:
        super().__init__()
        if reduction not in ("mean", "sum", "none"):
            raise ValueError(f'reduction is {reduction!r}, but must be "mean", "sum" or "none"')
        for name, value in (("hard_weight", hard_weight), ("soft_weight", soft_weight)):
            if not 0 <= value < math.inf:
                raise ValueError(f"{name} is {value}, but must be finite and 0 or more")
        self.embedding = FixedEmbedding(space)
        self.hard_weight, self.soft_weight = hard_weight, soft_weight
        self.ignore_index, self.reduction = ignore_index, reduction
        self.weight: Tensor | None
        self.register_buffer("weight", None if weight is None else checked_weight(weight, space.num_labels))

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        require_floats("logits", logits)
        require_tensor("targets", targets)
        labels_there = self.embedding.num_labels
        if logits.ndim == 0 or logits.shape[-1] != labels_there or logits.shape[:-1] != targets.shape:
            raise ValueError(
                f"logits have shape {tuple(logits.shape)} and targets {tuple(targets.shape)}, but "
                f"(..., {labels_there}) and (...) are needed"
            )
        labels, valid, _ = checked_labels(targets, labels_there, self.ignore_index)
        log_p = F.log_softmax(zeros_where_ignored(widened(logits), valid), dim=-1)
        with without_autocast(logits.device.type):  # the product of factors would be rounded to half precision
            q = self.embedding.probabilities(labels.reshape(-1)).reshape(log_p.shape).to(log_p.dtype)
        hard = -log_p.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
        soft = -(q * log_p).sum(-1)
        weights = valid.to(log_p.dtype) if self.weight is None else valid * self.weight.to(log_p.dtype)[labels]
        rows = weights * (self.hard_weight * hard + self.soft_weight * soft)
        if self.reduction == "none":
            return rows
        if self.reduction == "sum":
            return rows.sum()
        total = weights.sum()
        return rows.sum() / torch.where(total > 0, total, 1)
