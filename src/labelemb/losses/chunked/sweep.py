"""The head's loss and all its gradients in one forward pass, in memory that does not grow with rows x labels.

Rows are sorted by label and cut into groups of whole labels; a group is swept in chunks of rows. Nothing of size
(rows, labels) outlives a chunk, and all work on the embedding is (distinct labels, labels). What makes one pass enough:

- hard and soft: the gradient on z1 is (w_h + w_s) softmax(z1) - w_h onehot(y) - w_s q_y with q_y the soft target of the
  row's label: no second softmax, and q_y is shared by the rows of a label.
- observer and cap depend on one number a row, p = softmax(z2)_y, and their gradient is (1 - c g'(p) p) (softmax(z2) -
  onehot(y)) with g the cap and c its weight. The hidden state is stopped, so the observer costs two matrix products.
- embedding: summed by label it is n_y lse(e_y) - T_y . e_y, with T_y the sum of z2'' over the rows of y.
- a row's weight is a factor of its whole gradient, so it is folded into the (chunk, features) side of the products.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from labelemb.embeddings.running import RunningEmbedding
from labelemb.losses.chunked.groups import ChunkTargets, Group, as_column
from labelemb.losses.chunked.products import Products
from labelemb.losses.terms import LossTerms, cap_of, cap_slope, target_shares, training_terms

if TYPE_CHECKING:
    from labelemb.heads.label_embedding import LabelEmbeddingHead
    from labelemb.losses.batch import Batch

CHUNK_BYTES = 48 * 1024**2
"""A chunk of logits has about this size, within the limits of CHUNK_ROWS."""
CHUNK_ROWS = (32, 256)
LONG_ROW = 4096
"""From this many labels on, a loop over the labels of a chunk beats copying a soft target to each of its rows."""


class LogRows(NamedTuple):
    """A chunk of logits as log-probabilities."""

    log_p: Tensor  # (chunk, labels)
    own: Tensor  # (chunk,): that of the row's label
    right: Tensor  # (chunk,): where it is the row's largest; ties count
    finite: Tensor  # (chunk,)


class Sweep:
    """One pass over a batch: run() fills loss, terms, counts and the gradients of all inputs.

    What needs all labels of a row at once is in a few methods of their own (`_look_up` to `_over_labels`), so that
    `labelemb.heads.sharded` can do it where a process holds only some labels.
    """

    loss: Tensor
    terms: LossTerms
    correct: Tensor
    logits: Tensor | None = None

    def __init__(self, head: LabelEmbeddingHead, batch: Batch, soft_active: bool, progress: float | None) -> None:
        self.objective = head.objective
        self.embedding = head.embedding
        self.batch, self.soft_active, self.progress = batch, soft_active, progress
        self.num_labels = self.width = head.num_labels
        self.needs_gradients = torch.is_grad_enabled()
        self.table = head.embedding if head.training and isinstance(head.embedding, RunningEmbedding) else None
        self.collects = head.embedding.learned or self.table is not None
        self.products = Products(batch.hidden, head.predictor.weight)
        self.chunk_rows = head.chunk_rows or rows_in_chunk(self.width)
        self.right = torch.zeros_like(batch.valid)

    def run(self, inputs: Sequence[Tensor | None]) -> None:
        """`inputs`: hidden, predictor weight and bias, observer weight and bias, embedding parameters."""
        self.inputs = inputs
        self.wanted = [self.needs_gradients and x is not None and x.requires_grad for x in inputs]
        self.gradients: list[Tensor | None] = [None] * len(inputs)
        self.predictor_stats: list[Tensor] = []  # (5, chunk) each: hard, soft, each one's part of the loss, right
        self.observer_stats: list[Tensor] = []  # (3, chunk) each: observer, cap, whether right
        self.normaliser_sum = self.agreement = self.batch.weights.new_zeros((), dtype=self.products.dtype)
        self.rooms: dict[str, Tensor] = {}
        self._order_rows()
        batch, work = self.batch, self.products.dtype
        self.hidden = self._sorted(batch.hidden).to(work)
        observed = self.hidden if batch.observed_hidden is None else self._sorted(batch.observed_hidden).to(work)
        if self.table is not None:
            self.table.begin(batch.valid.sum())
        for group in self._groups():
            for rows in self._chunks(group):
                self._predictor_chunk(group, rows, self.hidden[rows])
                if inputs[3] is not None:
                    self._observer_chunk(group, rows, observed[rows])
            if inputs[3] is not None and group.sums is not None:
                self._close(group)
        if self.table is not None:
            self.table.finish()
        self.rooms.clear()
        self._finish()

    def _order_rows(self) -> None:
        """Sort the valid rows by label, unless a chunk has room for a row of every label."""
        batch = self.batch
        assert batch.labels is not None
        valid = None if bool(batch.valid.all()) else batch.valid.nonzero().squeeze(1)
        labels = batch.labels if valid is None else batch.labels[valid]
        self.order = valid  # None: as they come
        self.sorts = self.num_labels > min(len(labels), self.chunk_rows)
        if self.sorts:
            order = labels.argsort(stable=True)
            labels = labels[order]
            self.order = order if valid is None else valid[order]
        self.labels = labels
        self.weights = self._sorted(batch.weights)  # (rows,)
        self.total = batch.divisor
        self.unit_weights = self.weights / self.total

    def _sorted(self, value: Tensor) -> Tensor:
        value = value.detach()
        return value if self.order is None else value[self.order]

    def _groups(self) -> Iterator[Group]:
        if not len(self.labels):
            return
        if not self.sorts:
            yield self._open(torch.arange(self.num_labels, device=self.labels.device), None, 0, self.labels)
            return
        distinct, place, counts = self.labels.unique_consecutive(return_inverse=True, return_counts=True)
        sizes: list[int] = counts.tolist()
        first, start = 0, 0
        while first < len(sizes):
            last, stop = first + 1, start + sizes[first]
            while last < len(sizes) and stop + sizes[last] - start <= self.chunk_rows:
                stop += sizes[last]
                last += 1
            yield self._open(distinct[first:last], sizes[first:last], start, place[start:stop] - first)
            first, start = last, stop

    def _open(self, labels: Tensor, sizes: list[int] | None, start: int, place: Tensor) -> Group:
        rows, q, normaliser = self._look_up(labels)
        if self.objective.mass_floor > 0:
            shares = target_shares(self._own(q, labels), self.objective, self.soft_active, self.progress)
        else:
            shares = self.objective.hard_weight, self.objective.soft_weight * self.soft_active
        sums = self._room("sums", len(labels)) if self.collects else None
        if sums is not None and not self._loops(sizes):
            sums.zero_()
        mass = q.new_zeros(len(q)) if self.collects else None
        return Group(labels, sizes, start, start + len(place), place, rows, q, normaliser, *shares, sums, mass)

    def _chunks(self, group: Group) -> Iterator[slice]:
        rows = group.stop - group.start
        stride = -(-rows // -(-rows // self.chunk_rows))  # equal chunks, none above chunk_rows
        for start in range(group.start, group.stop, stride):
            yield slice(start, min(start + stride, group.stop))

    def _predictor_chunk(self, group: Group, rows: slice, hidden: Tensor) -> None:
        place = group.place[rows.start - group.start : rows.stop - group.start]
        own = self.labels[rows].unsqueeze(1)  # (chunk, 1)
        logits = self._room("logits", len(own))  # (chunk, m)
        self.products.linear(hidden, self.inputs[1], self.inputs[2], logits)
        log_p, own_log_p, right, _ = self._normalise(logits, own)
        targets = ChunkTargets(group, rows, place, self._loops(group.sizes))
        hard = -own_log_p
        soft = targets.dot(log_p).mul_(-self.soft_active)
        hard_share, soft_share = _of_rows(group.hard_share, place), _of_rows(group.soft_share, place)
        stats = [hard, soft, hard_share * hard, soft_share * soft, right.to(hard.dtype)]
        self.predictor_stats.append(torch.stack(stats))
        both = hard_share + soft_share
        if not any(self.wanted[:3]) or (not isinstance(both, Tensor) and both == 0):
            return
        on_logits = log_p.exp_()  # a fraction 1 / both of the gradient, without the row's weight
        self._add_to_own(on_logits, own, as_column(-hard_share / both, own, log_p.dtype))
        targets.subtract_from(on_logits, soft_share / both)
        self._add_layer_gradients(1, on_logits, hidden, self.unit_weights[rows] * both, rows)

    def _observer_chunk(self, group: Group, rows: slice, hidden: Tensor) -> None:
        objective, weights = self.objective, self.weights[rows]
        own = self.labels[rows].unsqueeze(1)
        logits = self._room("logits", len(own))
        self.products.linear(hidden, self.inputs[3], self.inputs[4], logits)
        log_p, own_log_p, right, finite = self._normalise(logits, own)
        right.logical_and_(finite)
        _place(self.right, self.order, rows, right)
        own_p = own_log_p.exp()
        self.observer_stats.append(torch.stack([-own_log_p, cap_of(own_p, objective), right.to(own_p.dtype)]))
        if self.wanted[3] or self.wanted[4]:
            factor = self.unit_weights[rows]
            if objective.cap_weight > 0:
                cap_weights = factor if objective.cap_reduction == "mean" else weights
                factor = factor - objective.cap_weight * cap_weights * cap_slope(own_p, objective) * own_p
            on_logits = torch.exp(log_p, out=logits)
            self._add_to_own(on_logits, own, as_column(-1.0, own, log_p.dtype))
            self._add_layer_gradients(3, on_logits, hidden, factor, rows)
        if group.sums is not None and group.mass is not None:
            place = group.place[rows.start - group.start : rows.stop - group.start]
            gate = weights * (right if objective.correct_only else finite)
            seen = self._soften(log_p, out=logits)
            if not bool(finite.all()):
                seen[~finite] = 0
            group.mass.index_add_(0, place, gate)
            ChunkTargets(group, rows, place, self._loops(group.sizes)).add_to_sums(seen, gate)

    def _close(self, group: Group) -> None:
        """All rows of the group's labels have been seen: learn from what the observer made of them."""
        assert group.sums is not None
        assert group.mass is not None
        if self.table is not None:
            self.table.observe(group.labels, group.sums, group.mass)
            return
        assert group.rows is not None
        assert group.normaliser is not None
        self.normaliser_sum = self.normaliser_sum + group.mass @ group.normaliser
        self.agreement = self.agreement + torch.dot(group.sums.view(-1), group.rows.view(-1))
        if not any(self.wanted[5:]):
            return
        if self.objective.embedding_reduction == "all":
            group.q.mul_((group.mass / self.total).unsqueeze(1)).addcdiv_(group.sums, self.total, value=-1)
        else:
            group.q.mul_(group.mass.unsqueeze(1)).sub_(group.sums)
        buffers = [self._buffer(index) for index in range(5, len(self.inputs))]
        self._add_embedding_gradients(group.labels, group.rows, group.q, buffers)

    def _look_up(self, labels: Tensor) -> tuple[Tensor | None, Tensor, Tensor | None]:
        """The embedding's logits of some labels if it is learned, the soft targets, and the logits' log-sum-exp."""
        work = self.products.dtype
        if not self.embedding.learned:
            return None, self.embedding.probabilities(labels).detach().to(work), None
        rows = self.embedding.rows(labels).detach().to(work)
        q = torch.softmax(rows, 1, out=self._room("q", len(labels)))
        return rows, q, rows.amax(1) - q.amax(1).log()  # from the softmax that is there already

    def _own(self, values: Tensor, labels: Tensor) -> Tensor:
        """The value of each row at its label, (rows,)."""
        return values.gather(1, labels.unsqueeze(1)).squeeze(1)

    def _add_to_own(self, values: Tensor, own: Tensor, more: Tensor) -> None:
        """Add to the value of each row at its label; `own` and `more` are (rows, 1)."""
        values.scatter_add_(1, own, more)

    def _normalise(self, logits: Tensor, own: Tensor) -> LogRows:
        best, own_logit = logits.amax(1), logits.gather(1, own).squeeze(1)
        log_p = torch.log_softmax(logits, 1, out=self._room("log_p", len(own)))
        return LogRows(log_p, log_p.gather(1, own).squeeze(1), own_logit == best, best.isfinite())

    def _soften(self, log_p: Tensor, out: Tensor) -> Tensor:
        """z2'' of the chunk that was normalised last, whose log-probabilities are not needed any more."""
        return torch.softmax(log_p.div_(self.objective.tau), 1, out=out)

    def _add_embedding_gradients(
        self, labels: Tensor, rows: Tensor, gradient: Tensor, buffers: Sequence[Tensor]
    ) -> None:
        self.embedding.add_row_gradients(labels, rows, gradient, buffers)

    def _over_labels(self, sums: Tensor) -> Tensor:
        """Sums over the labels held here, as sums over all labels."""
        return sums

    def _finish(self) -> None:
        objective, weights = self.objective, self.weights
        both = torch.stack([weights, torch.ones_like(weights)], 1)  # (rows, 2): weighted sums and counts
        hard, soft, hard_part, soft_part, correct = _totals(self.predictor_stats, both, 5)
        observer, cap, right = _totals(self.observer_stats, both, 3)
        partial = torch.stack([soft[0], soft_part[0], self.agreement])
        soft_sum, soft_part_sum, agreement = self._over_labels(partial).unbind()
        total = self.total
        cap_total = total if objective.cap_reduction == "mean" else torch.ones_like(total)
        embedding_total = total
        if objective.embedding_reduction == "correct":
            embedding_total = right[0].clamp_min(1)
            for gradient in self.gradients[5:]:
                if gradient is not None:
                    gradient.div_(embedding_total)
        self.terms = LossTerms(
            hard[0] / total,
            soft_sum / total,
            observer[0] / total,
            cap[0] / cap_total,
            (self.normaliser_sum - agreement) / embedding_total,
        )
        self.loss = (hard_part[0] + soft_part_sum) / total + training_terms(self.terms, objective)
        self.correct = correct[1].long()
        for index, (x, wanted) in enumerate(zip(self.inputs, self.wanted, strict=True)):
            self.gradients[index] = self._buffer(index).to(x.dtype) if wanted and x is not None else None

    def _add_layer_gradients(self, layer: int, on_logits: Tensor, hidden: Tensor, weights: Tensor, rows: slice) -> None:
        """Gradients of a linear layer's weight (input `layer`), its bias and, for the predictor, the hidden states.

        A row's weight is a factor of its gradient: it goes to the narrower side of the products.
        """
        column = weights.unsqueeze(1)
        folded = self.width <= hidden.shape[1]
        if folded:
            on_logits.mul_(column)
        if self.wanted[layer]:
            weighted = hidden if folded else hidden * column
            self.gradients[layer] = self.products.add_outer(self.gradients[layer], on_logits, weighted)
        if self.wanted[layer + 1]:
            on_bias = on_logits.sum(0) if folded else on_logits.T @ weights
            self.gradients[layer + 1] = _plus(self.gradients[layer + 1], on_bias)
        if layer == 1 and self.wanted[0]:
            on_hidden = self.products.times(on_logits, self.inputs[layer])
            if not folded:
                on_hidden.mul_(column)
            if self.order is None and len(on_hidden) == len(self.batch.hidden):
                self.gradients[0] = on_hidden
            else:
                _place(self._buffer(0), self.order, rows, on_hidden)

    def _loops(self, sizes: list[int] | None) -> bool:
        return sizes is not None and self.width >= LONG_ROW

    def _room(self, name: str, rows: int) -> Tensor:
        """Memory of (rows, labels) that every chunk uses anew: fresh pages for each would cost more than the work."""
        room = self.rooms.get(name)
        if room is None or len(room) < rows:
            room = self.rooms[name] = self.hidden.new_empty(max(rows, self.chunk_rows), self.width)
        return room[:rows]

    def _buffer(self, index: int) -> Tensor:
        """The gradient of an input so far; zeros at first."""
        gradient, x = self.gradients[index], self.inputs[index]
        if gradient is None:
            assert x is not None
            gradient = self.gradients[index] = torch.zeros_like(x, dtype=self.products.dtype)
        return gradient


def _totals(stats: list[Tensor], weights: Tensor, kinds: int) -> Tensor:
    """(kinds, 2): each statistic summed over the rows, weighted and unweighted."""
    if not stats:
        return weights.new_zeros(kinds, 2)
    return (stats[0] if len(stats) == 1 else torch.cat(stats, 1)) @ weights


def _place(whole: Tensor, order: Tensor | None, rows: slice, part: Tensor) -> None:
    """Write a chunk of sorted rows to where they stand in the batch."""
    whole[rows if order is None else order[rows]] = part


def _of_rows(share: Tensor | float, place: Tensor) -> Tensor | float:
    return share[place] if isinstance(share, Tensor) else share


def _plus(gradient: Tensor | None, more: Tensor) -> Tensor:
    return more if gradient is None else gradient.add_(more)


def rows_in_chunk(num_labels: int) -> int:
    """Rows of logits that a chunk of about CHUNK_BYTES holds."""
    low, high = CHUNK_ROWS
    return max(low, min(high, CHUNK_BYTES // (4 * num_labels)))
