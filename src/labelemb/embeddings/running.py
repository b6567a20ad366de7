"""`RunningEmbedding`: the label embedding as a running mean of what the observer sees, without an optimiser."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor

from labelemb.embeddings.base import LabelEmbedding, RowGradients
from labelemb.labelspace import LabelSpace
from labelemb.labelspace.rows import SparseRows, log_rows, sparse_rows
from labelemb.support.tensors import kept_wide, sum_over_processes

TABLE_LIMIT_BYTES = 512 * 1024**2
DEFAULT_TOP_K = 64
ROWS_PER_LABEL = 100
"""Rows of each label in an epoch, if `rows_per_epoch` is not given."""


class RunningEmbedding(LabelEmbedding):
    """A label embedding that is a running mean of the observer's softened predictions, without an optimiser.

    The time constant of the mean is one epoch. A label that was not seen yet has its one-hot vector as soft target, or
    with a prior the same probability for every label.
    Each training call first reduces the weight of earlier rows by exp(-rows / rows_per_epoch), then averages the rows
    of the call in. The loss of a call uses the table from before the call.

    With few observations a mean over many labels is noisy. A prior (Laplace smoothing) adds `prior_rows` imaginary rows
    that give every label the same probability: with M_y the decayed weight of the rows of y, its soft target is
    (M_y mean_y + prior_rows / m) / (M_y + prior_rows). The prior is applied on reading and is not stored.

    Arguments:
        num_labels: number of labels m.
        rows_per_epoch: number of examples in one epoch (tokens for a sequence model). None: 100 per label.
        top_k: keep only this many largest entries of each label and spread the remaining probability evenly over the
            others: m x top_k numbers instead of m x m. None: all entries if the table has at most 512 MB, else 64.
        prior_rows: number of imaginary rows of the prior. None: 0.
    """

    trained_by_gradient = False

    def __init__(
        self,
        num_labels: int,
        rows_per_epoch: int | None = None,
        top_k: int | None = None,
        prior_rows: float | None = None,
    ) -> None:
        super().__init__(num_labels)
        if rows_per_epoch is not None and not rows_per_epoch >= 1:
            raise ValueError(f"rows_per_epoch is {rows_per_epoch}, but must be 1 or more")
        if top_k is None and 4 * num_labels**2 > TABLE_LIMIT_BYTES:
            top_k = DEFAULT_TOP_K
        if top_k is not None and not 1 <= top_k < num_labels:
            raise ValueError(f"top_k is {top_k}, but must be in [1, {num_labels}) for {num_labels} labels")
        if isinstance(prior_rows, str):
            raise TypeError(f"prior_rows is {prior_rows!r}, but must be a number, 0 or more")
        if prior_rows is not None and not 0 <= prior_rows < math.inf:
            raise ValueError(f"prior_rows is {prior_rows}, but must be finite and 0 or more")
        self.rows_per_epoch = rows_per_epoch or ROWS_PER_LABEL * num_labels
        self.top_k, self.prior_rows = top_k, prior_rows or 0
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
        """Move with the head, but stay in float32 if it is converted to half precision: updates are too small."""
        with kept_wide(self, ("mass", "table", "top_probabilities")):
            super()._apply(fn, recurse)
        return self

    @property
    def learns(self) -> bool:
        return self.training

    def probabilities(self, labels: Tensor) -> Tensor:
        if self.top_k is not None:
            return self._sparse(labels).dense(self.num_labels)
        mean = F.embedding(labels, self.table)
        if not self.prior_rows:
            return mean
        known = self._known(labels).unsqueeze(1)
        return torch.lerp(torch.full_like(known, 1 / self.num_labels), mean, known)

    def sparse_probabilities(self, labels: Tensor) -> SparseRows | None:
        return None if self.top_k is None else self._sparse(labels)

    def rows(self, labels: Tensor) -> Tensor:
        return log_rows(self.probabilities(labels))

    def _sparse(self, labels: Tensor) -> SparseRows:
        mean = sparse_rows(labels, self.top_labels, self.top_probabilities)
        if not self.prior_rows:
            return mean
        known = self._known(labels)
        share = known * mean.share + (1 - known) / self.num_labels
        return SparseRows(mean.indices, mean.excess * known.unsqueeze(1), share)

    def _known(self, labels: Tensor) -> Tensor:
        """M / (M + prior_rows): the share of the soft target that comes from observed rows, (k,)."""
        mass = self.mass[labels]
        return mass / (mass + self.prior_rows)

    @torch.no_grad()
    def begin(self, rows: Tensor) -> None:
        """Reduce the weight of the rows seen before a batch of `rows` valid rows."""
        if self.training:
            rows = sum_over_processes(rows.to(self.mass.dtype))
            self.mass.mul_(torch.exp(-rows / self.rows_per_epoch))

    @torch.no_grad()
    def learn_from(
        self, labels: Tensor | None, sums: Tensor, masses: Tensor, gradients: RowGradients | None = None
    ) -> Tensor:
        """Average the given rows in; the embedding term is 0."""
        nothing = sums.new_zeros(())
        if not self.training:
            return nothing
        if labels is None:
            labels = torch.arange(self.num_labels, device=sums.device)
        sums, masses = sums.to(self.mass.dtype), masses.to(self.mass.dtype)
        if self.top_k is None and sum_over_processes.active():
            if self._pending is None:
                self._pending = torch.zeros_like(self.table), torch.zeros_like(self.mass)
            self._pending[0].index_add_(0, labels, sums)
            self._pending[1].index_add_(0, labels, masses)
        else:
            # of the processes' tables one is kept (docs/many-processes.md): its rows stand for those of all
            processes = sum_over_processes.processes()
            if processes > 1:
                sums, masses = sums * processes, masses * processes
            self._average_in(labels, sums, masses)
        return nothing

    @torch.no_grad()
    def finish(self) -> None:
        """Average in the rows of all processes. Every process must call it once per batch."""
        if self.training and self.top_k is None and sum_over_processes.active():
            pending = self._pending or (torch.zeros_like(self.table), torch.zeros_like(self.mass))
            self._pending = None
            everything = torch.arange(self.num_labels, device=self.mass.device)
            self._average_in(everything, sum_over_processes(pending[0]), sum_over_processes(pending[1]))

    def _average_in(self, labels: Tensor, sums: Tensor, masses: Tensor) -> None:
        """The mean of M rows and some more is (M mean + sums) / (M + masses). Changes are added: see `learn_from`."""
        before = self.mass[labels]
        total = (before + masses).clamp_min(torch.finfo(before.dtype).tiny)
        gain = (1 / total).unsqueeze(1)
        if self.top_k is None:
            change = F.embedding(labels, self.table).mul_(-masses.unsqueeze(1)).add_(sums).mul_(gain)
            self.table.index_add_(0, labels, change)
        else:
            old = sparse_rows(labels, self.top_labels, self.top_probabilities)
            # the even share of the old mean moves no entry past another, so it is added to those that are kept
            rows = sums.scatter_add_(1, old.indices, old.excess * before.unsqueeze(1))
            kept, where = largest(rows, self.top_k)
            kept = (kept + (before * old.share).unsqueeze(1)).mul_(gain)
            seen = (masses > 0).unsqueeze(1)
            old_labels, old_kept = self.top_labels[labels], self.top_probabilities[labels]
            self.top_labels.index_add_(0, labels, torch.where(seen, where - old_labels, 0))
            self.top_probabilities.index_add_(0, labels, torch.where(seen, kept - old_kept, 0.0))
        self.mass.index_add_(0, labels, masses)

    def to_space(self, names: Sequence[str] | None, counts: Tensor, objective: dict[str, object]) -> LabelSpace:
        """The mean, without the prior."""
        if self.top_k is None:
            return LabelSpace.from_matrix(self.table, names, kind="probability", counts=counts, objective=objective)
        return LabelSpace.from_top_k(self.top_labels, self.top_probabilities, names, counts=counts, objective=objective)

    def extra_repr(self) -> str:
        shown = f"num_labels={self.num_labels}, rows_per_epoch={self.rows_per_epoch}, top_k={self.top_k}"
        return f"{shown}, prior_rows={self.prior_rows:g}" if self.prior_rows else shown


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
