"""The predictor's part of a chunked pass: hard and soft term, and their gradients."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from labelemb.embeddings.base import LabelEmbedding
from labelemb.labelspace.rows import SparseRows
from labelemb.losses.batch import Batch
from labelemb.losses.chunked.labels import LabelAxis
from labelemb.losses.chunked.layer import LayerPass, Workspace
from labelemb.losses.chunked.rows import (
    LONG_ROW,
    Group,
    Rows,
    chunks,
    one_table,
    sorted_groups,
    usable_rows,
)
from labelemb.losses.chunked.targets import ChunkTargets, LoopTargets, NoTargets, RowTargets, SparseTargets
from labelemb.losses.objective import Objective
from labelemb.losses.terms import target_shares
from labelemb.support.tensors import can_look_at


class PredictorSums(NamedTuple):
    """Sums over the valid rows, all times the row's weight except `correct`."""

    hard: Tensor
    soft: Tensor
    mixed: Tensor
    """hard and soft by their shares of the target."""
    correct: Tensor


class ChunkStatistics(NamedTuple):
    """What a chunk adds to the sums; all (chunk,)."""

    hard: Tensor
    soft: Tensor
    """To be added up over the processes that hold labels."""
    hard_share: Tensor
    soft_share: Tensor
    right: Tensor


class Chunk(NamedTuple):
    """A chunk of rows and its soft targets."""

    part: slice
    targets: ChunkTargets
    own_mass: Tensor | None
    """(chunk,), what each soft target has on its own label; needed with a mass floor."""


