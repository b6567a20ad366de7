"""The chunked objective with labels split over processes; only a few numbers per row are exchanged.

A process has its columns of z1, z2 and e, and q = softmax(e). Each step of the chunked pass that needs all labels
becomes a reduction over the processes:

- softmax of z1 and z2: the maximum, then the sum of exp(z - maximum) and the label's own z (0 elsewhere), for every
  row. The label is right where its own z - maximum is 0.
- z2'' = softmax(z2 / tau): the sum of exp((z2 - maximum) / tau).
- e = ReLU(A_y B): rows of A from the processes that hold them; maximum and sum for its softmax; with a mass floor q_y.
  All for distinct labels, not rows, once for the soft targets and once for what the embedding learns.
- soft = lse(z1) - q . z1, and T . e of the embedding term: partial dots, added up once for the whole batch.
- gradients: of weights, biases and B local; of the rows of A and of the hidden states a sum over the processes.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from labelemb.embeddings.base import LabelEmbedding, RowGradients
from labelemb.heads.sharded.shard import LabelShard
from labelemb.labelspace.rows import factor_rows
from labelemb.losses.chunked.labels import LabelAxis, Reading


class LocalLayer(NamedTuple):
    """A process's part of a linear layer."""

    weight: Tensor
    bias: Tensor | None

    def __call__(self, hidden: Tensor, /) -> Tensor:
        return torch.nn.functional.linear(hidden, self.weight, self.bias)


class SplitAxis(LabelAxis):
    """Logits (chunk, held labels) of which other processes have the other labels."""

    split = True

    def __init__(self, shard: LabelShard) -> None:
        super().__init__(shard.num_labels)
        self.shard, self.width, self.widest = shard, shard.width, shard.largest
        self.leads = shard.rank == 0

    def maximum(self, logits: Tensor) -> Tensor:
        return self.shard.row_maximum(logits)

    def total(self, sums: Tensor) -> Tensor:
        return self.shard.sum(sums.contiguous())

    def own_mass(self, q: Tensor, labels: Tensor) -> Tensor:
        return self.shard.sum(self.shard.own(q, labels))

    def add_to_own(self, values: Tensor, labels: Tensor, more: Tensor) -> None:
        self.shard.add_to_own(values, labels, more)

    def softmax_(self, logits: Tensor, best: Tensor, labels: Tensor) -> Reading:
        logits.sub_(best.unsqueeze(1))
        own = self.shard.own(logits, labels)
        sums = torch.stack([logits.exp_().sum(1), own])
        total, below_best = self.shard.sum(sums).unbind()
        logits.div_(total.unsqueeze(1))
        log_total = total.log()
        # a maximum over processes may lose a NaN, the sum does not
        finite = total - total == 0
        return Reading(below_best - log_total, best + log_total, below_best == 0, finite)

    def soften(self, logits: Tensor, best: Tensor, tau: float, out: Tensor) -> Tensor:
        seen = torch.sub(logits, best.unsqueeze(1), out=out).div_(tau).exp_()
        return seen.div_(self.shard.sum(seen.sum(1)).unsqueeze(1)).nan_to_num_(0.0)


class SplitEmbedding(LabelEmbedding):
    """ReLU(A_y B + bias) over the held labels; its tensors A (held labels, rank), B and bias are a process's parts."""

    def __init__(self, shard: LabelShard, tensors: dict[str, Tensor]) -> None:
        super().__init__(shard.num_labels)
        self.shard, self._tensors = shard, tensors

    def trained_tensors(self) -> dict[str, Tensor]:
        return self._tensors

    def probabilities(self, labels: Tensor) -> Tensor:
        q, _, total = self._exponentials(self._rows(self._factors(labels)))
        return q.div_(total.unsqueeze(1))

    @torch.no_grad()
    def _learn_in_place(self, labels: Tensor | None, sums: Tensor, masses: Tensor, gradients: RowGradients) -> Tensor:
        """This process's part of the term, which the loss adds up."""
        if labels is None:
            labels = torch.arange(self.num_labels, device=sums.device)
        factors = self._factors(labels)
        rows = self._rows(factors)
        q, best, total = self._exponentials(rows)
        term = -torch.dot(sums.reshape(-1), rows.reshape(-1))
        if self.shard.rank == 0:
            term = term + masses @ (best + total.log())
        on_rows = q.mul_((masses / total * gradients.factor).unsqueeze(1)).addcmul_(sums, gradients.factor, value=-1)
        on_rows.mul_(rows > 0)
        self._add_gradients(labels, factors, on_rows, gradients.buffers)
        return term

    def _add_gradients(self, labels: Tensor, factors: Tensor, on_rows: Tensor, buffers: dict[str, Tensor]) -> None:
        if "A" in buffers:
            on_factors = self.shard.sum(on_rows @ self._tensors["B"].detach().to(on_rows.dtype).T)  # (distinct, rank)
            places, held = self.shard.places(labels)
            buffers["A"].index_add_(0, places[held], on_factors[held])
        if "B" in buffers:
            buffers["B"].addmm_(factors.T, on_rows)
        if "bias" in buffers:
            buffers["bias"].add_(on_rows.sum(0))

    def _factors(self, labels: Tensor) -> Tensor:
        """A_y of some labels, (k, rank), from the processes that hold them."""
        A = self._tensors["A"].detach()
        return self.shard.sum(self.shard.pick(A.to(torch.promote_types(A.dtype, torch.float32)), labels))

    def _rows(self, factors: Tensor) -> Tensor:
        """(k, held labels)."""
        bias = self._tensors.get("bias")
        everything = torch.arange(len(factors), device=factors.device)
        others = (self._tensors["B"].detach().to(factors), None if bias is None else bias.detach().to(factors))
        return factor_rows(everything, factors, *others)

    def _exponentials(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """exp(rows - best), best, and the sum over all labels."""
        best = self.shard.row_maximum(rows)
        q = (rows - best.unsqueeze(1)).exp_()
        return q, best, self.shard.sum(q.sum(1))
