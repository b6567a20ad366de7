"""The objective for few logits, with its gradients in closed form.

With few labels, starting operations is what costs, and autograd's own backward pass starts most of them. The identities
are those of `labelemb.losses.chunked`, here over (rows, labels) tensors of both layers at once. One gradient of the
loss is in closed form: for gradients of single terms and gradients of gradients the backward pass computes the
objective again, in plain autograd.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from labelemb.embeddings.base import LabelEmbedding
from labelemb.losses.autograd import objective_again
from labelemb.losses.batch import Batch
from labelemb.losses.groups import LabelGroups, group_by_label
from labelemb.losses.parts import Parts, apply_linear, without_autocast
from labelemb.losses.result import LossResult, LossTerms, RightLabels
from labelemb.losses.terms import cap_of, cap_slope, target_shares, training_terms
from labelemb.support.tensors import can_look_at, is_transformed, precision_to_keep, widened


def has_closed_form(parts: Parts, batch: Batch) -> bool:
    """Whether `closed_form_loss` can do it: integer labels, and an observer that sees every row."""
    if batch.labels is None or batch.reduction == "none" or batch.observed is not None or parts.observer is None:
        return False
    embedding = parts.embedding
    if embedding is None or torch.compiler.is_compiling() or is_transformed():
        return False
    return not embedding.trained_by_gradient or type(embedding).learn_from is LabelEmbedding.learn_from


def closed_form_loss(parts: Parts, batch: Batch) -> LossResult:
    """The objective of a batch; equals `autograd_loss`."""
    observer, embedding, labels = parts.observer, parts.embedding, batch.labels
    assert observer is not None
    assert embedding is not None
    assert labels is not None
    z1, z2 = apply_linear(parts.predictor, batch.hidden), apply_linear(observer, batch.observer_input)
    with without_autocast(z1.device.type):
        groups = group_by_label(labels, z1.shape[1])
        log_rows = embedding.trained_log_rows(groups.labels)  # (slots, labels)
        work = _Pass(parts, batch, groups, torch.is_grad_enabled())
        loss, terms = _ClosedForm.apply(work, z1, z2, log_rows)
    correct, observer_correct = work.right.sum(1).unbind()
    right = RightLabels(labels, work.right[1].long())
    return LossResult(
        loss, LossTerms(*terms.unbind()), batch.rowwise(z1), correct, observer_correct, work.valid_rows, right
    )


class _Reading(NamedTuple):
    """What both layers, first the predictor, say about their rows."""

    shifted: Tensor  # (2, rows, labels): logits minus their maximum
    p: Tensor  # (2, rows, labels)
    log_sum: Tensor  # (2, rows): log-sum-exp of `shifted`
    own_log_p: Tensor  # (2, rows)


class _Pass:
    """One pass over a batch."""

    right: Tensor  # (2, rows), False where not valid
    q: Tensor  # (rows, labels), the soft targets

    def __init__(self, parts: Parts, batch: Batch, groups: LabelGroups, wants_gradients: bool) -> None:
        assert parts.embedding is not None
        assert batch.labels is not None
        self.parts, self.batch, self.groups, self.wants_gradients = parts, batch, groups, wants_gradients
        self.embedding, self.objective = parts.embedding, parts.objective
        self.own = batch.labels.unsqueeze(1)  # (rows, 1)
        self.floor = self.objective.mass_floor > 0
        self.valid_rows = batch.valid_rows

    def run(self, z1: Tensor, z2: Tensor, log_rows: Tensor | None) -> tuple[Tensor, Tensor, list[Tensor | None]]:
        """The loss, its five terms (5,) and the gradients on the inputs."""
        batch, objective = self.batch, self.objective
        reading = self._read(batch.masked(widened(torch.stack([z1, z2]))))
        self.q = self._soft_targets(log_rows).to(reading.p.dtype)
        soft = reading.log_sum[0] - (self.q * reading.shifted[0]).sum(1)
        own_mass = self.q.gather(1, self.own).squeeze(1) if self.floor else soft
        shares = target_shares(own_mass, objective, batch.progress, batch.soft_active)
        own_p = reading.own_log_p[1].exp()
        hard, soft, observer, cap, supervision = self._sums(reading.own_log_p, soft, own_p, shares)
        embedding, on_log_rows = self._learn(reading.shifted[1], log_rows)
        terms = LossTerms(hard, soft, observer, cap, embedding)
        gradients: list[Tensor | None] = []
        if self.wants_gradients:
            on_logits = self._on_logits(reading.p, own_p, shares).to(precision_to_keep(z1.dtype))
            gradients = [on_logits[0], on_logits[1], on_log_rows]
        return supervision + training_terms(terms, objective), torch.stack(terms), gradients

    def _read(self, logits: Tensor) -> _Reading:
        # by hand, because torch's softmax wakes all threads also for few numbers
        shifted = logits - logits.amax(-1, keepdim=True)
        p = shifted.exp()
        sums = p.sum(-1, keepdim=True)
        own = shifted.gather(2, self.own.expand(2, -1, -1)).squeeze(2)  # (2, rows)
        self.right = own == 0
        if not self.batch.all_valid:
            self.right &= self.batch.valid
        log_sum = sums.log().squeeze(2)
        return _Reading(shifted, p.div_(sums), log_sum, own - log_sum)

    def _soft_targets(self, log_rows: Tensor | None) -> Tensor:
        """(rows, labels)."""
        if log_rows is None or type(self.embedding).probabilities is not LabelEmbedding.probabilities:
            return self.embedding.probabilities(self.own.squeeze(1))
        return F.embedding(self.groups.place, log_rows.exp())

    def _sums(
        self, own_log_p: Tensor, soft: Tensor, own_p: Tensor, shares: tuple[Tensor | float, Tensor | float]
    ) -> tuple[Tensor, ...]:
        """Hard, soft, observer and cap term, and hard and soft term by their shares."""
        batch, objective = self.batch, self.objective
        if batch.soft_active is not True:
            soft = soft * batch.soft_active
        rows = [soft, cap_of(own_p, objective)]
        if self.floor:
            rows.append(shares[1] * soft - shares[0] * own_log_p[0])
        columns = torch.cat([-own_log_p, torch.stack(rows)])  # (terms, rows)
        sums = (columns if batch.unweighted else columns * batch.weights).sum(1)
        hard, observer, mean_soft, cap, *mixed = (sums / batch.divisor).unbind()
        if objective.cap_reduction == "sum":
            cap = sums[3]
        return hard, mean_soft, observer, cap, mixed[0] if mixed else shares[0] * hard + shares[1] * mean_soft

    def _learn(self, shifted: Tensor, log_rows: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Let the embedding learn from the observer's logits: its term, and the gradient on the rows it trains."""
        batch, objective = self.batch, self.objective
        if not self.embedding.learns:
            return batch.divisor.new_zeros(()), None
        gate = self.right[1] if objective.correct_only else shifted.amax(1) == 0  # NaN in a row that is not finite
        weights = gate * batch.weights
        seen = (shifted / objective.tau).exp_()
        seen = seen.div_(seen.sum(1, keepdim=True)).nan_to_num_(0.0)
        sums, masses = self.groups.sums(seen, weights)
        divisor = batch.divisor
        if objective.embedding_reduction == "correct":
            divisor = (self.right[1] * batch.weights).sum().clamp_min(1)
        self.embedding.begin(self.valid_rows)
        if log_rows is None:
            term = self.embedding.learn_from(self.groups.labels, sums, masses)
        else:
            sums = sums.div_(-divisor)  # the gradient of the term on log_rows
            term = torch.dot(sums.view(-1), log_rows.view(-1).to(sums.dtype))
        self.embedding.finish()
        return term, None if log_rows is None else sums.to(log_rows.dtype)

    def _on_logits(self, p: Tensor, own_p: Tensor, shares: tuple[Tensor | float, Tensor | float]) -> Tensor:
        """(2, rows, labels), written to `p`: a row's weight times (softmax - target)."""
        batch, objective = self.batch, self.objective
        onehot = torch.zeros_like(self.q).scatter_(1, self.own, 1.0)
        first, second = p.unbind()
        second.sub_(onehot)
        if self.floor:
            assert isinstance(shares[1], Tensor)
            first.sub_(onehot.lerp_(self.q, shares[1].unsqueeze(1)))  # the shares sum to 1
        else:
            hard_share, soft_share = (float(share) if not isinstance(share, Tensor) else share for share in shares)
            first.mul_(hard_share + soft_share).sub_(onehot * hard_share).sub_(self.q * soft_share)
        weights = batch.weights / batch.divisor
        observer_weights = weights
        if objective.cap_weight > 0:
            cap_weights = weights if objective.cap_reduction == "mean" else batch.weights
            observer_weights = weights.sub(
                cap_slope(own_p, objective) * own_p * cap_weights, alpha=objective.cap_weight
            )
        return p.mul_(torch.stack([weights, observer_weights]).unsqueeze(2))

    def again(
        self, inputs: tuple[Tensor | None, ...], on_loss: Tensor | None, on_terms: Tensor | None
    ) -> list[Tensor | None]:
        """The gradients on the inputs by autograd, to differentiate further."""
        z1, z2, log_rows = inputs
        assert z1 is not None
        assert z2 is not None
        with torch.enable_grad(), without_autocast(z1.device.type):
            loss, terms = objective_again(self.parts, self.batch, z1, z2, (self.q, log_rows))
            pairs = [(loss, on_loss), (torch.stack(terms), on_terms)]
        used = [(output, given) for output, given in pairs if given is not None]
        wanted = [value for value in inputs if value is not None and value.requires_grad]
        found = iter(
            torch.autograd.grad(
                [output for output, _ in used],
                wanted,
                [given for _, given in used],
                create_graph=torch.is_grad_enabled(),
                allow_unused=True,
            )
        )
        return [next(found) if value is not None and value.requires_grad else None for value in inputs]


class _ClosedForm(torch.autograd.Function):
    """Loss and terms of a pass, whose gradients of the loss the pass has found."""

    @staticmethod
    def forward(ctx: Any, work: _Pass, z1: Tensor, z2: Tensor, log_rows: Tensor | None) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(z1, z2, log_rows)
        loss, terms, ctx.gradients = work.run(z1, z2, log_rows)
        ctx.work = work
        return loss, terms

    @staticmethod
    def backward(ctx: Any, on_loss: Tensor | None, on_terms: Tensor | None) -> tuple[Tensor | None, ...]:
        if on_terms is not None or torch.is_grad_enabled():
            return None, *ctx.work.again(ctx.saved_tensors, on_loss, on_terms)
        found: list[Tensor | None] = ctx.gradients
        if on_loss is not None and (not can_look_at(on_loss) or on_loss.item() != 1):
            found = [None if gradient is None else gradient * on_loss.to(gradient.dtype) for gradient in found]
        return None, *(
            None if gradient is None else gradient.to(value.dtype)
            for gradient, value in zip(found, ctx.saved_tensors, strict=True)
        )
