"""The predictor's terms from any kernel that computes the hard cross entropy of each row.

Cross entropy with a target t that sums to 1 is lse(z) - t . z, and z = W h + b is linear in h, so t_y . z = h . v_y +
c_y with v_y = sum_i t_yi w_i and c_y = sum_i t_yi b_i: one vector for each distinct label. The log-sum-exp is the
kernel's loss plus the label's own logit. So no soft target ever meets the logits, and a kernel that never writes them
to memory (on a GPU: torch's chunked linear cross entropy, or cut-cross-entropy in an exact mode) trains the predictor.
The chunked implementation is the oracle for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from labelemb.embeddings.base import LabelEmbedding
from labelemb.losses.batch import Batch, zeros_where_ignored
from labelemb.losses.chunked import ChunkOptions, chunked_loss
from labelemb.losses.groups import group_by_label
from labelemb.losses.parts import LinearLayer, Parts, without_autocast
from labelemb.losses.result import LossResult
from labelemb.losses.terms import target_shares

PredictorKernel = Callable[[Tensor, Tensor, Tensor | None, Tensor], Tensor]
"""kernel(hidden, weight, bias, labels) -> loss: (rows, features), (labels, features), (labels,) or None, (rows,) -> the
cross entropy of each row, (rows,), differentiable in the first three."""


class SoftLogits(NamedTuple):
    """Of each row, (rows,)."""

    mean: Tensor
    """t . z, the soft target's mean of the row's logits."""
    own_mass: Tensor
    """What the soft target has on the row's own label."""


def kernel_loss(parts: Parts, batch: Batch, kernel: PredictorKernel, options: ChunkOptions) -> LossResult:
    """The objective of a batch with integer labels; how many rows the predictor got right is not known."""
    predictor, labels = parts.predictor, batch.labels
    assert labels is not None
    assert parts.embedding is not None
    hidden = batch.hidden if batch.all_valid else zeros_where_ignored(batch.hidden, batch.valid)
    hidden = hidden.to(predictor.weight.dtype)
    hard = kernel(hidden, predictor.weight, predictor.bias, labels).to(batch.weights.dtype)
    own = (hidden * F.embedding(labels, predictor.weight)).sum(-1)
    if predictor.bias is not None:
        own = own + predictor.bias[labels]
    targets = _soft_logits(parts.embedding, predictor, hidden, labels)
    soft = (hard + own - targets.mean) * batch.soft_active
    hard_share, soft_share = target_shares(targets.own_mass, parts.objective, batch.progress, batch.soft_active)
    with without_autocast(hidden.device.type):  # it would add the rows up in half precision
        hard_term, soft_term, supervision = (
            torch.stack([hard, soft, hard_share * hard + soft_share * soft]) @ batch.weights / batch.divisor
        ).unbind()
    others = chunked_loss(parts, batch, ChunkOptions(options.chunk_rows, predicts=False))
    terms = others.terms._replace(hard=hard_term.detach(), soft=soft_term.detach())
    return others._replace(loss=supervision + others.loss, terms=terms, correct=None)


def _soft_logits(embedding: LabelEmbedding, layer: LinearLayer, hidden: Tensor, labels: Tensor) -> SoftLogits:
    weight, bias = layer.weight, layer.bias
    distinct, place, slots = group_by_label(labels, len(weight))
    distinct = torch.arange(slots, device=labels.device) if distinct is None else distinct
    sparse = embedding.sparse_probabilities(distinct)
    if sparse is None:
        q = embedding.probabilities(distinct).detach().to(weight.dtype)  # (distinct, labels)
        vectors, own_mass = q @ weight, q.gather(1, distinct.unsqueeze(1)).squeeze(1)
        with without_autocast(hidden.device.type):  # autocast would round q a second time, and the biases
            constants = None if bias is None else q @ bias
    else:
        indices, excess, share = sparse.indices, sparse.excess.to(weight.dtype), sparse.share.to(weight.dtype)
        vectors = F.embedding_bag(indices, weight, per_sample_weights=excess, mode="sum")
        vectors = vectors + torch.outer(share, weight.sum(0))  # (distinct, features)
        own_mass = torch.where(indices == distinct.unsqueeze(1), excess, 0.0).sum(1) + share
        constants = None if bias is None else (bias[indices] * excess).sum(1) + share * bias.sum()
    mean = (hidden * vectors[place]).sum(-1)
    return SoftLogits(mean if constants is None else mean + constants[place], own_mass[place])
