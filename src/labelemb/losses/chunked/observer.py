"""The observer's part of a chunked pass: observer and cap term with gradients, and the embedding's statistics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from labelemb.embeddings.base import LabelEmbedding, RowGradients
from labelemb.losses.batch import Batch
from labelemb.losses.chunked.labels import LabelAxis, Reading
from labelemb.losses.chunked.layer import LayerPass, Workspace
from labelemb.losses.chunked.rows import (
    LONG_ROW,
    Group,
    Rows,
    chunk_groups,
    one_table,
    sorted_groups,
    usable_rows,
)
from labelemb.losses.objective import Objective
from labelemb.losses.result import RightLabels
from labelemb.losses.terms import cap_of, cap_slope
from labelemb.support.tensors import can_look_at


class ObserverSums(NamedTuple):
    """Sums over the observed rows, times their weights, and counts."""

    observer: Tensor
    cap: Tensor
    right_weight: Tensor
    embedding: Tensor
    correct: Tensor
    rows: Tensor
    right: RightLabels


class SeenLabels(NamedTuple):
    """What the embedding learns from; see `LabelEmbedding.learn_from`."""

    labels: Tensor | None  # (slots,)
    sums: Tensor  # (slots, width): T, the summed z2'' of each label
    masses: Tensor  # (slots,)


class Teaching(NamedTuple):
    """The rows of a sorted chunk that teach the embedding."""

    rows: Tensor  # (teaching,), within the chunk
    softened: Tensor  # (teaching, width)
    weights: Tensor  # (teaching,)

    def by_label(self, group: Group, part: slice) -> SeenLabels:
        """Sums of each label, written over its rows."""
        assert group.labels is not None
        places, sizes = group.place_of(part)[self.rows].unique_consecutive(return_counts=True)
        self.softened.mul_(self.weights.unsqueeze(1))
        start = 0
        for slot, size in enumerate(sizes.tolist()):
            first = self.softened[start]
            if size > 1:
                first = torch.sum(self.softened[start : start + size], 0)
            if size > 1 or slot < start:
                self.softened[slot].copy_(first)
            start += size
        masses = self.weights.new_zeros(group.slots).index_add_(0, group.place_of(part)[self.rows], self.weights)
        return SeenLabels(group.labels[places], self.softened[: len(places)], masses[places])


@dataclass
class ObserverPass:
    """The observed rows through the observer. `run` gives the sums and fills the gradients of `layer`."""

    layer: LayerPass
    embedding: LabelEmbedding
    objective: Objective
    axis: LabelAxis
    chunk_rows: int
    workspace: Workspace

    def run(self, batch: Batch, gradients: RowGradients) -> ObserverSums:
        """`gradients` are those of the embedding. Its term is added up over the processes that hold labels."""
        self.divisor = batch.divisor
        rows = usable_rows(batch.for_observer, batch.for_observer.observer_input)
        groups = self._sorted_groups(rows)
        if groups:
            rows = rows.sorted()
        self.hidden = rows.hidden.to(self.layer.dtype)
        self.statistics: list[Tensor] = []  # (3, chunk) each: observer, cap, right
        embedding = self.divisor.new_zeros((), dtype=self.layer.dtype)
        learns = self.embedding.learns
        if learns:
            self.embedding.begin(batch.valid_rows)
        for group in self._groups(rows, groups):
            if not learns:
                for part in group.chunks(self.chunk_rows):
                    self._chunk(rows, part, soften=None)
                continue
            for seen in self._watch(rows, group):
                embedding = embedding + self.embedding.learn_from(*seen, gradients)
        if learns:
            self.embedding.finish()
        return self._sums(rows, self.axis.total(embedding))

    def _sorted_groups(self, rows: Rows) -> bool:
        if not len(rows) or one_table(len(rows), self.axis.num_labels, self.chunk_rows):
            return False
        return self.axis.split or can_look_at(rows.labels)

    def _groups(self, rows: Rows, by_label: bool) -> Iterator[Group]:
        if by_label:
            yield from sorted_groups(rows.labels, self.chunk_rows)
        elif one_table(len(rows), self.axis.num_labels, self.chunk_rows):
            yield Group(None, self.axis.num_labels, rows.labels, None, 0, len(rows))
        else:
            yield from chunk_groups(rows.labels, self.axis.num_labels, self.chunk_rows)

    def _watch(self, rows: Rows, group: Group) -> Iterator[SeenLabels]:
        """What the embedding learns from a group; nothing where no row teaches it anything."""
        long_on_cpu = self.axis.width >= LONG_ROW and rows.labels.device.type == "cpu"
        if group.sizes is not None and long_on_cpu and not self.axis.split:
            yield from self._watch_teaching_rows(rows, group)
        else:
            yield self._watch_all_rows(rows, group)

    def _watch_all_rows(self, rows: Rows, group: Group) -> SeenLabels:
        sums = self.workspace("sums", group.slots).zero_()
        masses = sums.new_zeros(group.slots)
        for part in group.chunks(self.chunk_rows):
            seen = self.workspace("seen", part.stop - part.start)
            reading = self._chunk(rows, part, partial(self.axis.soften, tau=self.objective.tau, out=seen))
            gate = rows.weights[part] * (reading.right if self.objective.correct_only else reading.finite)
            place = group.place_of(part)
            masses.index_add_(0, place, gate)
            sums.index_add_(0, place, seen.mul_(gate.unsqueeze(1)))
        return SeenLabels(group.labels, sums, masses)

    def _watch_teaching_rows(self, rows: Rows, group: Group) -> Iterator[SeenLabels]:
        """Only rows with a weight are softened, and summed by label where they stand: no second table of sums."""
        seen: SeenLabels | None = None
        for part in group.chunks(self.chunk_rows):
            found: list[Teaching] = []
            self._chunk(rows, part, partial(self._find_teaching, rows, part, found))
            (teaching,) = found
            if len(teaching.rows):
                more = teaching.by_label(group, part)
                # several chunks have one label only, which is learned once: keep what the next chunk overwrites
                apart = part.stop < group.stop
                if seen is not None:
                    more = SeenLabels(more.labels, seen.sums.add_(more.sums), seen.masses + more.masses)
                seen = more._replace(sums=more.sums.clone()) if apart and seen is None else more
        if seen is not None:
            yield seen

    def _find_teaching(self, rows: Rows, part: slice, found: list[Teaching], logits: Tensor, best: Tensor) -> None:
        weights = rows.weights[part]
        if self.objective.correct_only:
            taught = self.axis.own(logits, rows.labels[part]) - best == 0
        else:
            taught = best - best == 0
        chosen = (taught & (weights > 0)).nonzero().squeeze(1)
        seen = torch.index_select(logits, 0, chosen, out=self.workspace("seen", len(chosen)))
        seen.div_(self.objective.tau)
        found.append(Teaching(chosen, torch.softmax(seen, 1, out=seen), weights[chosen]))

    def _chunk(self, rows: Rows, part: slice, soften: Callable[[Tensor, Tensor], object] | None) -> Reading:
        """Statistics and gradients of a chunk; `soften` gets its logits and their maxima first."""
        objective, layer = self.objective, self.layer
        labels, inputs, weights = rows.labels[part], self.hidden[part], rows.weights[part]
        logits = layer.logits(inputs, self.workspace("logits", len(labels)))
        best = self.axis.maximum(logits)
        if soften is not None:
            soften(logits, best)
        reading = self.axis.softmax_(logits, best, labels)
        p = reading.own_log_p.exp()
        self.statistics.append(torch.stack([-reading.own_log_p, cap_of(p, objective), reading.right.to(p.dtype)]))
        if layer.wants_weight or layer.wants_bias:
            factor = weights / self.divisor
            if objective.cap_weight > 0:
                cap_weights = factor if objective.cap_reduction == "mean" else weights
                factor = factor - objective.cap_weight * cap_weights * cap_slope(p, objective) * p
            self.axis.add_to_own(logits, labels, torch.full_like(p, -1))
            layer.add_gradients(logits, inputs, factor)
        return reading

    def _sums(self, rows: Rows, embedding: Tensor) -> ObserverSums:
        if not self.statistics:
            zero = self.divisor.new_zeros(())
            nothing = RightLabels(rows.labels, torch.zeros_like(rows.labels))
            return ObserverSums(zero, zero, zero, embedding, rows.count(), rows.count(), nothing)
        found = self.statistics[0] if len(self.statistics) == 1 else torch.cat(self.statistics, 1)
        observer, cap, right_weight = (found @ rows.weights).unbind()
        right = rows.only_valid(found[2] > 0)
        counts = RightLabels(rows.labels, right.long())
        return ObserverSums(observer, cap, right_weight, embedding, right.sum(), rows.count(), counts)
