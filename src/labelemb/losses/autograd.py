"""The objective in plain autograd over (rows, labels) tensors: readable, differentiable twice, and the oracle.

Without an observer an embedding that learns does so from the predictor's own logits (a control of the lab).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from labelemb.losses.batch import Batch, count_correct
from labelemb.losses.groups import group_by_label
from labelemb.losses.parts import Parts, apply_linear, without_autocast
from labelemb.losses.result import LossResult, LossTerms, RightLabels
from labelemb.losses.terms import Observation, largest_at, observe, softened, target_shares, training_terms
from labelemb.support.tensors import entries, widened

ALL_SOFT_LABELS = 1024
"""Up to here soft targets use all rows of the embedding, without looking which labels have mass."""


class Reading(NamedTuple):
    """What a layer says about its rows."""

    logits: Tensor  # (rows, labels), zeros in ignored rows
    log_p: Tensor  # (rows, labels)
    own_loss: Tensor  # of pairs: -log_p at the label
    right: Tensor  # of pairs, False where not valid


class PredictorRows(NamedTuple):
    """The predictor's parts of the objective, unweighted; quantities of pairs."""

    hard: Tensor
    soft: Tensor
    mixed: Tensor | None
    """Both by their shares of the target, where these differ from row to row (a mass floor)."""


class Seen(NamedTuple):
    """What the embedding learns from, and the observer's terms; None without an observer."""

    teacher: Reading
    observed: Observation | None


def autograd_loss(parts: Parts, batch: Batch) -> LossResult:
    """The objective of a batch."""
    z1 = apply_linear(parts.predictor, batch.hidden)
    z2 = None if parts.observer is None else apply_linear(parts.observer, batch.for_observer.observer_input)
    with without_autocast(z1.device.type):
        work = _IntegerLabels(parts, batch) if batch.labels is not None else _SoftTargets(parts, batch)
        return work.result(z1, z2)


def objective_again(
    parts: Parts, batch: Batch, z1: Tensor, z2: Tensor, embedded: tuple[Tensor, Tensor | None]
) -> tuple[Tensor, LossTerms]:
    """Loss and terms of a call that was answered already.

    `embedded` is what the embedding said then: the soft targets (rows, labels), and the logarithms of the trained rows
    of the batch's distinct labels.
    """
    work = _Again(parts, batch, *embedded)
    first, second = work.read(z1, z2)
    return work.mean(work.predict(first), work.see(first, second))


