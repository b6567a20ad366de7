"""Pairs of labels that are nearly the same, found among each label's nearest without a whole matrix."""

from typing import Literal, NamedTuple

import numpy as np

from labelemb.labelspace.errors import LabelSpaceError
from labelemb.labelspace.neighbors import NeighborTable, neighbor_table
from labelemb.labelspace.record import LabelRecord
from labelemb.support.tables import Column, RowTable
from labelemb.support.wording import quote_few

PairKind = Literal["alike", "one-sided"]

NEIGHBORS = 20
"""Nearest labels of each label among which pairs are looked for."""
LARGEST_COST = 10**12
"""Multiplications to compute all rows, some minutes on one core: beyond it pairs of all labels are refused."""
SMALLEST = 1e-12


class LabelPair(NamedTuple):
    """Two labels, and how much each resembles the other.

    Attributes:
        first: a label.
        second: another one.
        likeness: sqrt(p(a->b) p(b->a) / (p(a->a) p(b->b))): 1 if each gives the other as much as itself.
        forward: p(a->b), what the row of `first` gives to `second`.
        backward: p(b->a), what the row of `second` gives to `first`.
        learned: whether the observer was right about both labels at least once.
    """

    first: str
    second: str
    likeness: float
    forward: float
    backward: float
    learned: bool


class LabelPairs(RowTable[LabelPair]):
    """Pairs of labels, the most similar first."""

    columns = (
        Column("first", "label"),
        Column("second", "resembles"),
        Column("likeness", "likeness"),
        Column("forward", "there"),
        Column("backward", "back"),
    )


class PairArrays(NamedTuple):
    """Pairs as arrays of one length: indices of two labels, similarities both ways, likeness."""

    first: np.ndarray
    second: np.ndarray
    forward: np.ndarray
    backward: np.ndarray
    likeness: np.ndarray

    def take(self, chosen: np.ndarray) -> "PairArrays":
        return PairArrays(*(values[chosen] for values in self))


def label_pairs(record: LabelRecord, k: int, kind: PairKind) -> LabelPairs:
    """`LabelSpace.pairs`."""
    if k < 1:
        raise LabelSpaceError(f"k must be at least 1, not {k}")
    if kind not in ("alike", "one-sided"):
        raise LabelSpaceError(f'kind must be "alike" or "one-sided", not {kind!r}')
    table = neighbors_for_pairs(record, "pairs")
    found = mutual_pairs(table) if kind == "alike" else _one_sided(record, table, k)
    found = found.take(np.arange(min(k, len(found.first))))
    learned = np.ones(record.num_labels, dtype=bool) if record.counts is None else (record.counts > 0).numpy()
    rows = [
        LabelPair(record.names[a], record.names[b], likeness, forward, backward, bool(learned[a] and learned[b]))
        for a, b, forward, backward, likeness in zip(*(values.tolist() for values in found), strict=True)
    ]
    unlearned = sorted({name for row in rows if not row.learned for name in row[:2] if not record.learned(name)})
    note = f"never observed right, so that their pairs mean nothing: {quote_few(unlearned)}" if unlearned else ""
    return LabelPairs(rows, note)


def neighbors_for_pairs(record: LabelRecord, what: str) -> NeighborTable:
    """The nearest labels of every label; refused where computing all rows would take very long."""
    if record.form.normaliser_cost > LARGEST_COST:
        raise LabelSpaceError(f"{what} of {record.num_labels} labels take too long: use select() first")
    return neighbor_table(record, NEIGHBORS)


def mutual_pairs(table: NeighborTable) -> PairArrays:
    """The pairs that are among each other's nearest labels, by likeness; ties in the order of the labels."""
    first, second, forward, backward = _both_ways(table)
    mutual = (first < second) & (backward > 0)
    first, second, forward, backward = (values[mutual] for values in (first, second, forward, backward))
    found = PairArrays(first, second, forward, backward, _likeness(table, first, second, forward, backward))
    return found.take(np.lexsort((second, first, -found.likeness)))


def _one_sided(record: LabelRecord, table: NeighborTable, k: int) -> PairArrays:
    """The pairs in which the first label gives the second most and gets least back, by that difference."""
    first, second, forward, backward = _both_ways(table)
    # a label that does not list the other gives it at most its smallest listed share: exact only for the best
    best = np.lexsort((second, first, backward - forward))[: 4 * k]
    first, second, forward, backward = (values[best] for values in (first, second, forward, backward))
    for row in np.flatnonzero(backward == 0):
        backward[row] = record.similarity(int(second[row]), int(first[row]))
    found = PairArrays(first, second, forward, backward, _likeness(table, first, second, forward, backward))
    return found.take(np.lexsort((second, first, backward - forward)))


def _both_ways(table: NeighborTable) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Every listed pair (a, b) with p(a->b) and p(b->a), the latter 0 where b does not list a."""
    labels, width = table.indices.shape
    first = np.repeat(np.arange(labels), width)
    second, forward = table.indices.ravel(), table.similarities.ravel().astype(np.float64)
    used = second >= 0
    first, second, forward = first[used], second[used], forward[used]
    keys = first * labels + second
    order = np.argsort(keys)
    reversed_keys = second * labels + first
    position = np.searchsorted(keys, reversed_keys, sorter=order).clip(max=max(0, len(keys) - 1))
    match = order[position] if len(keys) else position
    backward = np.where(keys[match] == reversed_keys, forward[match], 0.0) if len(keys) else forward
    return first, second, forward, backward


def _likeness(
    table: NeighborTable, first: np.ndarray, second: np.ndarray, forward: np.ndarray, backward: np.ndarray
) -> np.ndarray:
    own = np.maximum(table.own.astype(np.float64), SMALLEST)
    return np.sqrt(forward * backward / (own[first] * own[second]))
