"""`TeacherFreeHead`: teacher-free distillation with a virtual teacher."""

from __future__ import annotations

import math

import torch.nn.functional as F
from torch import Tensor

from labelemb.heads.logit_head import LogitHead
from labelemb.losses.batch import Batch


class TeacherFreeHead(LogitHead):
    """Teacher-free distillation with a virtual teacher (Tf-KD_reg of Yuan et al. 2020).

    The virtual teacher u gives the true label `correct_probability` and the other labels equal shares of the rest. The
    loss is the paper's equation: (1 - alpha) H(y, z1') + alpha KL(softmax(u / T), softmax(z1 / T)), averaged over rows,
    with alpha = `teacher_weight` and T = `temperature`. `terms.soft` is the divergence. The authors' code differs: it
    does not divide z1 by T, averages the divergence over rows and labels, and multiplies it by a factor per data set.

    Arguments:
        in_features: size of the hidden state.
        num_labels: number of labels.
        correct_probability: the teacher's probability of the true label, in (0, 1).
        temperature: temperature of teacher and prediction in the divergence, above 0.
        teacher_weight: weight of the divergence, in [0, 1]; the true label has the rest.
        bias: whether the predictor has a bias.
        weight: (num_labels,), a weight per label, as in `nn.CrossEntropyLoss`. None: all labels have weight 1.
        ignore_index: target of rows that are left out.
    """

    def __init__(
        self,
        in_features: int,
        num_labels: int,
        *,
        correct_probability: float = 0.99,
        temperature: float = 20.0,
        teacher_weight: float = 0.1,
        bias: bool = True,
        weight: Tensor | None = None,
        ignore_index: int = -100,
    ) -> None:
        super().__init__(in_features, num_labels, bias=bias, weight=weight, ignore_index=ignore_index)
        if not 0 < correct_probability < 1:
            raise ValueError(f"correct_probability is {correct_probability}, but must be in (0, 1)")
        if not temperature > 0:
            raise ValueError(f"temperature is {temperature}, but must be above 0")
        if not 0 <= teacher_weight <= 1:
            raise ValueError(f"teacher_weight is {teacher_weight}, but must be in [0, 1]")
        self.teacher_temperature = temperature
        self.hard_weight, self.soft_weight = 1 - teacher_weight, teacher_weight
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
        return f"{super().extra_repr()}, temperature={self.teacher_temperature}, teacher_weight={self.soft_weight}"
