"""The objective where each process holds some labels: what crosses the wire is a few numbers a row.

A process has its columns of z1, z2 and e, and q = softmax(e). Each step of the chunked pass that needs all labels
becomes a reduction over the processes:

- log softmax of z1 and z2: the maximum, then the sum of exp(z - maximum) and the label's own z (0 elsewhere), for every
  row. The label is right where its own z - maximum is 0.
- z2'' = softmax(z2 / tau): the sum of exp((z2 - maximum) / tau).
- e = ReLU(A_y B): rows of A from the processes that hold them; maximum and sum for its softmax; with a mass floor q_y.
  All for distinct labels, not rows.
- soft = -q . log z1', and T . e of the embedding term: partial dots, added up once for the whole batch.
- gradients: of weights, biases and B local; of the rows of A and of the hidden states a sum over the processes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from labelemb.embeddings.row_formulas import compressed_rows
from labelemb.losses.chunked.sweep import LogRows, Sweep, rows_in_chunk

if TYPE_CHECKING:
    from labelemb.heads.sharded.head import ShardedLabelEmbeddingHead
    from labelemb.losses.batch import Batch


class ShardedSweep(Sweep):
    """One pass over a batch that every process of the mesh has, each with its own labels."""

    def __init__(
        self, head: ShardedLabelEmbeddingHead, batch: Batch, soft_active: bool, progress: float | None
    ) -> None:
        super().__init__(head, batch, soft_active, progress)
        self.shard = head.shard
        self.width = self.shard.width
        # chunks must be the same in all processes, also in those with fewer labels
        self.chunk_rows = head.chunk_rows or rows_in_chunk(self.shard.largest)

    def _look_up(self, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        work = self.products.dtype
        left, *others = (x.detach() for x in self.inputs[5:] if x is not None)
        self.compressed = self.shard.sum(self.shard.pick(left, labels).to(work))  # (distinct, rank)
        everything = torch.arange(len(labels), device=labels.device)
        rows = compressed_rows(everything, self.compressed, *(x.to(work) for x in others))  # (distinct, held labels)
        best = self.shard.row_maximum(rows)
        q = torch.sub(rows, best.unsqueeze(1), out=self._room("q", len(labels))).exp_()
        total = self.shard.sum(q.sum(1))
        return rows, q.div_(total.unsqueeze(1)), best + total.log()

    def _own(self, values: Tensor, labels: Tensor) -> Tensor:
        return self.shard.sum(self.shard.own(values, labels))

    def _add_to_own(self, values: Tensor, own: Tensor, more: Tensor) -> None:
        self.shard.add_to_own(values, own.squeeze(1), more.squeeze(1))

    def _normalise(self, logits: Tensor, own: Tensor) -> LogRows:
        best = self.shard.row_maximum(logits)
        log_p = torch.sub(logits, best.unsqueeze(1), out=self._room("log_p", len(own)))
        sums = torch.stack([torch.exp(log_p, out=logits).sum(1), self.shard.own(log_p, own.squeeze(1))])
        total, below_best = self.shard.sum(sums).unbind()
        self.log_total = total.log()  # _soften starts from it
        log_p.sub_(self.log_total.unsqueeze(1))
        # a maximum over processes may lose a NaN, the sum does not
        return LogRows(log_p, below_best - self.log_total, below_best == 0, total.isfinite())

    def _soften(self, log_p: Tensor, out: Tensor) -> Tensor:
        below_best = log_p.add_(self.log_total.unsqueeze(1))
        seen = torch.exp(below_best.div_(self.objective.tau), out=out)
        return seen.div_(self.shard.sum(seen.sum(1)).unsqueeze(1))

    def _add_embedding_gradients(
        self, labels: Tensor, rows: Tensor, gradient: Tensor, buffers: Sequence[Tensor]
    ) -> None:
        gradient.mul_(rows > 0)
        right = self.inputs[6]
        assert right is not None
        on_compressed = self.shard.sum(gradient @ right.detach().to(gradient.dtype).T)  # (distinct, rank)
        places, held = self.shard.places(labels)
        buffers[0].index_add_(0, places[held], on_compressed[held])
        buffers[1].addmm_(self.compressed.T, gradient)
        for on_bias in buffers[2:]:
            on_bias.add_(gradient.sum(0))

    def _over_labels(self, sums: Tensor) -> Tensor:
        return self.shard.sum(sums)

    def _finish(self) -> None:
        if self.wanted[0]:
            self.gradients[0] = self.shard.sum(self._buffer(0).contiguous())
        super()._finish()
