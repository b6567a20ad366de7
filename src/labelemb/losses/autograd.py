"""The objective in plain autograd over (rows, labels) tensors: readable, differentiable twice, and the oracle.

Without an observer an embedding that learns does so from the predictor's own logits (a control of the lab).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from labelemb.losses.batch import Batch
from labelemb.losses.groups import group_by_label
from labelemb.losses.parts import Parts, apply_linear
from labelemb.losses.result import LossResult, LossTerms, RightLabels
from labelemb.losses.terms import Observation, largest_at, observe, softened, target_shares, training_terms
from labelemb.support.tensors import widened

ALL_SOFT_LABELS = 1024
"""Up to here soft targets use all rows of the embedding, without looking which labels have mass."""


class PredictorRows(NamedTuple):
    """The predictor's parts of the objective, unweighted; (rows,), or (rows, k) for soft targets."""

    hard: Tensor
    soft: Tensor
    mixed: Tensor | None
    """Both by their shares of the target, where these differ from row to row (a mass floor)."""


def autograd_loss(parts: Parts, batch: Batch) -> LossResult:
    """The objective of a batch."""
    z1 = apply_linear(parts.predictor, batch.hidden)
    z2 = None if parts.observer is None else apply_linear(parts.observer, batch.observer_input)
    with torch.autocast(z1.device.type, enabled=False):
        work = _IntegerLabels(parts, batch) if batch.labels is not None else _SoftTargets(parts, batch)
        return work.result(z1, z2)


