"""Rows of a batch grouped by label, and the soft targets of a chunk of them: what the chunked head sweeps over."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor


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
    normaliser: Tensor | None  # (distinct,): log-sum-exp of `rows`
    hard_share: Tensor | float  # (distinct,) with a mass floor
    soft_share: Tensor | float
    sums: Tensor | None  # (distinct, labels): T, what the observer saw of each label
    mass: Tensor | None  # (distinct,): the weight of the rows in it


class ChunkTargets:
    """The soft target of each row of a chunk. Long rows are not copied: a loop over the labels serves them."""

    def __init__(self, group: Group, rows: slice, place: Tensor, loops: bool) -> None:
        self.group, self.rows, self.place, self.loops = group, rows, place, loops
        self.q: Tensor | None = None

    def _copied(self) -> Tensor:
        if self.q is None:
            self.q = self.group.q[self.place]  # (chunk, labels)
        return self.q

    def dot(self, values: Tensor) -> Tensor:
        """Each row of values times its soft target, summed; (chunk,)."""
        if not self.loops:
            return (values * self._copied()).sum(1)
        dots = values.new_empty(len(values))
        for k, part in self._segments():
            torch.mv(values[part], self.group.q[k], out=dots[part])
        return dots

    def subtract_from(self, values: Tensor, share: Tensor | float) -> None:
        """values -= share * soft target, row by row."""
        if not self.loops:
            if isinstance(share, float):
                values.sub_(self._copied(), alpha=share)
            else:
                values.addcmul_(self._copied(), share.unsqueeze(1), value=-1)
            return
        column = as_column(share, self.place.unsqueeze(1), values.dtype).squeeze(1)
        for k, part in self._segments():
            values[part].addr_(column[part], self.group.q[k], alpha=-1)

    def add_to_sums(self, seen: Tensor, weights: Tensor) -> None:
        """Add the weighted rows to the sums of their labels."""
        assert self.group.sums is not None
        if not self.loops:
            self.group.sums.index_add_(0, self.place, seen.mul_(weights.unsqueeze(1)))
            return
        for k, part in self._segments():
            if part.start > 0 or self.rows.start == self.group.start:  # the label's first rows
                torch.mv(seen[part].T, weights[part], out=self.group.sums[k])
            else:
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


def as_column(share: Tensor | float, like: Tensor, dtype: torch.dtype) -> Tensor:
    """A share of each row, or of all rows alike, in the shape of `like` (rows, 1)."""
    if isinstance(share, Tensor):
        return share.unsqueeze(1)
    return torch.full(like.shape, share, dtype=dtype, device=like.device)