@dataclass
class PredictorPass:
    """All rows through the predictor. `run` gives the sums and fills the gradients of `layer` and of the rows."""

    layer: LayerPass
    embedding: LabelEmbedding | None
    objective: Objective
    axis: LabelAxis
    chunk_rows: int
    workspace: Workspace

    @property
    def floor(self) -> bool:
        return self.objective.mass_floor > 0

    def run(self, batch: Batch, on_hidden: Tensor | None) -> PredictorSums:
        """`on_hidden` (rows, features), zeros, receives the gradient of the hidden states."""
        self.batch, self.on_hidden = batch, on_hidden
        self.divisor = batch.divisor
        rows = usable_rows(batch, batch.hidden)
        sparse = None if self.embedding is None else self.embedding.sparse_probabilities(rows.labels)
        if sparse is not None:
            sparse = SparseRows(sparse.indices, sparse.excess.to(self.layer.dtype), sparse.share.to(self.layer.dtype))
        elif self._groups(rows):
            rows = rows.sorted()
        hidden = rows.hidden.to(self.layer.dtype)
        if not len(rows):
            return nothing_predicted(self.divisor)
        found = [self._chunk(rows, hidden, *chunk) for chunk in self._chunks(rows, sparse)]
        joined = found[0] if len(found) == 1 else ChunkStatistics(*map(torch.cat, zip(*found, strict=True)))
        if sparse is not None:
            even = self._add_even_shares(rows, hidden, sparse, joined.soft_share)
            joined = joined._replace(soft=joined.soft - even)
        return self._sums(rows, joined)

    def _groups(self, rows: Rows) -> bool:
        """Whether soft targets are looked up by groups of distinct labels."""
        if self.embedding is None or not len(rows) or one_table(len(rows), self.axis.num_labels, self.chunk_rows):
            return False
        return self.axis.split or can_look_at(rows.labels)

    def _chunks(self, rows: Rows, sparse: SparseRows | None) -> Iterator[Chunk]:
        if self.embedding is None:
            for part in chunks(len(rows), self.chunk_rows):
                yield Chunk(part, NoTargets(), None)
        elif sparse is not None:
            for part in chunks(len(rows), self.chunk_rows):
                targets = SparseTargets(SparseRows(*(values[part] for values in sparse)))
                yield Chunk(part, targets, targets.own_mass(rows.labels[part]) if self.floor else None)
        elif self._groups(rows):
            for group in sorted_groups(rows.labels, self.chunk_rows):
                yield from self._group_chunks(group)
        elif one_table(len(rows), self.axis.num_labels, self.chunk_rows):
            labels = torch.arange(self.axis.num_labels, device=rows.labels.device)
            table = self._probabilities(labels)
            own_mass = self.axis.own_mass(table, labels) if self.floor else None
            for part in chunks(len(rows), self.chunk_rows):
                place = rows.labels[part]
                yield Chunk(part, RowTargets(table[place]), None if own_mass is None else own_mass[place])
        else:
            for part in chunks(len(rows), self.chunk_rows):
                q = self._probabilities(rows.labels[part])
                yield Chunk(part, RowTargets(q), self.axis.own_mass(q, rows.labels[part]) if self.floor else None)

    def _group_chunks(self, group: Group) -> Iterator[Chunk]:
        assert group.labels is not None
        q = self._probabilities(group.labels)  # (distinct, width)
        own_mass = self.axis.own_mass(q, group.labels) if self.floor else None
        for part in group.chunks(self.chunk_rows):
            place = group.place_of(part)
            loops = self.axis.width >= LONG_ROW and q.device.type == "cpu"
            targets: ChunkTargets = LoopTargets(q, group, part) if loops else RowTargets(q[place])
            yield Chunk(part, targets, None if own_mass is None else own_mass[place])

    def _probabilities(self, labels: Tensor) -> Tensor:
        assert self.embedding is not None
        return self.embedding.probabilities(labels).detach().to(self.layer.dtype)

    def _chunk(
        self, rows: Rows, hidden: Tensor, part: slice, targets: ChunkTargets, own_mass: Tensor | None
    ) -> ChunkStatistics:
        labels, inputs = rows.labels[part], hidden[part]
        logits = self.layer.logits(inputs, self.workspace("logits", len(labels)))  # (chunk, width)
        best = self.axis.maximum(logits)
        soft = targets.dot(logits).neg_()
        hard_share, soft_share = self._shares(soft if own_mass is None else own_mass)
        reading = self.axis.softmax_(logits, best, labels)
        if self.axis.leads and self.embedding is not None:
            soft += reading.log_sum_exp
        if self.layer.wants_weight or self.layer.wants_bias or self.on_hidden is not None:
            both = (hard_share + soft_share).clamp_min(torch.finfo(logits.dtype).tiny)
            # a fraction 1 / both of the gradient, without the row's weight
            self.axis.add_to_own(logits, labels, -hard_share / both)
            targets.subtract_from(logits, soft_share / both)
            factor = rows.weights[part] / self.divisor * both
            self.layer.add_gradients(logits, inputs, factor)
            if self.on_hidden is not None:
                rows.write(part, self.layer.on_hidden(logits, factor), self.on_hidden)
        return ChunkStatistics(-reading.own_log_p, soft, hard_share, soft_share, reading.right)

    def _shares(self, own_mass: Tensor) -> tuple[Tensor, Tensor]:
        """What hard and soft term of each row weigh, (chunk,) each."""
        shares = target_shares(own_mass, self.objective, self.batch.progress, self.batch.soft_active)
        hard, soft = (
            share.expand_as(own_mass) if isinstance(share, Tensor) else torch.full_like(own_mass, share)
            for share in shares
        )
        return hard, soft

    def _add_even_shares(self, rows: Rows, hidden: Tensor, sparse: SparseRows, soft_share: Tensor) -> Tensor:
        """Bring in the share of every label in a row's soft target: its part of q . z, (rows,), and the gradients.

        z is linear in h, so the sum of a row's logits is h . (sum of the weight's rows), and the gradient of a constant
        on all logits is one vector for the weight and one number a row for the hidden states.
        """
        layer = self.layer
        weight_sum = layer.weight.sum(0, dtype=layer.dtype)  # (features,)
        logit_sums = hidden @ weight_sum
        if layer.bias is not None:
            logit_sums = logit_sums + layer.bias.sum(dtype=layer.dtype)
        factor = rows.weights / self.divisor * soft_share * sparse.share  # (rows,)
        if layer.weight_gradient is not None:
            layer.weight_gradient.sub_(factor @ hidden)
        if layer.bias_gradient is not None:
            layer.bias_gradient.sub_(factor.sum())
        if self.on_hidden is not None:
            on_rows = torch.outer(factor, weight_sum)
            if rows.order is None:
                self.on_hidden.sub_(on_rows)
            else:
                self.on_hidden.index_add_(0, rows.order, on_rows, alpha=-1)
        return sparse.share * logit_sums

    def _sums(self, rows: Rows, found: ChunkStatistics) -> PredictorSums:
        weighted = torch.stack([found.hard, found.soft]) * rows.weights
        mixed = torch.stack([found.hard_share, found.soft_share]) * weighted
        (hard, soft), (mixed_hard, mixed_soft) = weighted.sum(1).unbind(), mixed.sum(1).unbind()
        soft, mixed_soft = self.axis.total(torch.stack([soft, mixed_soft])).unbind()
        correct = rows.only_valid(found.right).sum()
        return PredictorSums(hard, soft * self.batch.soft_active, mixed_hard + mixed_soft, correct)


def nothing_predicted(like: Tensor) -> PredictorSums:
    """The sums over no row."""
    zero = like.new_zeros(())
    return PredictorSums(zero, zero, zero, zero.long())
