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
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from labelemb.heads.base import TrainingTerms
from labelemb.objective import LossTerms, Objective, cap_of, target_shares, training_terms
from labelemb.products import Products
from labelemb.running import RunningEmbedding

if TYPE_CHECKING:
    from labelemb.embedding import LabelEmbedding
    from labelemb.heads.base import Batch
    from labelemb.heads.label_embedding import LabelEmbeddingHead

Layer = int
HIDDEN, PREDICTOR, OBSERVER, FIRST_OF_EMBEDDING = 0, 1, 3, 5
"""Where the inputs stand: a layer's bias follows its weight."""
CHUNK_BYTES = 48 * 1024**2
"""A chunk of logits has about this size, within the limits of CHUNK_ROWS."""
CHUNK_ROWS = (32, 256)
FEW_VALUES = 1 << 22
"""Up to this many logits the batch is one chunk, and its logits are given to the caller."""
LONG_ROW = 4096
"""From this many labels on, a loop over the labels of a chunk beats copying a soft target to each of its rows."""


def chunked_terms(
    head: LabelEmbeddingHead, batch: Batch, soft_active: bool | Tensor, progress: float | None
) -> TrainingTerms:
    """What the reference gives for integer labels, except that `terms` carry no gradient."""
    sweep = Sweep(head, batch, bool(soft_active), progress)
    observer = head.observer
    loss, logits = _ChunkedLoss.apply(
        sweep,
        batch.hidden,
        head.predictor.weight,
        head.predictor.bias,
        None if observer is None else observer.weight,
        None if observer is None else observer.bias,
        *head.embedding.parameters(),
    )
    return TrainingTerms(
        loss,
        sweep.terms,
        None if logits is None else batch.rowwise(logits),
        sweep.correct,
        None if observer is None else sweep.right.sum(),
        sweep.right,
    )


class _ChunkedLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, sweep: Sweep, hidden: Tensor, *parameters: Tensor | None) -> tuple[Tensor, Tensor | None]:
        sweep.run([hidden, *parameters])
        ctx.gradients = sweep.gradients
        ctx.save_for_backward(*((hidden, parameters[0]) if sweep.logits is not None else ()))
        return sweep.loss, sweep.logits

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_loss: Tensor, grad_logits: Tensor | None) -> tuple[Tensor | None, ...]:
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is None:
            raise RuntimeError(
                "the chunked head's gradients were used up: call the head again, or use impl='reference'"
            )
        if grad_loss.device.type != "cpu" or grad_loss.item() != 1:
            gradients = [None if g is None else g.mul_(grad_loss.to(g.dtype)) for g in gradients]
        if grad_logits is not None and ctx.saved_tensors and bool(grad_logits.any()):
            _add_logit_gradients(gradients, grad_logits, *ctx.saved_tensors)
        return None, *gradients


def _add_logit_gradients(gradients: list[Tensor | None], grad_logits: Tensor, hidden: Tensor, weight: Tensor) -> None:
    """What a caller does with the logits beside the loss has gradients of its own."""
    grad_logits = grad_logits.to(weight.dtype)
    extra = [grad_logits @ weight, grad_logits.T @ hidden.to(weight.dtype), grad_logits.sum(0)]
    for gradient, more in zip(gradients, extra, strict=False):
        if gradient is not None:
            gradient.add_(more)


@dataclass
class Group:
    """Some labels with all their rows, which stand at start:stop of the sorted batch."""

    labels: Tensor  # (distinct,)
    sizes: list[int] | None  # rows of each label in order; None where the rows are not sorted
    start: int
    stop: int
    place: Tensor  # (rows,), where a row's label stands in `labels`
    rows: Tensor | None  # (distinct, labels): the embedding's logits, if it is learned
    q: Tensor  # (distinct, labels): soft targets
    hard_share: Tensor | float  # (distinct,) with a mass floor
    soft_share: Tensor | float
    sums: Tensor | None  # (distinct, labels): T, what the observer saw of each label
    mass: Tensor | None  # (distinct,): the weight of the rows in it


