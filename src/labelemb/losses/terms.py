"""The five terms of the objective of the label embedding network.

A network's hidden state h is read by two linear layers, the predictor (z1) and, behind a stop-gradient, the observer
(z2); e is the row of the true label y in the label embedding. With x' = softmax(x), z2'' = softmax(z2 / tau) and sg()
the stop-gradient, the objective has five terms (Sun et al. 2017, the summary equation of section 2.1):

    hard       H(y, z1')                                trains the body and the predictor
    soft       H(sg(e'), z1')                           trains the body and the predictor
    observer   H(y, z2')                                trains the observer
    cap        max(0, (z2')_y - alpha) ** cap_power     trains the observer
    embedding  H(sg(z2''), e')                          trains the embedding, where the observer is right

`label_embedding_loss` is the whole of it in plain autograd. Functions here work on rows of logits.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from labelemb.losses.objective import Objective, checked_objective
from labelemb.losses.result import LossTerms
from labelemb.support.arguments import out_of_range, require_floats, require_integers, require_share
from labelemb.support.tensors import can_look_at, widened


class Observation(NamedTuple):
    """The observer's terms and whether it is right; all (rows,), or (rows, labels) for soft targets."""

    loss: Tensor
    """H(y, z2')"""
    cap: Tensor
    right: Tensor
    """Whether the label has the row's largest logit. Ties count, so the order of the labels does not matter."""


def label_embedding_loss(
    z1: Tensor,
    z2: Tensor,
    e: Tensor,
    targets: Tensor,
    objective: Objective = Objective(),  # noqa: B008  frozen
    *,
    progress: float | None = None,
) -> tuple[Tensor, LossTerms]:
    """The label embedding loss and its five terms from logits, in plain autograd.

    The soft term is active from the start, because `soft_start` needs a head.

    Arguments:
        z1: (..., labels), the predictor's logits.
        z2: (..., labels), the observer's logits, computed from a detached hidden state.
        e: (..., labels), the rows of the embedding for the targets.
        targets: (...), integer labels.
        objective: the weights and options of the loss.
        progress: how far the training is, from 0 to 1, for a mass floor. None: the floor is at its end value.

    Returns:
        The loss, and the five terms without their weights, averaged over the rows as the objective says.

    >>> z1, z2, e = torch.zeros(2, 3), torch.zeros(2, 3), torch.eye(3)[:2]
    >>> loss, terms = label_embedding_loss(z1, z2, e, torch.tensor([0, 1]))
    >>> f"{loss.item():.4f} = 0.5 * {terms.hard.item():.4f} + 0.5 * {terms.soft.item():.4f} + ..."
    '3.4153 = 0.5 * 1.0986 + 0.5 * 1.0986 + ...'
    """
    objective = checked_objective(objective)
    _check_call(z1, z2, e, targets)
    if progress is not None:
        require_share("progress", progress)
    own = targets.long().unsqueeze(-1)  # (..., 1)
    log_z1 = F.log_softmax(widened(z1), dim=-1)
    q = F.softmax(widened(e.detach()), dim=-1)
    hard, soft = -log_z1.gather(-1, own).squeeze(-1), -(q * log_z1).sum(-1)
    hard_share, soft_share = target_shares(q.gather(-1, own).squeeze(-1), objective, progress)
    seen = observe(-F.log_softmax(widened(z2), dim=-1).gather(-1, own), largest_at(z2, own), objective)
    gate = seen.right.to(hard.dtype)
    embedding = -(softened(z2, objective.tau) * F.log_softmax(widened(e), dim=-1)).sum(-1, keepdim=True)
    rows = max(1, targets.numel())
    terms = LossTerms(
        hard.sum() / rows,
        soft.sum() / rows,
        seen.loss.sum() / rows,
        seen.cap.sum() / (rows if objective.cap_reduction == "mean" else 1),
        (embedding * gate if objective.correct_only else embedding).sum()
        / (rows if objective.embedding_reduction == "all" else gate.sum().clamp_min(1)),
    )
    return (hard_share * hard + soft_share * soft).sum() / rows + training_terms(terms, objective), terms


def _check_call(z1: Tensor, z2: Tensor, e: Tensor, targets: Tensor) -> None:
    for name, value in (("z1", z1), ("z2", z2), ("e", e)):
        require_floats(name, value)
    require_integers("targets", targets)
    if z1.ndim == 0 or not z1.shape == z2.shape == e.shape or z1.shape[:-1] != targets.shape:
        shapes = ", ".join(str(tuple(value.shape)) for value in (z1, z2, e, targets))
        raise ValueError(
            f"z1, z2, e and targets have shapes {shapes}, but three times (..., labels) and (...) are needed"
        )
    if can_look_at(targets) and (bad := out_of_range(targets, z1.shape[-1])) is not None:
        raise ValueError(f"a target is {bad}, but must be in [0, {z1.shape[-1]})")


def observe(loss: Tensor, right: Tensor, objective: Objective) -> Observation:
    """The observer's terms, from H(y, z2')."""
    return Observation(loss, cap_of((-loss).exp(), objective), right)


def softened(teacher: Tensor, tau: float) -> Tensor:
    """z2'' = softmax(z2 / tau), from which the embedding learns; zeros in rows that are not finite."""
    return (widened(teacher.detach()) / tau).softmax(-1).nan_to_num(0.0)


def largest_at(logits: Tensor, labels: Tensor) -> Tensor:
    """Whether labels (rows, k) have their row's largest logit, ties included; False in rows that are not finite."""
    logits = logits.detach()
    return logits.gather(-1, labels) - logits.amax(-1, keepdim=True) == 0  # inf - inf is not 0


def target_shares(
    own_mass: Tensor, objective: Objective, progress: float | Tensor | None, soft_active: bool | Tensor = True
) -> tuple[Tensor | float, Tensor | float]:
    """The weights of the hard and the soft term of a label, given its probability `own_mass` in its own soft target.

    With a mass floor c = mass_floor * progress, the soft share is the largest up to soft_weight that leaves the label
    at least c of the mixed target, and the hard share is the rest. If progress is None, c is mass_floor.
    """
    if objective.mass_floor == 0:
        hard_weight = 0.5 if objective.hard_weight is None else objective.hard_weight
        return float(hard_weight), objective.soft_weight * soft_active
    floor = objective.mass_floor * (1.0 if progress is None else progress)
    off_label = (1 - own_mass).clamp_min(torch.finfo(own_mass.dtype).tiny)
    share = ((1 - floor) / off_label).clamp_max(objective.soft_weight)
    if soft_active is not True:
        share = share * soft_active
    return 1 - share, share


def cap_of(probability: Tensor, objective: Objective) -> Tensor:
    """The cap term from the observer's probability of the true label: a one-sided hinge or a two-sided distance."""
    excess = probability - objective.alpha
    excess = excess.abs() if objective.two_sided_cap else excess.relu()
    return excess if objective.cap_power == 1 else excess**2


def cap_slope(probability: Tensor, objective: Objective) -> Tensor:
    """The derivative of the cap."""
    excess = probability - objective.alpha
    side = excess.sign() if objective.two_sided_cap else excess > 0
    return side if objective.cap_power == 1 else 2 * side * excess.abs()


def training_terms(terms: LossTerms, objective: Objective) -> Tensor:
    """The part of the loss that trains the observer and the embedding."""
    return (terms.observer + terms.embedding).add(terms.cap, alpha=objective.cap_weight)
