"""The head's loss and gradients for a batch of few logits, in as few operations as possible.

For ten labels a training step is dominated by the cost of starting operations, not by arithmetic: autograd would start
many more. The formulas are those of `chunked`; here all rows are one chunk and their order stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from labelemb.embeddings.running import RunningEmbedding
from labelemb.losses.chunked.products import Products
from labelemb.losses.terms import LossTerms, cap_of, cap_slope, target_shares

if TYPE_CHECKING:
    from labelemb.heads.label_embedding import LabelEmbeddingHead
    from labelemb.losses.batch import Batch


class OnePiece:
    """run() fills loss, terms, counts and the gradients of all inputs."""

    loss: Tensor
    terms: LossTerms
    correct: Tensor
    logits: Tensor
    right: Tensor

    def __init__(self, head: LabelEmbeddingHead, batch: Batch, soft_active: bool, progress: float | None) -> None:
        self.head, self.batch, self.soft_active, self.progress = head, batch, soft_active, progress
        self.products = Products(batch.hidden, head.predictor.weight)
        self.needs_gradients = torch.is_grad_enabled()

    def run(self, inputs: Sequence[Tensor | None]) -> None:
        """`inputs`: hidden, predictor weight and bias, observer weight and bias, embedding parameters."""
        self.inputs = inputs
        self.wanted = [self.needs_gradients and x is not None and x.requires_grad for x in inputs]
        self.gradients: list[Tensor | None] = [None] * len(inputs)
        batch, objective = self.batch, self.head.objective
        assert batch.labels is not None
        self.own = batch.labels.unsqueeze(1)  # (rows, 1)
        self.total = batch.divisor
        self.weights = batch.weights.unsqueeze(1)  # (rows, 1)
        self.unit_weights = self.weights / self.total
        self._look_up()

        zero = torch.zeros_like(self.weights)
        stats = [*self._predict(), *(self._observe() if inputs[3] is not None else (zero, zero, zero))]
        hard, soft, mixed, observer, cap, right = (batch.weights @ torch.cat(stats, 1)).unbind()
        if inputs[3] is None:
            self.right = torch.zeros_like(batch.valid)
        embedding = self._learn(right) if inputs[3] is not None else torch.zeros_like(hard)
        sums = torch.stack([hard, soft, observer, cap, mixed])
        hard, soft, observer, mean_cap, mixed = (sums / self.total).unbind()
        cap = mean_cap if objective.cap_reduction == "mean" else cap
        self.terms = LossTerms(hard, soft, observer, cap, embedding)
        self.loss = mixed + observer + embedding
        if objective.cap_weight > 0:
            self.loss = self.loss.add(cap, alpha=objective.cap_weight)
        for index, (x, gradient) in enumerate(zip(inputs, self.gradients, strict=True)):
            if gradient is not None and x is not None and gradient.dtype != x.dtype:
                self.gradients[index] = gradient.to(x.dtype)

    def _look_up(self) -> None:
        """The soft target of each label that may occur: all labels, or the distinct ones of the batch."""
        embedding, work = self.head.embedding, self.products.dtype
        assert self.batch.labels is not None
        if self.head.num_labels <= max(64, len(self.own)):
            self.labels, self.place = torch.arange(self.head.num_labels, device=self.own.device), self.batch.labels
        else:
            self.labels, self.place = self.batch.labels.unique(return_inverse=True)
        self.rows, self.log_q = None, None
        if embedding.learned:
            self.rows = embedding.rows(self.labels).detach().to(work)  # (distinct, labels)
            self.log_q = self.rows.log_softmax(1)
            self.q = self.log_q.exp()
        else:
            self.q = embedding.probabilities(self.labels).detach().to(work)

    def _predict(self) -> tuple[Tensor, Tensor, Tensor]:
        """hard, soft and both mixed, (rows, 1) each, and the gradients of the predictor and the hidden states."""
        hidden = self.batch.hidden.detach().to(self.products.dtype)
        self.logits = self.products.linear(hidden, self.inputs[1], self.inputs[2])
        correct = self.logits.gather(1, self.own) == self.logits.amax(1, keepdim=True)
        self.correct = (correct.squeeze(1) & self.batch.valid).sum()
        log_p = self.batch.harmless(self.logits).log_softmax(1)
        q = self.q[self.place]  # (rows, labels)
        hard = -log_p.gather(1, self.own)
        soft = (log_p * q).sum(1, keepdim=True).mul_(-float(self.soft_active))
        objective = self.head.objective
        hard_share: Tensor | float = float(objective.hard_weight)
        soft_share: Tensor | float = float(objective.soft_weight * self.soft_active)
        if objective.mass_floor > 0:
            hard_share, soft_share = target_shares(q.gather(1, self.own), objective, self.soft_active, self.progress)
        mixed = hard_share * hard + soft_share * soft
        if any(self.wanted[:3]):
            on_logits = log_p.exp_()
            if isinstance(soft_share, float) and isinstance(hard_share, float):
                if hard_share + soft_share != 1:
                    on_logits.mul_(hard_share + soft_share)
                on_logits.scatter_add_(1, self.own, torch.full_like(hard, -hard_share)).sub_(q, alpha=soft_share)
            else:  # a mass floor: both add up to 1
                on_logits.scatter_add_(1, self.own, torch.zeros_like(hard).sub_(hard_share)).sub_(q.mul_(soft_share))
            on_logits.mul_(self.unit_weights)
            self._layer_gradients(1, on_logits, hidden)
            if self.wanted[0]:
                self.gradients[0] = self.products.times(on_logits, self.inputs[1])
        return hard, soft, mixed

    def _observe(self) -> tuple[Tensor, Tensor, Tensor]:
        """observer, cap and whether it was right, (rows, 1) each, and the observer's gradients."""
        objective, batch = self.head.objective, self.batch
        hidden = batch.hidden if batch.observed_hidden is None else batch.observed_hidden
        hidden = hidden.detach().to(self.products.dtype)
        logits = batch.harmless(self.products.linear(hidden, self.inputs[3], self.inputs[4]))
        best = logits.amax(1, keepdim=True)
        right = logits.gather(1, self.own) == best
        self.finite = best.isfinite()
        self.all_finite = bool(self.finite.all())
        if not self.all_finite:
            right.logical_and_(self.finite)
        self.right = right.squeeze(1) & batch.valid
        self.log_p = logits.log_softmax(1)
        own_log_p = self.log_p.gather(1, self.own)
        p = own_log_p.exp()
        if self.wanted[3] or self.wanted[4]:
            factor = self.unit_weights
            if objective.cap_weight > 0:
                cap_weights = factor if objective.cap_reduction == "mean" else self.weights
                pull = cap_slope(p, objective).mul_(p).mul_(cap_weights)
                factor = torch.sub(factor, pull, alpha=objective.cap_weight)
            on_logits = self.log_p.exp()
            on_logits.scatter_add_(1, self.own, torch.full_like(p, -1)).mul_(factor)
            self._layer_gradients(3, on_logits, hidden)
        return -own_log_p, cap_of(p, objective), right.to(p.dtype)

    def _learn(self, right_weight: Tensor) -> Tensor:
        """Hand what the observer saw to the embedding; gives the embedding term."""
        head, objective = self.head, self.head.objective
        table = head.embedding if head.training and isinstance(head.embedding, RunningEmbedding) else None
        if table is None and self.rows is None:
            return torch.zeros_like(right_weight)
        gate = self.weights * (self.right.unsqueeze(1) if objective.correct_only else self.finite)
        seen = self.log_p.div_(objective.tau).softmax(1)
        if not self.all_finite:
            seen = torch.where(self.finite, seen, 0.0)
        sums = torch.zeros_like(self.q).index_add_(0, self.place, seen.mul_(gate))  # (distinct, labels)
        if table is not None:
            masses = self.q.new_zeros(len(self.q)).index_add_(0, self.place, gate.squeeze(1))
            table.begin(self.batch.valid.sum())
            table.observe(self.labels, sums, masses)
            table.finish()
            return torch.zeros_like(right_weight)
        assert self.rows is not None
        assert self.log_q is not None
        total = self.total if objective.embedding_reduction == "all" else right_weight.clamp_min(1)
        term = -torch.dot(sums.view(-1), self.log_q.view(-1)) / total
        if any(self.wanted[5:]):
            gradient = self.q.mul_(sums.sum(1, keepdim=True)).sub_(sums).div_(total)
            buffers = [torch.zeros_like(x, dtype=self.products.dtype) for x in head.embedding.parameters()]
            head.embedding.add_row_gradients(self.labels, self.rows, gradient, buffers)
            pairs = zip(buffers, self.wanted[5:], strict=True)
            self.gradients[5:] = [buffer if wanted else None for buffer, wanted in pairs]
        return term

    def _layer_gradients(self, layer: int, on_logits: Tensor, hidden: Tensor) -> None:
        if self.wanted[layer]:
            self.gradients[layer] = self.products.add_outer(None, on_logits, hidden)
        if self.wanted[layer + 1]:
            self.gradients[layer + 1] = on_logits.sum(0)
