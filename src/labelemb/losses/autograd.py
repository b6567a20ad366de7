"""The head's loss in plain autograd over (rows, labels) tensors: readable, differentiable twice, and the oracle."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from labelemb.embeddings.running import RunningEmbedding
from labelemb.heads.base import TrainingTerms, count_correct, per_row_output
from labelemb.losses.batch import Batch
from labelemb.losses.terms import observed_right, reduce_rows, row_terms, soft_row_terms, softened, widened

if TYPE_CHECKING:
    from labelemb.heads.label_embedding import LabelEmbeddingHead

FEW_LABELS = 1024
"""Up to here soft targets use all rows of the embedding, without looking which labels have mass."""


class TargetLabels(NamedTuple):
    """Which labels a batch aims at. For soft targets every row may aim at each of k labels."""

    labels: Tensor  # (rows,), or (k,)
    weights: Tensor  # (rows,), or (rows, k)
    valid: Tensor  # (rows,), or (rows, k)


def reference_terms(
    head: LabelEmbeddingHead, batch: Batch, soft_active: bool | Tensor, progress: float | None
) -> TrainingTerms:
    z1 = head.logits(batch.hidden)
    z2 = head.observe(batch, z1)
    with torch.autocast(z1.device.type, enabled=False):
        return _terms(head, batch, z1, z2, soft_active, progress)


def _terms(
    head: LabelEmbeddingHead,
    batch: Batch,
    z1: Tensor,
    z2: Tensor | None,
    soft_active: bool | Tensor,
    progress: float | None,
) -> TrainingTerms:
    labels, weights, valid = target_labels(batch)
    z2 = None if z2 is None else batch.harmless(z2)
    e = head.embedding.rows(labels) if head.embedding.learned else None
    rows = (row_terms if batch.labels is not None else soft_row_terms)(
        batch.harmless(z1),
        z2 if head.observer is not None else None,
        e,
        labels,
        weights,
        head.objective,
        q=head.soft_target(labels, e),
        teacher=z2,
        soft_active=soft_active,
        progress=progress,
    )
    if batch.reduction == "none":
        loss, terms = per_row_output(rows, head.objective, batch)
    else:
        loss, terms = reduce_rows(rows, batch.divisor, head.objective)
    right = valid & (_right(batch, z2.detach(), labels) if z2 is not None else False)
    if head.training and isinstance(head.embedding, RunningEmbedding) and z2 is not None:
        _update_table(head, head.embedding, batch, z2.detach(), right)
    observed = None if head.observer is None else (right if right.ndim == 1 else right.any(-1)).sum()
    return TrainingTerms(loss, terms, batch.rowwise(z1), count_correct(z1, batch), observed, right)


def target_labels(batch: Batch) -> TargetLabels:
    if batch.labels is not None:
        return TargetLabels(batch.labels, batch.weights, batch.valid)
    pairs, unweighted = batch.soft_targets, batch.unweighted_targets
    assert pairs is not None
    assert unweighted is not None
    labels = torch.arange(pairs.shape[1], device=pairs.device)
    aimed_at = unweighted > 0
    if len(labels) > FEW_LABELS:
        labels = labels[aimed_at.any(0)]
        pairs, aimed_at = pairs[:, labels], aimed_at[:, labels]
    return TargetLabels(labels, pairs, aimed_at)


def _right(batch: Batch, z2: Tensor, labels: Tensor) -> Tensor:
    if batch.labels is None:
        return observed_right(z2, labels.expand(len(z2), -1))
    return observed_right(z2, labels.unsqueeze(-1)).squeeze(-1)


def _update_table(head: LabelEmbeddingHead, table: RunningEmbedding, batch: Batch, z2: Tensor, right: Tensor) -> None:
    """Average what the observer saw of each label into the running table."""
    labels, weights, _ = target_labels(batch)
    seen = softened(widened(z2), head.objective.tau)  # (rows, m)
    if head.objective.correct_only:
        weights = weights * right
    else:
        finite = seen.sum(-1) > 0
        weights = weights * (finite if batch.labels is not None else finite.unsqueeze(-1))
    if batch.labels is None:
        sums, masses = weights.T @ seen, weights.sum(0)
    else:
        if table.top_k is None:
            labels, place = torch.arange(head.num_labels, device=labels.device), labels
        else:
            labels, place = labels.unique(return_inverse=True)
        masses = weights.new_zeros(len(labels)).index_add(0, place, weights)
        sums = seen.new_zeros(len(labels), head.num_labels).index_add(0, place, weights.unsqueeze(-1) * seen)
    table.begin(batch.valid.sum())
    table.observe(labels, sums, masses)
    table.finish()