class _Objective:
    """The part that is the same for integer labels and soft targets. A pair is a row and a label that it may have.

    Integer labels are one pair a row, and quantities of pairs are (rows,). Soft targets are a pair for each of k
    labels, and quantities of pairs are (rows, k).
    """

    labels: Tensor  # (rows,), or (k,)
    weights: Tensor  # of pairs
    valid: Tensor  # of pairs

    def __init__(self, parts: Parts, batch: Batch) -> None:
        self.parts, self.batch, self.objective = parts, batch, parts.objective

    def result(self, z1: Tensor, z2: Tensor | None) -> LossResult:
        batch = self.batch
        predicted = self.predict(batch.masked(z1))
        z2 = None if z2 is None else batch.masked(z2)
        teacher = z2 if z2 is not None else (batch.masked(z1) if self.parts.embedding.learns else None)
        right = None if teacher is None else self.largest_at(teacher)
        observed = None if z2 is None or right is None else self.observe(z2, right)
        reduce = self.mean if batch.reduction == "mean" else self.per_row
        loss, terms = reduce(predicted, observed, teacher, right)
        logits, correct = batch.rowwise(z1), count_correct(z1, batch)
        if right is None:
            return LossResult(loss, terms, logits, correct)
        right = right & self.valid
        counts = RightLabels(self.labels, right.long() if right.ndim == 1 else right.sum(0))
        if z2 is None:
            return LossResult(loss, terms, logits, correct, right=counts)
        rows_right = (right if right.ndim == 1 else right.any(-1)).sum()
        return LossResult(loss, terms, logits, correct, rows_right, batch.valid.sum(), counts)

    def mean(
        self, predicted: PredictorRows, observed: Observation | None, teacher: Tensor | None, right: Tensor | None
    ) -> tuple[Tensor, LossTerms]:
        objective, total = self.objective, self.batch.divisor
        columns = [predicted.hard, predicted.soft]
        columns += [] if observed is None else [observed.loss, observed.cap]
        columns += [] if predicted.mixed is None else [predicted.mixed]
        sums = self.weighted_sums(columns)
        hard, soft, *others = (sums / total).unbind()
        observer, cap = others[:2] if observed is not None else (hard.new_zeros(()), hard.new_zeros(()))
        if observed is not None and objective.cap_reduction == "sum":
            cap = sums[3]
        embedding = hard.new_zeros(())
        if teacher is not None and right is not None and self.parts.embedding.learns:
            embedding = self.learn(teacher, right) / self.embedding_divisor(total, right)
        terms = LossTerms(hard, soft, observer, cap, embedding)
        if predicted.mixed is None:
            hard_share, soft_share = self.shares(hard)
            supervision = hard_share * hard + soft_share * soft
        else:
            supervision = others[-1]
        return supervision + training_terms(terms, objective), terms

    def per_row(
        self, predicted: PredictorRows, observed: Observation | None, teacher: Tensor | None, right: Tensor | None
    ) -> tuple[Tensor, LossTerms]:
        hard, soft = self.weighted_rows(predicted.hard), self.weighted_rows(predicted.soft)
        zero = torch.zeros_like(hard)
        observer = zero if observed is None else self.weighted_rows(observed.loss)
        cap = zero if observed is None else self.weighted_rows(observed.cap)
        embedding = zero
        if teacher is not None and right is not None and self.parts.embedding.learns:
            embedding = self.embedding_rows(teacher, right)
            with torch.no_grad():
                self.learn(teacher, right)
        terms = LossTerms(hard, soft, observer, cap, embedding)
        if predicted.mixed is None:
            hard_share, soft_share = self.shares(hard)
            supervision = hard_share * hard + soft_share * soft
        else:
            supervision = self.weighted_rows(predicted.mixed)
        loss = supervision + training_terms(terms, self.objective)
        return self.batch.rowwise(loss), LossTerms(*(self.batch.rowwise(term) for term in terms))

    def predictor_rows(self, hard: Tensor, soft: Tensor, own_mass: Tensor | None) -> PredictorRows:
        if self.batch.soft_active is not True:
            soft = soft * self.batch.soft_active
        if own_mass is None:
            return PredictorRows(hard, soft, None)
        hard_share, soft_share = self.shares(own_mass)
        return PredictorRows(hard, soft, hard_share * hard + soft_share * soft)

    def shares(self, own_mass: Tensor) -> tuple[Tensor | float, Tensor | float]:
        return target_shares(own_mass, self.objective, self.batch.progress, self.batch.soft_active)

    def gate(self, teacher: Tensor, right: Tensor) -> Tensor:
        """The weight with which the embedding learns from each pair."""
        if self.objective.correct_only:
            return self.weights * right
        best = teacher.detach().amax(-1)
        finite = best - best == 0
        return self.weights * (finite if self.weights.ndim == 1 else finite.unsqueeze(-1))

    def embedding_divisor(self, total: Tensor, right: Tensor) -> Tensor:
        if self.objective.embedding_reduction == "all":
            return total
        return (self.weights * right).sum().clamp_min(1)

    def predict(self, z1: Tensor) -> PredictorRows:
        raise NotImplementedError

    def largest_at(self, teacher: Tensor) -> Tensor:
        raise NotImplementedError

    def observe(self, z2: Tensor, right: Tensor) -> Observation:
        raise NotImplementedError

    def weighted_sums(self, columns: list[Tensor]) -> Tensor:
        """Quantities of pairs, summed over all pairs with their weights."""
        raise NotImplementedError

    def weighted_rows(self, values: Tensor) -> Tensor:
        """The same summed for each row, (rows,)."""
        raise NotImplementedError

    def learn(self, teacher: Tensor, right: Tensor) -> Tensor:
        """Let the embedding learn; gives the sum of its term."""
        raise NotImplementedError

    def embedding_rows(self, teacher: Tensor, right: Tensor) -> Tensor:
        """The embedding term of each row, (rows,)."""
        raise NotImplementedError


