"""The soft targets of a chunk of rows, in the cheapest form."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor

from labelemb.labelspace.rows import SparseRows
from labelemb.losses.chunked.rows import Group


class ChunkTargets(Protocol):
    """The soft target q of each row of a chunk."""

    def dot(self, logits: Tensor) -> Tensor:
        """q . logits of each row, (chunk,)."""

    def subtract_from(self, values: Tensor, share: Tensor) -> None:
        """values -= share * q; `share` is (chunk,)."""


class NoTargets:
    """No soft targets: cross entropy with hard ones."""

    def dot(self, logits: Tensor) -> Tensor:
        return logits.new_zeros(len(logits))

    def subtract_from(self, values: Tensor, share: Tensor) -> None:
        pass


class RowTargets:
    """A distribution for each row: q is (chunk, labels)."""

    def __init__(self, q: Tensor) -> None:
        self.q = q

    def dot(self, logits: Tensor) -> Tensor:
        return (logits * self.q).sum(1)

    def subtract_from(self, values: Tensor, share: Tensor) -> None:
        values.addcmul_(self.q, share.unsqueeze(1), value=-1)


class LoopTargets:
    """A distribution for each label of sorted rows: a loop over the labels, without a copy for each row."""

    def __init__(self, q: Tensor, group: Group, part: slice) -> None:
        self.q, self.group, self.part = q, group, part

    def dot(self, logits: Tensor) -> Tensor:
        dots = logits.new_empty(len(logits))
        for k, rows in self._segments():
            torch.mv(logits[rows], self.q[k], out=dots[rows])
        return dots

    def subtract_from(self, values: Tensor, share: Tensor) -> None:
        for k, rows in self._segments():
            values[rows].addr_(share[rows], self.q[k], alpha=-1)

    def _segments(self) -> Iterator[tuple[int, slice]]:
        return self.group.segments(self.part)


class SparseTargets:
    """A few entries for each row and the same share for every other label: never a (chunk, labels) tensor.

    The even share is left out here: it is a constant of the row, which `EvenShares` brings in for all rows at once.
    """

    def __init__(self, rows: SparseRows) -> None:
        self.rows = rows

    def own_mass(self, labels: Tensor) -> Tensor:
        on_label = torch.where(self.rows.indices == labels.unsqueeze(1), self.rows.excess, 0.0)
        return on_label.sum(1) + self.rows.share

    def dot(self, logits: Tensor) -> Tensor:
        return (logits.gather(1, self.rows.indices) * self.rows.excess).sum(1)

    def subtract_from(self, values: Tensor, share: Tensor) -> None:
        values.scatter_add_(1, self.rows.indices, self.rows.excess * -share.unsqueeze(1))
