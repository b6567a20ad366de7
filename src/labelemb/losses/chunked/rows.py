"""The rows of a batch in processing order, split into chunks and groups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from labelemb.losses.batch import Batch
from labelemb.losses.groups import group_by_label
from labelemb.support.tensors import can_look_at

CHUNK_BYTES = 128 * 1024**2
"""A chunk of logits on a CPU has at most this size, within these limits of rows. Every chunk adds to the whole weight's
gradient, so larger ones are faster: 1,600 rows of 22,439 labels take 0.87 of the time in chunks of 800, not 256."""
FEWEST_ROWS, MOST_ROWS = 32, 1024
DEVICE_CHUNK_BYTES = 256 * 1024**2
"""On other devices many small chunks would cost more in starting operations than they save."""
SMALL_CHUNK = 1 << 20
"""Logits of a chunk of few labels: MOST_ROWS does not apply below."""
LONG_ROW = 4096
"""From this many labels on, a loop over the labels of a chunk beats copying a soft target to each of its rows (CPU)."""


@dataclass(frozen=True)
class Rows:
    """Some rows of a batch."""

    hidden: Tensor  # (rows, features)
    labels: Tensor  # (rows,)
    weights: Tensor  # (rows,)
    valid: Tensor | None  # (rows,); None: all of them
    order: Tensor | None  # (rows,), where they stand in the batch; None: all of it in its order

    def __len__(self) -> int:
        return len(self.labels)

    def sorted(self) -> Rows:
        """By label."""
        order = self.labels.argsort(stable=True)
        places = order if self.order is None else self.order[order]
        valid = None if self.valid is None else self.valid[order]
        return Rows(self.hidden[order], self.labels[order], self.weights[order], valid, places)

    def only_valid(self, right: Tensor) -> Tensor:
        return right if self.valid is None else right & self.valid

    def count(self) -> Tensor:
        """The number of valid rows."""
        return self.labels.new_full((), len(self)) if self.valid is None else self.valid.sum()

    def write(self, part: slice, values: Tensor, whole: Tensor) -> None:
        """Write the values of some rows to where these stand in the batch."""
        whole[part if self.order is None else self.order[part]] = values


@dataclass(frozen=True)
class Group:
    """Some labels, and the rows start:stop, which have no others."""

    labels: Tensor | None  # (slots,); None for all labels
    slots: int
    place: Tensor  # (rows of the group,), where a row's label stands in `labels`
    sizes: list[int] | None  # rows of each label in order; None where the rows are not sorted
    start: int
    stop: int

    def chunks(self, most: int) -> Iterator[slice]:
        """The rows in equal chunks of at most `most`."""
        yield from (slice(self.start + part.start, self.start + part.stop) for part in chunks(len(self.place), most))

    def place_of(self, part: slice) -> Tensor:
        """`place` of a chunk of the group's rows."""
        return self.place[part.start - self.start : part.stop - self.start]

    def segments(self, part: slice) -> Iterator[tuple[int, slice]]:
        """The labels of a chunk of sorted rows: where each stands in the group, and its rows within the chunk."""
        assert self.sizes is not None
        start = self.start
        for k, size in enumerate(self.sizes):
            first, last = max(start, part.start), min(start + size, part.stop)
            if first < last:
                yield k, slice(first - part.start, last - part.start)
            start += size


def usable_rows(batch: Batch, hidden: Tensor) -> Rows:
    """The valid rows; where nobody may look all rows, those that are not valid with weight 0."""
    labels, weights, valid = batch.labels, batch.weights, batch.valid
    assert labels is not None
    hidden = hidden.detach()
    if not can_look_at(valid):
        return Rows(hidden, labels, weights, valid, None)
    if batch.all_valid:
        return Rows(hidden, labels, weights, None, None)
    order = valid.nonzero().squeeze(1)
    return Rows(hidden[order], labels[order], weights[order], None, order)


def chunks(rows: int, most: int) -> Iterator[slice]:
    """Equal chunks of at most `most` rows."""
    if rows:
        stride = -(-rows // -(-rows // most))
        yield from (slice(start, min(start + stride, rows)) for start in range(0, rows, stride))


def one_table(rows: int, num_labels: int, chunk_rows: int) -> bool:
    """Whether all labels together take no more memory than a chunk."""
    return num_labels <= min(rows, chunk_rows)


def sorted_groups(labels: Tensor, chunk_rows: int) -> Iterator[Group]:
    """Groups of whole labels of sorted rows: as many as fit a chunk, or one label with more rows than that."""
    distinct, place, counts = labels.unique_consecutive(return_inverse=True, return_counts=True)
    sizes: list[int] = counts.tolist()
    first, start = 0, 0
    while first < len(sizes):
        last, stop = first + 1, start + sizes[first]
        while last < len(sizes) and stop + sizes[last] - start <= chunk_rows:
            stop += sizes[last]
            last += 1
        yield Group(distinct[first:last], last - first, place[start:stop] - first, sizes[first:last], start, stop)
        first, start = last, stop


def chunk_groups(labels: Tensor, num_labels: int, chunk_rows: int) -> Iterator[Group]:
    """Groups of fixed shape, one for each chunk: a label may be in several."""
    for part in chunks(len(labels), chunk_rows):
        distinct, place, slots = group_by_label(labels[part], num_labels)
        yield Group(distinct, slots, place, None, part.start, part.stop)


def rows_in_chunk(num_labels: int, on_cpu: bool) -> int:
    """Rows of logits in a chunk where the caller does not say how many."""
    if not on_cpu:
        return max(1, DEVICE_CHUNK_BYTES // (4 * num_labels))
    fitting = max(FEWEST_ROWS, min(MOST_ROWS, CHUNK_BYTES // (4 * num_labels)))
    return max(fitting, SMALL_CHUNK // num_labels)
