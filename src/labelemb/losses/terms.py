"""The five terms of the objective of the label embedding network.

A network's hidden state h is read by two linear layers, the predictor (z1) and, behind a stop-gradient, the observer
(z2); e is the row of the true label y in the label embedding. With x' = softmax(x), z2'' = softmax(z2 / tau) and sg()
the stop-gradient, the objective has five terms (Sun et al. 2017, the summary equation of section 2.1):

    hard       H(y, z1')                          trains the body and the predictor
    soft       H(sg(e'), z1')                     trains the body and the predictor
    observer   H(y, z2')                          trains the observer
    cap        max(0, (z2')_y - alpha) ** p       trains the observer
    embedding  H(sg(z2''), e')                    trains the embedding, where the observer is right

`label_embedding_loss` is the whole of it in plain autograd. Functions here work on rows of logits; heads bring them.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from labelemb.losses.objective import Objective


class LossTerms(NamedTuple):
    """The five terms, unweighted: reduced to a number each, or one value per row with reduction="none"."""

    hard: Tensor
    soft: Tensor
    observer: Tensor
    cap: Tensor
    embedding: Tensor

    def as_floats(self) -> dict[str, float]:
        return {name: float(value.detach()) for name, value in zip(self._fields, self, strict=True)}

    def __repr__(self) -> str:
        shown = (f"{name}={brief(value)}" for name, value in zip(self._fields, self, strict=True))
        return f"LossTerms({', '.join(shown)})"


def brief(value: Tensor) -> str:
    """A tensor in a line: its number, or the shape of many."""
    return f"{value.item():.4f}" if value.ndim == 0 else f"per row {tuple(value.shape)}"


class RowTerms(NamedTuple):
    """The terms of each row, each multiplied by the row's weight; all (rows,)."""

    hard: Tensor
    soft: Tensor
    observer: Tensor
    cap: Tensor
    embedding: Tensor
    supervision: Tensor
    """hard and soft mixed by their weights: what trains the body."""
    right: Tensor
    """The row's weight where the observer was right, 0 elsewhere."""

    def terms(self) -> LossTerms:
        return LossTerms(self.hard, self.soft, self.observer, self.cap, self.embedding)


def label_embedding_loss(
    z1: Tensor,
    z2: Tensor,
    e: Tensor,
    targets: Tensor,
    objective: Objective = Objective(),  # noqa: B008  frozen
    *,
    progress: float | None = None,
) -> tuple[Tensor, LossTerms]:
    """The five terms of (rows, labels) logits, averaged over the rows, in plain autograd.

    z1 and z2 are the predictor's and the observer's logits, e the embedding's rows of the targets (rows, labels),
    targets integer labels (rows,). The caller computes z2 from a detached hidden state. `progress` in [0, 1] is needed
    with a mass floor.

    >>> z1, z2, e = torch.zeros(2, 3), torch.zeros(2, 3), torch.eye(3)[:2]
    >>> loss, terms = label_embedding_loss(z1, z2, e, torch.tensor([0, 1]))
    >>> f"{loss.item():.4f} = 0.5 * {terms.hard.item():.4f} + 0.5 * {terms.soft.item():.4f} + ..."
    '3.4153 = 0.5 * 1.0986 + 0.5 * 1.0986 + ...'
    """
    if objective.mass_floor > 0 and progress is None:
        raise ValueError("a mass floor rises with the training: pass progress= in [0, 1]")
    weights = torch.ones(len(targets), dtype=widened(z1).dtype, device=z1.device)
    rows = row_terms(z1, z2, e, targets, weights, objective, progress=progress)
    return reduce_rows(rows, weights.sum().clamp_min(1), objective)


def row_terms(
    z1: Tensor,
    z2: Tensor | None,
    e: Tensor | None,
    labels: Tensor,
    weights: Tensor,
    objective: Objective,
    *,
    q: Tensor | None = None,
    teacher: Tensor | None = None,
    soft_active: bool | Tensor = True,
    progress: float | None = None,
) -> RowTerms:
    """The terms of each row for integer labels (rows,), times the row's weight.

    e and q are (rows, labels): the logits that the embedding term trains (None: there is no such term), and the soft
    target if it is not softmax(e). Without z2 there are no observer and cap terms. `teacher` holds the logits that the
    embedding learns from if they are not z2.
    """
    own = labels.unsqueeze(-1)  # (rows, 1)
    log_z1 = F.log_softmax(widened(z1), dim=-1)
    q = soft_target(e, q)
    log_p = None if z2 is None else F.log_softmax(widened(z2), dim=-1).gather(-1, own).squeeze(-1)
    teacher = z2 if teacher is None else teacher
    embedding, right = None, None
    if teacher is not None:
        teacher = widened(teacher.detach())
        right = observed_right(teacher, labels=own).squeeze(-1)
        if e is not None:
            embedding = -(softened(teacher, objective.tau) * F.log_softmax(widened(e), dim=-1)).sum(-1)
    return weigh(
        -log_z1.gather(-1, own).squeeze(-1),
        -(q * log_z1).sum(-1),
        log_p,
        embedding,
        right,
        q.gather(-1, own).squeeze(-1),
        weights,
        objective,
        soft_active,
        progress,
    )