class _IntegerLabels(_Objective):
    def __init__(self, parts: Parts, batch: Batch) -> None:
        super().__init__(parts, batch)
        assert batch.labels is not None
        self.labels, self.weights, self.valid = batch.labels, batch.weights, batch.valid
        self.own = self.labels.unsqueeze(-1)  # (rows, 1)

    def predict(self, z1: Tensor) -> PredictorRows:
        log_z1 = F.log_softmax(widened(z1), dim=-1)
        with torch.no_grad():
            q = self.parts.embedding.probabilities(self.labels).to(log_z1.dtype)  # (rows, labels)
        hard = F.nll_loss(log_z1, self.labels, reduction="none")
        own_mass = q.gather(-1, self.own).squeeze(-1) if self.objective.mass_floor > 0 else None
        return self.predictor_rows(hard, -(q * log_z1).sum(-1), own_mass)

    def largest_at(self, teacher: Tensor) -> Tensor:
        return largest_at(teacher, self.own).squeeze(-1)

    def observe(self, z2: Tensor, right: Tensor) -> Observation:
        log_p = -F.nll_loss(F.log_softmax(widened(z2), dim=-1), self.labels, reduction="none")
        return observe(log_p, right, self.objective)

    def weighted_sums(self, columns: list[Tensor]) -> Tensor:
        return torch.stack(columns) @ self.weights

    def weighted_rows(self, values: Tensor) -> Tensor:
        return self.weights * values

    def learn(self, teacher: Tensor, right: Tensor) -> Tensor:
        with torch.no_grad():
            labels, place, slots = group_by_label(self.labels, teacher.shape[-1])
            gate = self.gate(teacher, right).unsqueeze(-1)
            seen = softened(teacher, self.objective.tau) * gate
            sums = seen.new_zeros(slots, teacher.shape[-1]).index_add_(0, place, seen)
            masses = gate.new_zeros(slots).index_add_(0, place, gate.squeeze(-1))
            self.parts.embedding.begin(self.batch.valid.sum())
        term = self.parts.embedding.learn_from(labels, sums, masses)
        self.parts.embedding.finish()
        return term

    def embedding_rows(self, teacher: Tensor, right: Tensor) -> Tensor:
        log_e = self.parts.embedding.trained_log_rows(self.labels)
        if log_e is None:
            return torch.zeros_like(self.weights)
        return self.gate(teacher, right) * -(softened(teacher, self.objective.tau) * log_e).sum(-1)


class _SoftTargets(_Objective):
    """Every row has each of k labels with some weight."""

    def __init__(self, parts: Parts, batch: Batch) -> None:
        super().__init__(parts, batch)
        weights, unweighted = batch.soft_targets, batch.unweighted_targets
        assert weights is not None
        assert unweighted is not None
        labels, valid = torch.arange(weights.shape[1], device=weights.device), unweighted > 0
        if len(labels) > ALL_SOFT_LABELS:
            labels = labels[valid.any(0)]
            weights, valid = weights[:, labels], valid[:, labels]
        self.labels, self.weights, self.valid = labels, weights, valid

    def predict(self, z1: Tensor) -> PredictorRows:
        log_z1 = F.log_softmax(widened(z1), dim=-1)
        with torch.no_grad():
            q = self.parts.embedding.probabilities(self.labels).to(log_z1.dtype)  # (k, labels)
        own_mass = q.gather(-1, self.labels.unsqueeze(-1)).squeeze(-1) if self.objective.mass_floor > 0 else None
        return self.predictor_rows(-log_z1[:, self.labels], -log_z1 @ q.T, own_mass)

    def largest_at(self, teacher: Tensor) -> Tensor:
        return largest_at(teacher, self.labels.expand(len(teacher), -1))

    def observe(self, z2: Tensor, right: Tensor) -> Observation:
        return observe(F.log_softmax(widened(z2), dim=-1)[:, self.labels], right, self.objective)

    def weighted_sums(self, columns: list[Tensor]) -> Tensor:
        return torch.stack([(self.weights * column).sum() for column in columns])

    def weighted_rows(self, values: Tensor) -> Tensor:
        return (self.weights * values).sum(-1)

    def learn(self, teacher: Tensor, right: Tensor) -> Tensor:
        with torch.no_grad():
            gate = self.gate(teacher, right)
            sums = gate.T @ softened(teacher, self.objective.tau)
            self.parts.embedding.begin(self.batch.valid.sum())
        term = self.parts.embedding.learn_from(self.labels, sums, gate.sum(0))
        self.parts.embedding.finish()
        return term

    def embedding_rows(self, teacher: Tensor, right: Tensor) -> Tensor:
        log_e = self.parts.embedding.trained_log_rows(self.labels)
        if log_e is None:
            return torch.zeros_like(self.batch.weights)
        return (self.gate(teacher, right) * -(softened(teacher, self.objective.tau) @ log_e.T)).sum(-1)


def count_correct(logits: Tensor, batch: Batch) -> Tensor:
    """Valid rows whose true label has the largest logit, ties included; with soft targets, whose top label has it."""
    logits = logits.detach()
    if batch.labels is not None:
        return (largest_at(logits, batch.labels.unsqueeze(-1)).squeeze(-1) & batch.valid).sum()
    targets = batch.unweighted_targets
    assert targets is not None
    top = targets == targets.amax(-1, keepdim=True)
    best = logits == logits.amax(-1, keepdim=True)
    return ((best & top).any(-1) & batch.valid).sum()