class _Objective:
    """The part that is the same for integer labels and soft targets. A pair is a row and a label that it may have.

    Integer labels are one pair a row, and quantities of pairs are (rows,). Soft targets are a pair for each of k
    labels, and quantities of pairs are (rows, k).
    """

    labels: Tensor  # (rows,), or (k,)
    seen_labels: Tensor  # the same of the observed rows
    seen_weights: Tensor  # of observed pairs

    def __init__(self, parts: Parts, batch: Batch) -> None:
        assert parts.embedding is not None
        self.embedding, self.batch, self.objective = parts.embedding, batch, parts.objective
        self.valid_rows = batch.valid_rows

    def result(self, z1: Tensor, z2: Tensor | None) -> LossResult:
        batch = self.batch
        first, second = self.read(z1, z2)
        predicted = self.predict(first)
        seen = self.see(first, second)
        reduce = self.mean if batch.reduction == "mean" else self.per_row
        loss, terms = reduce(predicted, seen)
        logits, correct = batch.rowwise(z1), self.count_correct(first)
        if seen is None:
            return LossResult(loss, terms, logits, correct)
        right = self.counted(seen.teacher.right)
        counts = RightLabels(self.seen_labels, right.long() if right.ndim == 1 else right.sum(0))
        if second is None:
            return LossResult(loss, terms, logits, correct, right=counts)
        rows_right = (right if right.ndim == 1 else right.any(-1)).sum()
        seen_rows = self.valid_rows if batch.observed is None else batch.observed.valid_rows
        return LossResult(loss, terms, logits, correct, rows_right, seen_rows, counts)

    def see(self, first: Reading, second: Reading | None) -> Seen | None:
        if second is not None:
            return Seen(second, observe(second.own_loss, second.right, self.objective))
        return Seen(first, None) if self.embedding.learns else None

    def mean(self, predicted: PredictorRows, seen: Seen | None) -> tuple[Tensor, LossTerms]:
        objective, total = self.objective, self.batch.divisor
        columns = [predicted.hard, predicted.soft, *([] if predicted.mixed is None else [predicted.mixed])]
        observed = None if seen is None else seen.observed
        sums = self.weighted_sums(columns, [] if observed is None else [observed.loss, observed.cap])
        hard, soft, *others = entries(sums / total)
        observer, cap = others[-2:] if observed is not None else (hard.new_zeros(()), hard.new_zeros(()))
        if observed is not None and objective.cap_reduction == "sum":
            cap = sums[-1]
        embedding = hard.new_zeros(())
        if seen is not None and self.embedding.learns:
            embedding = self.learn(seen.teacher) / self.embedding_divisor(total, seen.teacher.right)
        terms = LossTerms(hard, soft, observer, cap, embedding)
        supervision = self.supervision(hard, soft) if predicted.mixed is None else others[0]
        return supervision + training_terms(terms, objective), terms

    def per_row(self, predicted: PredictorRows, seen: Seen | None) -> tuple[Tensor, LossTerms]:
        hard, soft = self.weighted_rows(predicted.hard), self.weighted_rows(predicted.soft)
        zero = torch.zeros_like(hard)
        observed = None if seen is None else seen.observed
        observer = zero if observed is None else self.weighted_rows(observed.loss)
        cap = zero if observed is None else self.weighted_rows(observed.cap)
        embedding = zero
        if seen is not None and self.embedding.learns:
            embedding = self.embedding_rows(seen.teacher)
            with torch.no_grad():
                self.learn(seen.teacher)
        terms = LossTerms(hard, soft, observer, cap, embedding)
        mixed = predicted.mixed
        supervision = self.supervision(hard, soft) if mixed is None else self.weighted_rows(mixed)
        loss = supervision + training_terms(terms, self.objective)
        return self.batch.rowwise(loss), LossTerms(*(self.batch.rowwise(term) for term in terms))

    def predictor_rows(self, hard: Tensor, soft: Tensor, own_mass: Tensor | None) -> PredictorRows:
        if self.batch.soft_active is not True:
            soft = soft * self.batch.soft_active
        if own_mass is None:
            return PredictorRows(hard, soft, None)
        hard_share, soft_share = self.shares(own_mass)
        return PredictorRows(hard, soft, hard_share * hard + soft_share * soft)

    def supervision(self, hard: Tensor, soft: Tensor) -> Tensor:
        """Both by their weights, where these are the same for all rows."""
        hard_share, soft_share = self.shares(hard)
        return hard_share * hard + soft_share * soft

    def shares(self, own_mass: Tensor) -> tuple[Tensor | float, Tensor | float]:
        return target_shares(own_mass, self.objective, self.batch.progress, self.batch.soft_active)

    def counted(self, right: Tensor) -> Tensor:
        """Which of the pairs with the largest logit are counted as right answers."""
        return right

    def gate(self, teacher: Reading) -> Tensor:
        """The weight with which the embedding learns from each pair."""
        if self.objective.correct_only:
            return self.seen_weights * teacher.right
        best = teacher.logits.detach().amax(-1)
        finite = best - best == 0
        return self.seen_weights * (finite if self.seen_weights.ndim == 1 else finite.unsqueeze(-1))

    def embedding_divisor(self, total: Tensor, right: Tensor) -> Tensor:
        if self.objective.embedding_reduction == "all":
            return total
        return (self.seen_weights * right).sum().clamp_min(1)

    def read(self, z1: Tensor, z2: Tensor | None) -> tuple[Reading, Reading | None]:
        raise NotImplementedError

    def predict(self, first: Reading) -> PredictorRows:
        raise NotImplementedError

    def count_correct(self, first: Reading) -> Tensor:
        raise NotImplementedError

    def weighted_sums(self, predicted: list[Tensor], observed: list[Tensor]) -> Tensor:
        """Quantities of pairs, summed over all pairs with their weights."""
        raise NotImplementedError

    def weighted_rows(self, values: Tensor) -> Tensor:
        """The same summed for each row, (rows,)."""
        raise NotImplementedError

    def learn(self, teacher: Reading) -> Tensor:
        """Let the embedding learn; gives the sum of its term."""
        raise NotImplementedError

    def embedding_rows(self, teacher: Reading) -> Tensor:
        """The embedding term of each row, (rows,)."""
        raise NotImplementedError


