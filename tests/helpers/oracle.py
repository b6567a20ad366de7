"""The objective written down as naively as possible: one row and one label at a time, in float64.

It follows the equations of the method and shares no code with the library, so that the two can disagree.
`detach` stands exactly where an equation has sg(); autograd does the rest, and finite differences check it.

For a row with logits z1, z2, the label y and that label's embedding e (x' = softmax(x), z2'' = softmax(z2 / tau)):

    hard      H(y, z1')                 soft       H(sg(e'), z1')
    observer  H(y, z2')                 cap        max(0, (z2')_y - alpha) ** cap_power, or |...| ** cap_power
    embedding H(sg(z2''), e') where z2_y is the row's maximum

A soft target is the target-weighted mean of these over the labels, so a pair (row, label) is the unit here and weighs
sample_weight[row] * target[row, label] * weight[label].
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

TERMS = ("hard", "soft", "observer", "cap", "embedding")


@dataclass
class Result:
    loss: Tensor
    hard: Tensor
    soft: Tensor
    observer: Tensor
    cap: Tensor
    embedding: Tensor


def softmax(logits: Tensor) -> Tensor:
    powers = torch.exp(logits - logits.max().detach())
    return powers / powers.sum()


def entropy_between(wanted: Tensor, given: Tensor) -> Tensor:
    """H(p, q) = -sum_i p_i log q_i, where entries with p_i = 0 count nothing."""
    total = torch.zeros((), dtype=torch.float64)
    for p, q in zip(wanted, given, strict=True):
        if p != 0:
            total = total - p * torch.log(q)
    return total


def pairs(targets: Tensor, num_labels: int, ignore_index: int) -> list[list[tuple[int, float]]]:
    """For each row the labels with their share of the target; an ignored row has none."""
    if targets.is_floating_point():
        return [[(c, float(share)) for c, share in enumerate(row) if share != 0] for row in targets]
    return [[] if int(label) == ignore_index else [(int(label), 1.0)] for label in targets]


def soft_share(own_mass: float, objective: Any, progress: float) -> float:
    """a_y: the share of the soft target that leaves the true label at least mass_floor * progress."""
    if own_mass >= 1.0:
        return objective.soft_weight
    return min(objective.soft_weight, (1 - objective.mass_floor * progress) / (1 - own_mass))


def objective_value(
    z1: Tensor,
    z2: Tensor | None,
    table: Tensor,
    targets: Tensor,
    objective: Any,
    *,
    learned: bool = True,
    weight: Tensor | None = None,
    sample_weight: Tensor | None = None,
    ignore_index: int = -100,
    num_items: float | None = None,
    soft_active: bool = True,
    progress: float = 1.0,
    reduction: str = "mean",
    stands_for: Tensor | None = None,
) -> Result:
    """Loss and terms of a batch.

    `table` (labels, labels) holds logits if `learned`, else probabilities that stay fixed.
    `z2` is None where no observer exists. The caller stops the gradient between h and z2.
    `stands_for` (rows,) says how many rows an observed one stands for, 0 for one that is not observed.
    """
    zero = torch.zeros((), dtype=torch.float64)
    per_row: list[dict[str, Tensor]] = []  # weighted, not yet divided
    fit_per_row: list[Tensor] = []  # what hard and soft give to the loss
    weight_sum, right_count = 0.0, 0.0

    for i, row_pairs in enumerate(pairs(targets, table.shape[0], ignore_index)):
        row = dict.fromkeys(TERMS, zero)
        fit = zero
        for y, share in row_pairs:
            w = share
            if weight is not None:
                w *= float(weight[y])
            if sample_weight is not None:
                w *= float(sample_weight[i])
            weight_sum += w

            predicted = softmax(z1[i])
            similar = softmax(table[y]) if learned else table[y]
            hard = -torch.log(predicted[y])
            soft = entropy_between(similar.detach(), predicted) if soft_active else zero
            if objective.mass_floor > 0:
                a = soft_share(float(similar[y].detach()), objective, progress) if soft_active else 0.0
                fit = fit + w * ((1 - a) * hard + a * soft)
            else:
                hard_weight = 0.5 if objective.hard_weight is None else objective.hard_weight
                fit = fit + w * (hard_weight * hard + objective.soft_weight * soft)
            row["hard"] = row["hard"] + w * hard
            row["soft"] = row["soft"] + w * soft

            if z2 is None or (stands_for is not None and stands_for[i] == 0):
                continue
            w *= 1.0 if stands_for is None else float(stands_for[i])
            observed = softmax(z2[i])
            row["observer"] = row["observer"] + w * -torch.log(observed[y])
            excess = observed[y] - objective.alpha
            excess = torch.abs(excess) if objective.two_sided_cap else torch.clamp(excess, min=0.0)
            row["cap"] = row["cap"] + w * excess**objective.cap_power
            right = bool(z2[i][y] == z2[i].max())
            right_count += w if right else 0.0
            if learned and (right or not objective.correct_only):
                softened = softmax(z2[i] / objective.tau)
                row["embedding"] = row["embedding"] + w * entropy_between(softened.detach(), similar)
        per_row.append(row)
        fit_per_row.append(fit)

    if reduction == "none":
        columns = {name: torch.stack([row[name] for row in per_row]) for name in TERMS}
        fit_total = torch.stack(fit_per_row)
    else:
        divisor = weight_sum if num_items is None else num_items
        divisor = divisor if weight_sum > 0 else 1.0
        columns = {name: sum((row[name] for row in per_row), zero) / divisor for name in TERMS}
        fit_total = sum(fit_per_row, zero) / divisor
        if objective.cap_reduction == "sum":
            columns["cap"] = columns["cap"] * divisor
        if objective.embedding_reduction == "correct":
            columns["embedding"] = columns["embedding"] * divisor / max(1.0, right_count)
    loss = fit_total + columns["observer"] + objective.cap_weight * columns["cap"] + columns["embedding"]
    return Result(loss=loss, **columns)


def running_update(
    table: Tensor,
    mass: Tensor,
    z2: Tensor,
    targets: Tensor,
    objective: Any,
    *,
    rows_per_epoch: float,
    weight: Tensor | None = None,
    sample_weight: Tensor | None = None,
    ignore_index: int = -100,
    stands_for: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The running table of probabilities and its masses after a training call that saw these rows.

    All masses decay by exp(-rows / rows_per_epoch); then each pair adds softmax(z2 / tau) with its weight.
    """
    shares = pairs(targets, table.shape[0], ignore_index)
    valid_rows = sum(1 for row in shares if row)
    mass = mass.double() * math.exp(-valid_rows / rows_per_epoch)
    totals = table.double() * mass[:, None]
    for i, row in enumerate(shares):
        for y, share in row:
            if objective.correct_only and z2[i][y] != z2[i].max():
                continue
            w = share * (1.0 if stands_for is None else float(stands_for[i]))
            if weight is not None:
                w *= float(weight[y])
            if sample_weight is not None:
                w *= float(sample_weight[i])
            totals[y] = totals[y] + w * softmax(z2[i].detach().double() / objective.tau)
            mass[y] = mass[y] + w
    updated = table.double().clone()
    for y in range(len(mass)):
        if mass[y] > 0:
            updated[y] = totals[y] / mass[y]
    return updated, mass


def with_prior(table: Tensor, mass: Tensor, prior_rows: float) -> Tensor:
    """Laplace's rule: `prior_rows` imagined rows that give every label the same probability join the M_y seen ones."""
    rows = []
    for mean, seen in zip(table.double(), mass.double(), strict=True):
        imagined = torch.full_like(mean, 1 / len(mean))
        rows.append(mean if prior_rows == 0 else (seen * mean + prior_rows * imagined) / (seen + prior_rows))
    return torch.stack(rows)


def linear(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """One row and one output at a time: z_i = sum_j W_ij h_j + b_i."""
    rows = []
    for h in hidden:
        rows.append(torch.stack([(w * h).sum() for w in weight]))
    z = torch.stack(rows) if rows else torch.zeros(0, weight.shape[0], dtype=torch.float64)
    return z if bias is None else z + bias


def compressed_table(left: Tensor, right: Tensor, bias: Tensor | None) -> Tensor:
    """e_y = ReLU(A_y B), or ReLU(A_y B + bias), for every label y: (labels, labels)."""
    product = left @ right
    return torch.relu(product if bias is None else product + bias)