def soft_row_terms(
    z1: Tensor,
    z2: Tensor | None,
    e: Tensor | None,
    labels: Tensor,
    weights: Tensor,
    objective: Objective,
    *,
    q: Tensor | None = None,
    teacher: Tensor | None = None,
    soft_active: bool | Tensor = True,
    progress: float | None = None,
) -> RowTerms:
    """The terms of each row for soft targets: the weighted sum of the terms with each label as the target.

    `labels` (k,) are the labels that have any mass, weights (rows, k) their mass times the row's and the label's
    weight; e and q are (k, labels). Every quantity of a row and a possible target is one entry of a (rows, k) matrix.
    """
    log_z1 = F.log_softmax(widened(z1), dim=-1)
    q = soft_target(e, q)
    log_p = None if z2 is None else F.log_softmax(widened(z2), dim=-1)[:, labels]
    teacher = z2 if teacher is None else teacher
    embedding, right = None, None
    if teacher is not None:
        teacher = widened(teacher.detach())
        right = observed_right(teacher, labels=labels.expand(len(teacher), -1))
        if e is not None:
            embedding = -softened(teacher, objective.tau) @ F.log_softmax(widened(e), dim=-1).T
    pairs = weigh(
        -log_z1[:, labels],
        -log_z1 @ q.T,
        log_p,
        embedding,
        right,
        q.gather(-1, labels.unsqueeze(-1)).squeeze(-1),
        weights,
        objective,
        soft_active,
        progress,
    )
    return RowTerms(*(pair.sum(-1) for pair in pairs))


def weigh(
    hard: Tensor,
    soft: Tensor,
    log_p: Tensor | None,
    embedding: Tensor | None,
    right: Tensor | None,
    own_mass: Tensor,
    weights: Tensor,
    objective: Objective,
    soft_active: bool | Tensor,
    progress: float | None,
) -> RowTerms:
    """Gate the parts of each row (or pair of row and label) and multiply them by its weight; None: no such part."""
    none = torch.zeros_like(weights)
    soft = soft * soft_active
    hard_share, soft_share = target_shares(own_mass, objective, soft_active, progress)
    right_weight = none if right is None else weights * right
    if embedding is not None:
        embedding = (right_weight if objective.correct_only else weights) * embedding
    return RowTerms(
        weights * hard,
        weights * soft,
        none if log_p is None else weights * -log_p,
        none if log_p is None else weights * cap_of(log_p.exp(), objective),
        none if embedding is None else embedding,
        weights * (hard_share * hard + soft_share * soft),
        right_weight,
    )


def soft_target(e: Tensor | None, q: Tensor | None) -> Tensor:
    if q is not None:
        return widened(q.detach())
    assert e is not None
    return F.softmax(widened(e.detach()), dim=-1)


def softened(teacher: Tensor, tau: float) -> Tensor:
    """z2'': what the embedding learns; zeros for a row that is not finite, from which nothing can be learned."""
    finite = teacher.amax(-1, keepdim=True).isfinite()
    return torch.where(finite, F.softmax(teacher / tau, dim=-1), 0.0)


def observed_right(logits: Tensor, labels: Tensor) -> Tensor:
    """Where a label has its row's largest logit, ties included, so that no order of the labels matters; (rows, k)."""
    best = logits.amax(-1, keepdim=True)
    return (logits.gather(-1, labels) == best) & best.isfinite()


def target_shares(
    own_mass: Tensor, objective: Objective, soft_active: bool | Tensor, progress: float | None
) -> tuple[Tensor | float, Tensor | float]:
    """How much the hard and the soft term of a label weigh, given the mass its soft target puts on itself.

    With a mass floor c = mass_floor * progress, the soft share is the largest up to soft_weight that leaves the label
    at least c of the mixed target, and the hard term gets the rest.
    """
    if objective.mass_floor == 0:
        return objective.hard_weight, objective.soft_weight
    assert progress is not None  # heads and label_embedding_loss have checked it
    room = 1 - objective.mass_floor * progress
    off_label = (1 - own_mass).clamp_min(torch.finfo(own_mass.dtype).tiny)
    share = (room / off_label).clamp_max(objective.soft_weight) * soft_active
    return 1 - share, share


def cap_of(probability: Tensor, objective: Objective) -> Tensor:
    """The cap on the observer's probability of the true label: one-sided hinge, or two-sided distance."""
    excess = probability - objective.alpha
    excess = excess.abs() if objective.two_sided_cap else excess.clamp_min(0)
    return excess if objective.p == 1 else excess**2


def cap_slope(probability: Tensor, objective: Objective) -> Tensor:
    """The derivative of the cap."""
    excess = probability - objective.alpha
    side = excess.sign() if objective.two_sided_cap else (excess > 0).to(excess.dtype)
    return side if objective.p == 1 else 2 * side * excess.abs()


def reduce_rows(rows: RowTerms, total: Tensor, objective: Objective) -> tuple[Tensor, LossTerms]:
    """Rows to the loss and its terms; `total` is the sum of the row weights, or what stands in for it."""
    cap_total = total if objective.cap_reduction == "mean" else torch.ones_like(total)
    embedding_total = total if objective.embedding_reduction == "all" else rows.right.sum().clamp_min(1)
    terms = LossTerms(
        rows.hard.sum() / total,
        rows.soft.sum() / total,
        rows.observer.sum() / total,
        rows.cap.sum() / cap_total,
        rows.embedding.sum() / embedding_total,
    )
    return rows.supervision.sum() / total + training_terms(terms, objective), terms


def training_terms(terms: LossTerms, objective: Objective) -> Tensor:
    """The part of the loss that trains the observer and the embedding."""
    return terms.observer + objective.cap_weight * terms.cap + terms.embedding


def widened(x: Tensor) -> Tensor:
    """float32 or better: half precision is too coarse for log-probabilities."""
    return x if x.dtype in (torch.float32, torch.float64) else x.float()