class _IntegerLabels(_Objective):
    def __init__(self, parts: Parts, batch: Batch) -> None:
        super().__init__(parts, batch)
        seen = batch.for_observer
        assert batch.labels is not None
        assert seen.labels is not None
        self.labels, self.seen_labels = batch.labels, seen.labels
        self.seen_weights = seen.weights

    def read(self, z1: Tensor, z2: Tensor | None) -> tuple[Reading, Reading | None]:
        if z2 is None:
            return _read(z1, self.labels, self.batch), None
        if self.batch.observed is not None:
            return _read(z1, self.labels, self.batch), _read(z2, self.seen_labels, self.batch.observed)
        # one operation for both layers in place of two: with few labels, starting it is what costs
        both = _read(torch.stack([z1, z2]), self.labels.expand(2, -1), self.batch)
        first, second = zip(*(value.unbind() for value in both), strict=True)
        return Reading(*first), Reading(*second)

    def predict(self, first: Reading) -> PredictorRows:
        q = self.soft_targets().to(first.log_p.dtype)
        own_mass = q.gather(-1, self.labels.unsqueeze(-1)).squeeze(-1) if self.objective.mass_floor > 0 else None
        return self.predictor_rows(first.own_loss, -(q * first.log_p).sum(-1), own_mass)

    def soft_targets(self) -> Tensor:
        """(rows, labels)."""
        with torch.no_grad():
            return self.embedding.probabilities(self.labels)

    def count_correct(self, first: Reading) -> Tensor:
        return first.right.sum()

    def weighted_sums(self, predicted: list[Tensor], observed: list[Tensor]) -> Tensor:
        if self.batch.observed is None or not observed:
            return torch.stack(predicted + observed) @ self.batch.weights
        return torch.cat([torch.stack(predicted) @ self.batch.weights, torch.stack(observed) @ self.seen_weights])

    def weighted_rows(self, values: Tensor) -> Tensor:
        return self.batch.weights * values

    def learn(self, teacher: Reading) -> Tensor:
        labels, sums, masses = self.seen_sums(teacher)
        self.embedding.begin(self.valid_rows)
        term = self.embedding.learn_from(labels, sums, masses)
        self.embedding.finish()
        return term

    def seen_sums(self, teacher: Reading) -> tuple[Tensor | None, Tensor, Tensor]:
        """What the embedding learns from: labels, their summed z2'' and the weights in it."""
        with torch.no_grad():
            groups = group_by_label(self.seen_labels, teacher.logits.shape[-1])
            sums, masses = groups.sums(softened(teacher.logits, self.objective.tau), self.gate(teacher))
        return groups.labels, sums, masses

    def embedding_rows(self, teacher: Reading) -> Tensor:
        log_e = self.embedding.trained_log_rows(self.seen_labels)
        if log_e is None:
            return torch.zeros_like(self.seen_weights)
        return self.gate(teacher) * -(softened(teacher.logits, self.objective.tau) * log_e).sum(-1)


