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

CHUNK_BYTES = 48 * 1024**2
"""A chunk of logits has about this size, within the limits of CHUNK_ROWS."""
CHUNK_ROWS = (32, 256)
FEW_CHUNK_VALUES = 1 << 22
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
    hard_share: Tensor | float
    soft_share: Tensor | float
    sums: Tensor | None  # (distinct, labels): T, what the observer saw of each label
    mass: Tensor  # (distinct,): the weight of the rows in it


class Sweep:
    """One pass over a batch: run() fills loss, terms, counts and the gradients of all inputs."""

    loss: Tensor
    terms: LossTerms
    gradients: list[Tensor | None]

    def __init__(self, head: LabelEmbeddingHead, batch: Batch, soft_active: bool, progress: float | None) -> None:
        self.objective: Objective = head.objective
        self.embedding: LabelEmbedding = head.embedding
        self.batch, self.soft_active, self.progress = batch, soft_active, progress
        self.num_labels = head.num_labels
        self.needs_gradients = torch.is_grad_enabled()
        self.table = head.embedding if head.training and isinstance(head.embedding, RunningEmbedding) else None
        self.collects = head.embedding.learned or self.table is not None
        self.products = Products(batch.hidden, head.predictor.weight)
        self.chunk_rows = head.chunk_rows or _chunk_rows(self.num_labels)
        few = head.chunk_rows is None and batch.hidden.shape[0] * self.num_labels <= FEW_CHUNK_VALUES
        if few:
            self.chunk_rows = max(1, batch.hidden.shape[0])
        self.keeps_logits = few
        self.logits: Tensor | None = None

    def run(self, inputs: Sequence[Tensor | None]) -> None:
        """`inputs`: hidden, predictor weight and bias, observer weight and bias, embedding parameters."""
        self.inputs = inputs
        batch, work = self.batch, self.products.dtype
        self._order_rows()
        hidden = self._sorted(batch.hidden)
        observed = hidden if batch.observed_hidden is None else self._sorted(batch.observed_hidden)
        self._start(hidden)
        if self.table is not None:
            self.table.begin(batch.valid.sum())
        for group in self._groups():
            for start in range(group.start, group.stop, self._stride(group)):
                rows = slice(start, min(start + self._stride(group), group.stop))
                self._predictor_chunk(group, rows, hidden[rows].to(work))
                if inputs[3] is not None:
                    self._observer_chunk(group, rows, observed[rows].to(work))
            self._close(group)
        if self.table is not None:
            self.table.finish()
        self._finish()

    def _order_rows(self) -> None:
        """Decide whether rows are sorted by label: not needed when a chunk has room for a row of every label."""
        batch = self.batch
        assert batch.labels is not None
        everything = bool(batch.valid.all())
        valid = None if everything else batch.valid.nonzero().squeeze(1)
        count = len(batch.labels) if valid is None else len(valid)
        self.sorted_rows = self.num_labels > min(count, self.chunk_rows)
        labels = batch.labels if valid is None else batch.labels[valid]
        self.order = valid  # None: as they come
        if self.sorted_rows:
            order = labels.argsort(stable=True)
            labels = labels[order]
            self.order = order if valid is None else valid[order]
        self.labels = labels
        self.weights = self._sorted(batch.weights)

    def _sorted(self, value: Tensor) -> Tensor:
        value = value.detach()
        return value if self.order is None else value[self.order]

    def _start(self, hidden: Tensor) -> None:
        batch, device, work = self.batch, hidden.device, self.products.dtype
        self.total = torch.where(batch.total > 0, batch.total, 1)
        self.unit_weights = self.weights / self.total  # (rows,)
        self.sums = torch.zeros(5, dtype=work, device=device)
        self.supervision = torch.zeros((), dtype=work, device=device)
        self.right_weight = torch.zeros((), dtype=work, device=device)
        self.correct = torch.zeros((), dtype=torch.long, device=device)
        self.right = torch.zeros(len(batch.valid), dtype=torch.bool, device=device)
        wanted = [self.needs_gradients and x is not None and x.requires_grad for x in self.inputs]
        self.gradients = [
            torch.zeros_like(x, dtype=work) if want and x is not None else None
            for x, want in zip(self.inputs, wanted, strict=True)
        ]

    def _stride(self, group: Group) -> int:
        rows = group.stop - group.start
        chunks = max(1, -(-rows // self.chunk_rows))
        return max(1, -(-rows // chunks))

    def _groups(self) -> Iterator[Group]:
        if not len(self.labels):
            return
        if not self.sorted_rows:
            labels = torch.arange(self.num_labels, device=self.labels.device)
            yield self._open(labels, None, 0, len(self.labels), self.labels)
            return
        distinct, place, counts = self.labels.unique_consecutive(return_inverse=True, return_counts=True)
        sizes: list[int] = counts.tolist()
        first, start = 0, 0
        while first < len(sizes):
            last, stop = first + 1, start + sizes[first]
            while last < len(sizes) and stop + sizes[last] - start <= self.chunk_rows:
                stop += sizes[last]
                last += 1
            yield self._open(distinct[first:last], sizes[first:last], start, stop, place[start:stop] - first)
            first, start = last, stop

    def _open(self, labels: Tensor, sizes: list[int] | None, start: int, stop: int, place: Tensor) -> Group:
        work = self.products.dtype
        rows = self.embedding.rows(labels).detach().to(work) if self.embedding.learned else None
        q = self.embedding.probabilities(labels).detach().to(work) if rows is None else rows.softmax(-1)
        own = q.gather(1, labels.unsqueeze(1)).squeeze(1)
        hard_share, soft_share = target_shares(own, self.objective, self.soft_active, self.progress)
        if self.objective.mass_floor == 0 and not self.soft_active:
            soft_share = 0.0
        sums = torch.zeros_like(q) if self.collects else None
        mass = torch.zeros_like(own)
        return Group(labels, sizes, start, stop, place, rows, q, hard_share, soft_share, sums, mass)

    def _predictor_chunk(self, group: Group, rows: slice, hidden: Tensor) -> None:
        place = group.place[rows.start - group.start : rows.stop - group.start]
        own = self.labels[rows].unsqueeze(1)  # (chunk, 1)
        logits = self.products.linear(hidden, self.inputs[1], self.inputs[2])  # (chunk, m)
        if self.keeps_logits:
            self._keep(logits, rows)
        best, at_label = logits.amax(1), logits.gather(1, own).squeeze(1)
        p = logits.softmax(1)
        normaliser = best - p.amax(1).log()
        hard = normaliser - at_label
        soft = (normaliser - self._dot_with_targets(group, rows, logits, place)) * self.soft_active
        hard_share = group.hard_share[place] if isinstance(group.hard_share, Tensor) else group.hard_share
        soft_share = group.soft_share[place] if isinstance(group.soft_share, Tensor) else group.soft_share
        weights = self.weights[rows]
        self.sums[0] += weights @ hard
        self.sums[1] += weights @ soft
        self.supervision += weights @ (hard_share * hard + soft_share * soft)
        self.correct += (at_label == best).sum()
        if all(gradient is None for gradient in self.gradients[:3]):
            return
        both = hard_share + soft_share
        if isinstance(both, float):
            if both == 0:
                return
            hard_share, soft_share = hard_share / both, soft_share / both
        p.scatter_add_(1, own, _column(-hard_share, own, p.dtype))
        self._subtract_targets(group, rows, p, place, soft_share)
        self._add_layer_gradients(rows, p, hidden, self.unit_weights[rows] * both, 1)
        if self.gradients[0] is not None:
            product = self.products.times(p, self.inputs[1]) * (self.unit_weights[rows] * both).unsqueeze(1)
            self._place(self.gradients[0], rows, product)

    def _observer_chunk(self, group: Group, rows: slice, hidden: Tensor) -> None:
        objective = self.objective
        own = self.labels[rows].unsqueeze(1)
        logits = self.products.linear(hidden, self.inputs[3], self.inputs[4])
        best, at_label = logits.amax(1), logits.gather(1, own).squeeze(1)
        finite = best.isfinite()
        right = (at_label == best) & finite
        p = logits.softmax(1)
        log_p = at_label - best + p.amax(1).log()
        label_p = log_p.exp()
        weights = self.weights[rows]
        self.sums[2] -= weights @ log_p
        self.sums[3] += weights @ cap_of(label_p, objective)
        self.right_weight += weights @ right.to(weights.dtype)
        self._place(self.right, rows, right)
        if self.gradients[3] is not None or self.gradients[4] is not None:
            cap_weights = self.unit_weights[rows] if objective.cap_reduction == "mean" else weights
            pull = objective.cap_weight * cap_weights * _cap_slope(label_p, objective) * label_p
            p.scatter_add_(1, own, -torch.ones_like(own, dtype=p.dtype))
            self._add_layer_gradients(rows, p, hidden, self.unit_weights[rows] - pull, 3)
        if group.sums is not None:
            gate = weights * (right if objective.correct_only else finite)
            seen = torch.softmax(logits.div_(objective.tau), 1, out=p)
            if not bool(finite.all()):
                seen[~finite] = 0
            self._collect(group, rows, seen, gate)

    def _close(self, group: Group) -> None:
        if group.sums is None or self.inputs[3] is None:
            return
        if self.table is not None:
            self.table.observe(group.labels, group.sums, group.mass)
            return
        assert group.rows is not None
        normaliser = group.rows.amax(1) - group.q.amax(1).log()
        self.sums[4] += group.mass @ normaliser - torch.dot(group.sums.view(-1), group.rows.view(-1))
        buffers = self.gradients[5:]
        if buffers and all(buffer is not None for buffer in buffers):
            gradient = group.q.mul_(group.mass.unsqueeze(1)).sub_(group.sums)
            if self.objective.embedding_reduction == "all":
                gradient.div_(self.total)
            self.embedding.add_row_gradients(
                group.labels, group.rows, gradient, [buffer for buffer in buffers if buffer is not None]
            )

    def _finish(self) -> None:
        objective = self.objective
        totals = self.total.expand(5).clone()
        if objective.cap_reduction == "sum":
            totals[3] = 1
        if objective.embedding_reduction == "correct":
            totals[4] = self.right_weight.clamp_min(1)
            for buffer in self.gradients[5:]:
                if buffer is not None:
                    buffer.div_(totals[4])
        self.terms = LossTerms(*(self.sums / totals).unbind())
        self.loss = self.supervision / self.total + training_terms(self.terms, objective)
        self.gradients = [
            None if gradient is None or x is None else gradient.to(x.dtype)
            for gradient, x in zip(self.gradients, self.inputs, strict=True)
        ]

    def _dot_with_targets(self, group: Group, rows: slice, logits: Tensor, place: Tensor) -> Tensor:
        """Each row's logits times its label's soft target, summed; (chunk,)."""
        if group.sizes is None or self.num_labels < LONG_ROW:
            return (logits * group.q[place]).sum(1)
        dots = logits.new_empty(len(logits))
        for k, part in _segments(group, rows):
            torch.mv(logits[part], group.q[k], out=dots[part])
        return dots

    def _subtract_targets(self, group: Group, rows: slice, p: Tensor, place: Tensor, share: Tensor | float) -> None:
        """p -= share * q of each row's label."""
        column = _column(share, place.unsqueeze(1), p.dtype)  # (chunk, 1)
        if group.sizes is None or self.num_labels < LONG_ROW:
            p.addcmul_(group.q[place], column, value=-1)
            return
        for k, part in _segments(group, rows):
            p[part].addr_(column[part, 0], group.q[k], alpha=-1)

    def _collect(self, group: Group, rows: slice, seen: Tensor, weights: Tensor) -> None:
        """Add the weighted rows of what the observer saw to the sums of their labels."""
        assert group.sums is not None
        place = group.place[rows.start - group.start : rows.stop - group.start]
        group.mass.index_add_(0, place, weights)
        if group.sizes is None or self.num_labels < LONG_ROW:
            group.sums.index_add_(0, place, seen * weights.unsqueeze(1))
            return
        for k, part in _segments(group, rows):
            group.sums[k].addmv_(seen[part].T, weights[part])

    def _add_layer_gradients(self, rows: slice, on_logits: Tensor, hidden: Tensor, weights: Tensor, layer: int) -> None:
        weight, bias = self.gradients[layer], self.gradients[layer + 1]
        if weight is not None:
            self.products.add_outer(weight, on_logits, hidden * weights.unsqueeze(1))
        if bias is not None:
            bias.addmv_(on_logits.T, weights)

    def _keep(self, logits: Tensor, rows: slice) -> None:
        if self.order is None:
            self.logits = logits.clone()
            return
        if self.logits is None:
            ignored = self.products.linear(self.batch.hidden.to(logits.dtype), self.inputs[1], self.inputs[2])
            self.logits = ignored
        self._place(self.logits, rows, logits)

    def _place(self, whole: Tensor, rows: slice, part: Tensor) -> None:
        """Write a chunk of sorted rows to where they stand in the batch."""
        if self.order is None:
            whole[rows] = part
        else:
            whole[self.order[rows]] = part


def _segments(group: Group, rows: slice) -> Iterator[tuple[int, slice]]:
    """The labels of a chunk: where each stands in the group, and its rows within the chunk."""
    assert group.sizes is not None
    start = group.start
    for k, size in enumerate(group.sizes):
        first, last = max(start, rows.start), min(start + size, rows.stop)
        if first < last:
            yield k, slice(first - rows.start, last - rows.start)
        start += size


def _column(share: Tensor | float, like: Tensor, dtype: torch.dtype) -> Tensor:
    if isinstance(share, Tensor):
        return share.unsqueeze(1)
    return torch.full(like.shape, share, dtype=dtype, device=like.device)


def _cap_slope(p: Tensor, objective: Objective) -> Tensor:
    """The derivative of the cap at probability p."""
    excess = p - objective.alpha
    side = excess.sign() if objective.two_sided_cap else (excess > 0).to(p.dtype)
    return side if objective.p == 1 else 2 * side * excess.abs()


def _chunk_rows(num_labels: int) -> int:
    low, high = CHUNK_ROWS
    return max(low, min(high, CHUNK_BYTES // (4 * num_labels)))
