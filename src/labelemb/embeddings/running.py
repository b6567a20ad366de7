"""`RunningEmbedding`: the label embedding as a running mean of what the observer sees, without an optimiser."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor

from labelemb.embeddings.base import LabelEmbedding
from labelemb.embeddings.row_formulas import log_rows, spread_probabilities
from labelemb.labelspace import LabelSpace
from labelemb.support.tensors import kept_wide, sum_over_processes

TABLE_LIMIT_BYTES = 512 * 1024**2
DEFAULT_TOP_K = 64
ROWS_PER_LABEL = 100
"""An epoch's rows of each label where nobody says how many there are."""


class RunningEmbedding(LabelEmbedding):
    """For each label the running mean of the observer's softened distribution, with a time constant of one epoch.

    A label that was not seen yet has itself as its soft target. Each training call first lets the weight of what was
    seen decay by exp(-rows / rows_per_epoch), then averages the call's rows in; a call's own loss uses the table as it
    was before.

    Arguments:
        rows_per_epoch: examples in one epoch (tokens for a sequence model); without it, 100 per label.
        top_k: keep only each label's largest entries and spread what is left evenly over the others: m x top_k
            numbers in place of m x m. By default all entries up to a table of 512 MB, beyond that 64.
    """

    learned = False

    def __init__(self, num_labels: int, rows_per_epoch: int | None = None, top_k: int | None = None) -> None:
        super().__init__(num_labels)
        if rows_per_epoch is not None and rows_per_epoch < 1:
            raise ValueError(f"rows_per_epoch is {rows_per_epoch}, but must be 1 or more")
        if top_k is None and 4 * num_labels**2 > TABLE_LIMIT_BYTES:
            top_k = DEFAULT_TOP_K
        if top_k is not None and not 1 <= top_k < num_labels:
            raise ValueError(f"top_k is {top_k}, but must be in [1, {num_labels}) for {num_labels} labels")
        self.rows_per_epoch = rows_per_epoch or ROWS_PER_LABEL * num_labels
        self.top_k = top_k
        self.mass: Tensor
        self.register_buffer("mass", torch.zeros(num_labels))
        self.table: Tensor
        self.top_labels: Tensor
        self.top_probabilities: Tensor
        if top_k is None:
            self.register_buffer("table", torch.eye(num_labels))
        else:
            neighbors = torch.arange(num_labels).unsqueeze(1) + torch.arange(top_k)
            self.register_buffer("top_labels", neighbors % num_labels)  # the label itself first
            self.register_buffer("top_probabilities", F.one_hot(torch.zeros(num_labels).long(), top_k).float())
        self._pending: tuple[Tensor, Tensor] | None = None

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move with the head, but stay in float32 where it goes to half precision: a mean moves by less than that."""
        with kept_wide(self, ("mass", "table", "top_probabilities")):
            super()._apply(fn, recurse)
        return self

    def probabilities(self, labels: Tensor) -> Tensor:
        if self.top_k is None:
            return F.embedding(labels, self.table)
        return spread_probabilities(labels, self.top_labels, self.top_probabilities)

    def rows(self, labels: Tensor) -> Tensor:
        return log_rows(self.probabilities(labels))

    @torch.no_grad()
    def begin(self, rows: Tensor) -> None:
        """A batch of so many rows: what was seen before weighs less from now on."""
        rows = sum_over_processes(rows.to(self.mass.dtype))
        self.mass.mul_(torch.exp(-rows / self.rows_per_epoch))

    @torch.no_grad()
    def observe(self, labels: Tensor, sums: Tensor, masses: Tensor) -> None:
        """Average in the weighted sums (k, m) of the distributions seen for distinct labels, of total weights (k,)."""
        if self.top_k is None and sum_over_processes.active():
            if self._pending is None:
                self._pending = torch.zeros_like(self.table), torch.zeros_like(self.mass)
            self._pending[0].index_add_(0, labels, sums.to(self.table.dtype))
            self._pending[1].index_add_(0, labels, masses.to(self.mass.dtype))
        else:
            self._average_in(labels, sums, masses)

    @torch.no_grad()
    def finish(self) -> None:
        """End of the batch: bring in what the other processes saw. Every process calls it once a batch."""
        if self.top_k is None and sum_over_processes.active():
            pending = self._pending or (torch.zeros_like(self.table), torch.zeros_like(self.mass))
            self._pending = None
            everything = torch.arange(self.num_labels, device=self.mass.device)
            self._average_in(everything, sum_over_processes(pending[0]), sum_over_processes(pending[1]))

    def _average_in(self, labels: Tensor, sums: Tensor, masses: Tensor) -> None:
        before, added = self.mass[labels], masses.to(self.mass.dtype)
        total = before + added
        keep = torch.where(total > 0, before / total, 1.0).unsqueeze(1)
        gain = torch.where(total > 0, 1 / total, 0.0).unsqueeze(1)
        rows = self.probabilities(labels).mul_(keep).addcmul_(sums.to(self.mass.dtype), gain)  # (k, m)
        if self.top_k is None:
            self.table.index_copy_(0, labels, rows)
        else:
            kept, where = largest(rows, self.top_k)
            seen = (added > 0).unsqueeze(1)
            self.top_labels.index_copy_(0, labels, torch.where(seen, where, self.top_labels[labels]))
            self.top_probabilities.index_copy_(0, labels, torch.where(seen, kept, self.top_probabilities[labels]))
        self.mass.index_copy_(0, labels, total)

    def to_space(self, names: Sequence[str] | None, counts: Tensor, objective: dict[str, object]) -> LabelSpace:
        if self.top_k is None:
            return LabelSpace.from_matrix(self.table, names, kind="probability", counts=counts, objective=objective)
        return LabelSpace.from_top_k(self.top_labels, self.top_probabilities, names, counts=counts, objective=objective)

    def extra_repr(self) -> str:
        return f"num_labels={self.num_labels}, rows_per_epoch={self.rows_per_epoch}, top_k={self.top_k}"


def largest(rows: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest entries of each row and their places, like topk but by blocks: for long rows many times as fast.

    The k largest entries lie in the k blocks with the largest maxima, so only those are searched.
    """
    length = rows.shape[1]
    block = max(1, math.isqrt(length // k))
    blocks = length // block
    if block == 1 or blocks <= k:
        values, places = rows.topk(k, dim=1)
        return values, places
    blocked = rows[:, : blocks * block].unflatten(1, (blocks, block))
    chosen = blocked.amax(2).topk(k, dim=1).indices  # (rows, k)
    offsets = torch.arange(block, device=rows.device)
    candidates = (chosen.unsqueeze(2) * block + offsets).flatten(1)  # (rows, k * block)
    rest = torch.arange(blocks * block, length, device=rows.device).expand(len(rows), -1)
    candidates = torch.cat([candidates, rest], dim=1)
    values, places = rows.gather(1, candidates).topk(k, dim=1)
    return values, candidates.gather(1, places)