class _Again(_IntegerLabels):
    """A call that was answered already, to be differentiated: nothing learns from it a second time."""

    def __init__(self, parts: Parts, batch: Batch, q: Tensor, log_rows: Tensor | None) -> None:
        super().__init__(parts, batch)
        self.q, self.log_rows = q, log_rows

    def soft_targets(self) -> Tensor:
        return self.q

    def learn(self, teacher: Reading) -> Tensor:
        _, sums, _ = self.seen_sums(teacher)
        return sums.new_zeros(()) if self.log_rows is None else -(sums * self.log_rows).sum()


class _SoftTargets(_Objective):
    """Every row has each of k labels with some weight."""

    def __init__(self, parts: Parts, batch: Batch) -> None:
        super().__init__(parts, batch)
        weights, unweighted = batch.soft_targets, batch.unweighted_targets
        assert weights is not None
        assert unweighted is not None
        labels, valid = torch.arange(weights.shape[1], device=weights.device), unweighted > 0
        top = batch.top_labels
        if len(labels) > ALL_SOFT_LABELS:
            labels = labels[valid.any(0)]
            weights, valid, top = weights[:, labels], valid[:, labels], top[:, labels]
        self.labels = self.seen_labels = labels
        self.seen_weights, self.valid, self.top = weights, valid, top

    def read(self, z1: Tensor, z2: Tensor | None) -> tuple[Reading, Reading | None]:
        return self._read(z1), None if z2 is None else self._read(z2)

    def _read(self, logits: Tensor) -> Reading:
        logits = self.batch.masked(logits)
        log_p = F.log_softmax(widened(logits), dim=-1)
        right = largest_at(logits, self.labels.expand(len(logits), -1)) & self.valid
        return Reading(logits, log_p, -log_p[:, self.labels], right)

    def counted(self, right: Tensor) -> Tensor:
        """Those of a row's top label: in a smoothed target every label has some mass."""
        return right & self.top

    def predict(self, first: Reading) -> PredictorRows:
        with torch.no_grad():
            q = self.embedding.probabilities(self.labels).to(first.log_p.dtype)  # (k, labels)
        own_mass = q.gather(-1, self.labels.unsqueeze(-1)).squeeze(-1) if self.objective.mass_floor > 0 else None
        return self.predictor_rows(first.own_loss, -first.log_p @ q.T, own_mass)

    def count_correct(self, first: Reading) -> Tensor:
        return count_correct(first.logits, self.batch)

    def weighted_sums(self, predicted: list[Tensor], observed: list[Tensor]) -> Tensor:
        return torch.stack([(self.seen_weights * column).sum() for column in predicted + observed])

    def weighted_rows(self, values: Tensor) -> Tensor:
        return (self.seen_weights * values).sum(-1)

    def learn(self, teacher: Reading) -> Tensor:
        with torch.no_grad():
            gate = self.gate(teacher)
            sums = gate.T @ softened(teacher.logits, self.objective.tau)
            self.embedding.begin(self.valid_rows)
        term = self.embedding.learn_from(self.labels, sums, gate.sum(0))
        self.embedding.finish()
        return term

    def embedding_rows(self, teacher: Reading) -> Tensor:
        log_e = self.embedding.trained_log_rows(self.labels)
        if log_e is None:
            return torch.zeros_like(self.batch.weights)
        return (self.gate(teacher) * -(softened(teacher.logits, self.objective.tau) @ log_e.T)).sum(-1)


def _read(logits: Tensor, labels: Tensor, batch: Batch) -> Reading:
    """Logits (..., rows, labels) at the labels (..., rows)."""
    own, logits = labels.unsqueeze(-1), batch.masked(logits)
    log_p = F.log_softmax(widened(logits), dim=-1)
    right = largest_at(logits, own).squeeze(-1) & batch.valid
    return Reading(logits, log_p, -log_p.gather(-1, own).squeeze(-1), right)