class Sweep:
    """One pass over a batch: run() fills loss, terms, counts and the gradients of all inputs."""

    loss: Tensor
    terms: LossTerms
    correct: Tensor

    def __init__(self, head: LabelEmbeddingHead, batch: Batch, soft_active: bool, progress: float | None) -> None:
        self.objective: Objective = head.objective
        self.embedding: LabelEmbedding = head.embedding
        self.batch, self.soft_active, self.progress = batch, soft_active, progress
        self.num_labels = head.num_labels
        self.needs_gradients = torch.is_grad_enabled()
        self.table = head.embedding if head.training and isinstance(head.embedding, RunningEmbedding) else None
        self.collects = head.embedding.learned or self.table is not None
        self.products = Products(batch.hidden, head.predictor.weight)
        self.keeps_logits = head.chunk_rows is None and len(batch.hidden) * self.num_labels <= FEW_VALUES
        self.chunk_rows = head.chunk_rows or (len(batch.hidden) if self.keeps_logits else _chunk_rows(self.num_labels))
        self.logits: Tensor | None = None
        self.right = torch.zeros_like(batch.valid)

    def run(self, inputs: Sequence[Tensor | None]) -> None:
        """`inputs`: hidden, predictor weight and bias, observer weight and bias, embedding parameters."""
        self.inputs = inputs
        self.wanted = [self.needs_gradients and x is not None and x.requires_grad for x in inputs]
        self.gradients: list[Tensor | None] = [None] * len(inputs)
        self.stats: dict[Layer, list[Tensor]] = {PREDICTOR: [], OBSERVER: []}  # (kinds, chunk) each
        self.embedding_sum: Tensor | float = 0.0
        layers = (PREDICTOR,) if inputs[OBSERVER] is None else (PREDICTOR, OBSERVER)
        # Together they take half the operations, one after the other half the memory.
        passes = [layers] if self.keeps_logits else [(layer,) for layer in layers]
        self._order_rows()
        self.hidden = self._sorted(self.batch.hidden).to(self.products.dtype)
        observed = self.batch.observed_hidden
        self.observed = self.hidden if observed is None else self._sorted(observed).to(self.products.dtype)
        if self.table is not None:
            self.table.begin(self.batch.valid.sum())
        for group in self._groups():
            for rows in self._chunks(group):
                for layers in passes:
                    self._sweep(group, rows, layers)
            if group.sums is not None:
                self._close(group)
        if self.table is not None:
            self.table.finish()
        self._finish()

    def _order_rows(self) -> None:
        """Sort the valid rows by label, unless a chunk has room for a row of every label."""
        batch = self.batch
        assert batch.labels is not None
        valid = None if batch.all_valid else batch.valid.nonzero().squeeze(1)
        labels = batch.labels if valid is None else batch.labels[valid]
        self.order = valid  # None: as they come
        self.sorts = self.num_labels > min(len(labels), self.chunk_rows)
        if self.sorts:
            order = labels.argsort(stable=True)
            labels = labels[order]
            self.order = order if valid is None else valid[order]
        self.labels = labels
        self.weights = self._sorted(batch.weights)  # (rows,)
        self.total = torch.where(batch.total > 0, batch.total, 1)
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
        work = self.products.dtype
        rows = self.embedding.rows(labels).detach().to(work) if self.embedding.learned else None
        q = self.embedding.probabilities(labels).detach().to(work) if rows is None else rows.softmax(1)
        if self.objective.mass_floor > 0:
            own = q.gather(1, labels.unsqueeze(1)).squeeze(1)
            shares = target_shares(own, self.objective, self.soft_active, self.progress)
        else:
            shares = self.objective.hard_weight, self.objective.soft_weight * self.soft_active
        sums = torch.zeros_like(q) if self.collects else None
        mass = q.new_zeros(len(q)) if self.collects else None
        return Group(labels, sizes, start, start + len(place), place, rows, q, *shares, sums, mass)

    def _chunks(self, group: Group) -> Iterator[slice]:
        rows = group.stop - group.start
        stride = -(-rows // -(-rows // self.chunk_rows))  # equal chunks, none above chunk_rows
        for start in range(group.start, group.stop, stride):
            yield slice(start, min(start + stride, group.stop))

    def _sweep(self, group: Group, rows: slice, layers: tuple[Layer, ...]) -> None:
        """A chunk's rows through one layer or both: their logits stand below each other, (layers * chunk, labels)."""
        chunk = _Chunk(group, rows, self.labels[rows], self.num_labels)
        logits = self._logits(rows, layers)
        own = chunk.labels.repeat(len(layers)).unsqueeze(1)
        best = logits.amax(1)
        right = logits.gather(1, own).squeeze(1) == best
        log_p = logits.log_softmax(1)
        own_log_p = log_p.gather(1, own).squeeze(1)
        n = len(chunk.labels)
        factors, on_own = [], []  # of each layer: (chunk,) or a number
        if PREDICTOR in layers:
            both, hard_part = self._predict(chunk, log_p[:n], own_log_p[:n], right[:n])
            factors.append(self.unit_weights[rows] * both)
            on_own.append(hard_part)
        if OBSERVER in layers:
            right[-n:].logical_and_(best[-n:].isfinite())
            factors.append(self._observe(rows, own_log_p[-n:], right[-n:]))
            on_own.append(1.0)
        if any(self.wanted[:5]):
            room = None if self.keeps_logits else logits
            on_logits = torch.exp(log_p, out=room)
            on_logits.scatter_add_(1, own, _column(on_own, n, log_p).neg_())
            if PREDICTOR in layers:
                chunk.subtract_targets(on_logits[:n], chunk.soft_part)
            self._add_gradients(rows, layers, on_logits, torch.cat(factors) if len(factors) > 1 else factors[0])
        if OBSERVER in layers and group.sums is not None:
            self._collect(chunk, rows, log_p[-n:], best[-n:], right[-n:])

    def _logits(self, rows: slice, layers: tuple[Layer, ...]) -> Tensor:
        size = rows.stop - rows.start
        logits = self.hidden.new_empty(len(layers) * size, self.num_labels)
        for k, layer in enumerate(layers):
            hidden = self.hidden if layer == PREDICTOR else self.observed
            out = logits[k * size : (k + 1) * size]
            self.products.linear(hidden[rows], self.inputs[layer], self.inputs[layer + 1], out)
            if layer == PREDICTOR and self.keeps_logits:
                self._keep(out)
        return logits

    def _predict(self, chunk: _Chunk, log_p: Tensor, own_log_p: Tensor, right: Tensor) -> tuple[Tensor | float, Any]:
        """Note hard and soft; gives their total weight, and the hard part of it."""
        group = chunk.group
        hard, soft = -own_log_p, chunk.dot_targets(log_p).mul_(-float(self.soft_active))
        hard_share, soft_share = chunk.of_rows(group.hard_share), chunk.of_rows(group.soft_share)
        mixed = hard_share * hard + soft_share * soft
        self.stats[PREDICTOR].append(torch.stack([hard, soft, mixed, right.to(hard.dtype)]))
        both = hard_share + soft_share
        if isinstance(both, float) and both == 0:
            return 0.0, 0.0
        chunk.soft_part = soft_share / both
        return both, hard_share / both

    def _observe(self, rows: slice, own_log_p: Tensor, right: Tensor) -> Tensor:
        """Note observer and cap; gives the factor of each row's gradient softmax(z2) - onehot(y)."""
        objective, factor = self.objective, self.unit_weights[rows]
        p = own_log_p.exp()
        self.stats[OBSERVER].append(torch.stack([-own_log_p, cap_of(p, objective), right.to(p.dtype)]))
        _place(self.right, self.order, rows, right)
        if objective.cap_weight == 0:
            return factor
        cap_weights = factor if objective.cap_reduction == "mean" else self.weights[rows]
        return factor - cap_weights * _cap_slope(p, objective).mul_(p).mul_(objective.cap_weight)

    def _collect(self, chunk: _Chunk, rows: slice, log_p: Tensor, best: Tensor, right: Tensor) -> None:
        """Add what the observer saw, softened, to the sums of the rows' labels."""
        assert chunk.group.mass is not None
        finite = best.isfinite()
        gate = self.weights[rows] * (right if self.objective.correct_only else finite)
        seen = log_p.div_(self.objective.tau).softmax(1)
        if not bool(finite.all()):
            seen[~finite] = 0
        chunk.group.mass.index_add_(0, chunk.place, gate)
        chunk.add_to_sums(seen, gate)

    def _close(self, group: Group) -> None:
        """All rows of the group's labels have been seen: learn from what the observer made of them."""
        assert group.sums is not None
        assert group.mass is not None
        if self.table is not None:
            self.table.observe(group.labels, group.sums, group.mass)
            return
        assert group.rows is not None
        agreement = torch.dot(group.sums.view(-1), group.rows.view(-1))
        self.embedding_sum = self.embedding_sum + group.mass @ group.rows.logsumexp(1) - agreement
        if not all(self.wanted[FIRST_OF_EMBEDDING:]):
            return
        gradient = group.q.mul_(group.mass.unsqueeze(1)).sub_(group.sums)
        if self.objective.embedding_reduction == "all":
            gradient.div_(self.total)
        buffers = [self._buffer(index) for index in range(FIRST_OF_EMBEDDING, len(self.inputs))]
        self.embedding.add_row_gradients(group.labels, group.rows, gradient, buffers)

    def _finish(self) -> None:
        objective, total = self.objective, self.total
        both = torch.stack([self.weights, torch.ones_like(self.weights)], 1)  # (rows, 2): weighted sums and counts
        hard, soft, mixed, correct = _totals(self.stats[PREDICTOR], both, 4)
        observer, cap, right = _totals(self.stats[OBSERVER], both, 3)
        cap_total = total if objective.cap_reduction == "mean" else torch.ones_like(total)
        embedding_total = total
        if objective.embedding_reduction == "correct":
            embedding_total = right[0].clamp_min(1)
            for gradient in self.gradients[FIRST_OF_EMBEDDING:]:
                if gradient is not None:
                    gradient.div_(embedding_total)
        self.terms = LossTerms(
            hard[0] / total,
            soft[0] / total,
            observer[0] / total,
            cap[0] / cap_total,
            self.embedding_sum / embedding_total,
        )
        self.loss = mixed[0] / total + training_terms(self.terms, objective)
        self.correct = correct[1].long()
        for index, (x, wanted) in enumerate(zip(self.inputs, self.wanted, strict=True)):
            if wanted and x is not None:
                self.gradients[index] = self._buffer(index).to(x.dtype)

    def _add_gradients(self, rows: slice, layers: tuple[Layer, ...], on_logits: Tensor, factors: Tensor) -> None:
        """Gradients of the layers' weights and biases and of the hidden states.

        A row's factor is one of its whole gradient: it goes to the narrower side of the products.
        """
        column = factors.unsqueeze(1)
        folded = self.num_labels <= self.hidden.shape[1]
        if folded:
            on_logits.mul_(column)
        size = rows.stop - rows.start
        for k, layer in enumerate(layers):
            part = slice(k * size, (k + 1) * size)
            hidden = (self.hidden if layer == PREDICTOR else self.observed)[rows]
            if self.wanted[layer]:
                weighted = hidden if folded else hidden * column[part]
                self.gradients[layer] = self.products.add_outer(self.gradients[layer], on_logits[part], weighted)
            if self.wanted[layer + 1]:
                on_bias = on_logits[part].sum(0) if folded else on_logits[part].T @ factors[part]
                self.gradients[layer + 1] = _plus(self.gradients[layer + 1], on_bias)
        if PREDICTOR in layers and self.wanted[HIDDEN]:
            on_hidden = self.products.times(on_logits[:size], self.inputs[PREDICTOR])
            if not folded:
                on_hidden.mul_(column[:size])
            if self.order is None and size == len(self.batch.hidden):
                self.gradients[HIDDEN] = on_hidden
            else:
                _place(self._buffer(HIDDEN), self.order, rows, on_hidden)

    def _buffer(self, index: int) -> Tensor:
        """The gradient of an input so far; zeros at first."""
        gradient, x = self.gradients[index], self.inputs[index]
        if gradient is None:
            assert x is not None
            gradient = self.gradients[index] = torch.zeros_like(x, dtype=self.products.dtype)
        return gradient

    def _keep(self, logits: Tensor) -> None:
        """Logits for the caller: of all rows, ignored ones too, in the batch's order."""
        if self.order is None:
            self.logits = logits
        elif self.logits is None:
            hidden = self.batch.hidden.detach().to(logits.dtype)
            self.logits = self.products.linear(hidden, self.inputs[PREDICTOR], self.inputs[PREDICTOR + 1])


class _Chunk:
    """Rows of a group with their labels. Long soft targets are not copied to each row: a loop over labels serves."""

    def __init__(self, group: Group, rows: slice, labels: Tensor, num_labels: int) -> None:
        self.group, self.rows, self.labels = group, rows, labels
        self.place = group.place[rows.start - group.start : rows.stop - group.start]
        self.loops = group.sizes is not None and num_labels >= LONG_ROW
        self.soft_part: Tensor | float = 0.0
        self._q: Tensor | None = None

    def of_rows(self, share: Tensor | float) -> Tensor | float:
        return share[self.place] if isinstance(share, Tensor) else share

    def _copied(self) -> Tensor:
        if self._q is None:
            self._q = self.group.q[self.place]  # (chunk, labels)
        return self._q

    def dot_targets(self, values: Tensor) -> Tensor:
        """Each row of values times its soft target, summed; (chunk,)."""
        if not self.loops:
            return (values * self._copied()).sum(1)
        dots = values.new_empty(len(values))
        for k, part in self._segments():
            torch.mv(values[part], self.group.q[k], out=dots[part])
        return dots

    def subtract_targets(self, values: Tensor, share: Tensor | float) -> None:
        """values -= share * soft target, row by row."""
        if not self.loops:
            if isinstance(share, Tensor):
                values.addcmul_(self._copied(), share.unsqueeze(1), value=-1)
            else:
                values.sub_(self._copied(), alpha=share)
            return
        column = _column([share], len(values), values).squeeze(1)
        for k, part in self._segments():
            values[part].addr_(column[part], self.group.q[k], alpha=-1)

    def add_to_sums(self, seen: Tensor, weights: Tensor) -> None:
        """Add the weighted rows to the sums of their labels."""
        assert self.group.sums is not None
        if not self.loops:
            self.group.sums.index_add_(0, self.place, seen.mul_(weights.unsqueeze(1)))
            return
        for k, part in self._segments():
            self.group.sums[k].addmv_(seen[part].T, weights[part])

    def _segments(self) -> Iterator[tuple[int, slice]]:
        """The labels of the chunk: where each stands in the group, and its rows within the chunk."""
        assert self.group.sizes is not None
        start = self.group.start
        for k, size in enumerate(self.group.sizes):
            first, last = max(start, self.rows.start), min(start + size, self.rows.stop)
            if first < last:
                yield k, slice(first - self.rows.start, last - self.rows.start)
            start += size


def _totals(stats: list[Tensor], weights: Tensor, kinds: int) -> Tensor:
    """(kinds, 2): each statistic summed over the rows, weighted and unweighted."""
    if not stats:
        return weights.new_zeros(kinds, 2)
    return (stats[0] if len(stats) == 1 else torch.cat(stats, 1)) @ weights


def _place(whole: Tensor, order: Tensor | None, rows: slice, part: Tensor) -> None:
    """Write a chunk of sorted rows to where they stand in the batch."""
    whole[rows if order is None else order[rows]] = part


def _plus(gradient: Tensor | None, more: Tensor) -> Tensor:
    return more if gradient is None else gradient.add_(more)


def _column(values: Sequence[Tensor | float], size: int, like: Tensor) -> Tensor:
    """Values of `size` rows each, below each other: (len(values) * size, 1)."""
    columns = [value if isinstance(value, Tensor) else like.new_full((size,), value) for value in values]
    return torch.cat(columns).unsqueeze(1)


def _cap_slope(p: Tensor, objective: Objective) -> Tensor:
    """The derivative of the cap at probability p."""
    excess = p - objective.alpha
    side = excess.sign() if objective.two_sided_cap else (excess > 0).to(p.dtype)
    return side if objective.p == 1 else 2 * side * excess.abs()


def _chunk_rows(num_labels: int) -> int:
    low, high = CHUNK_ROWS
    return max(low, min(high, CHUNK_BYTES // (4 * num_labels)))
