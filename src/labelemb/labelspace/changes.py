"""Changes between two label spaces, for example of two trainings: neighbours gained and lost, and ranks."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from labelemb.labelspace.errors import LabelSpaceError
from labelemb.labelspace.neighbors import neighbor_table
from labelemb.labelspace.record import LabelRecord
from labelemb.support.optional import import_optional
from labelemb.support.tables import Column, RowTable
from labelemb.support.wording import quote_few

MOST_CORRELATED_LABELS = 1000
"""Labels whose whole rows are compared; of more, those that were observed right most often."""


class LabelChange(NamedTuple):
    """How the row of a label changed.

    Attributes:
        label: its name.
        gained: labels that are among its nearest in the other space only.
        lost: labels that are among its nearest in this space only.
        correlation: Spearman's rank correlation of its similarities to all others; None if it was not computed.
        learned: whether the observer was right about it at least once in both spaces.
    """

    label: str
    gained: tuple[str, ...]
    lost: tuple[str, ...]
    correlation: float | None
    learned: bool


class SpaceChanges(RowTable[LabelChange]):
    """The changes of each label that both spaces have, the lowest rank correlation first.

    Attributes:
        correlation: the mean rank correlation; None if no label has one.
        only_here: names of labels that only the first space has.
        only_there: names of labels that only the other space has.
    """

    columns = (
        Column("label", "label"),
        Column("correlation", "correlation"),
        Column("gained", "gained"),
        Column("lost", "lost"),
    )

    def __init__(self, rows: Iterable[LabelChange], only_here: tuple[str, ...], only_there: tuple[str, ...]) -> None:
        super().__init__(rows)
        known = [row.correlation for row in self if row.correlation is not None]
        self.correlation = float(np.mean(known)) if known else None
        self.only_here, self.only_there = only_here, only_there
        notes = [] if self.correlation is None else [f"mean rank correlation {self.correlation:.3f}"]
        notes += [f"only here: {quote_few(only_here)}"] * bool(only_here)
        notes += [f"only there: {quote_few(only_there)}"] * bool(only_there)
        self.note = "; ".join(notes)


def space_changes(
    here: LabelRecord, there: LabelRecord, k: int, only_here: tuple[str, ...], only_there: tuple[str, ...]
) -> SpaceChanges:
    """The changes from one record to another one with the same names in the same order."""
    if k < 1:
        raise LabelSpaceError(f"k must be at least 1, not {k}")
    tables = [neighbor_table(record, k) for record in (here, there)]
    correlations = _correlations(here, there)
    rows = []
    for label, name in enumerate(here.names):
        before, after = ({index for index in table.indices[label].tolist() if index >= 0} for table in tables)
        gained, lost = (
            tuple(here.names[index] for index in table.indices[label].tolist() if index in chosen)
            for table, chosen in ((tables[1], after - before), (tables[0], before - after))
        )
        learned = here.learned(label) and there.learned(label)
        rows.append(LabelChange(name, gained, lost, correlations.get(label), learned))
    rows.sort(key=lambda row: (row.correlation is None, row.correlation or 0.0, -len(row.gained)))
    return SpaceChanges(rows, only_here, only_there)


def _correlations(here: LabelRecord, there: LabelRecord) -> dict[int, float]:
    """Spearman's rank correlation of the rows of up to `MOST_CORRELATED_LABELS` labels, without their own entries."""
    if here.num_labels < 3:
        return {}
    statistics = import_optional("scipy.stats", "compare()", "plot")
    chosen = torch.arange(here.num_labels)
    if here.counts is not None:
        chosen = here.counts.argsort(descending=True, stable=True)
    found: dict[int, float] = {}
    for piece in here.form.blocks(chosen[:MOST_CORRELATED_LABELS]):
        ranks = [statistics.rankdata(_without_own(record, piece), axis=1) for record in (here, there)]
        first, second = (values - values.mean(axis=1, keepdims=True) for values in ranks)
        norms = np.sqrt((first**2).sum(axis=1) * (second**2).sum(axis=1))
        defined = norms > 0  # not of a row whose entries are all the same
        values = (first * second).sum(axis=1)[defined] / norms[defined]
        found |= dict(zip(piece[torch.from_numpy(defined)].tolist(), values.tolist(), strict=True))
    return found


def _without_own(record: LabelRecord, piece: Tensor) -> np.ndarray:
    """The rows of these labels without the entries of the labels themselves, (k, labels - 1)."""
    rows = record.form.rows(piece)
    others = torch.ones_like(rows, dtype=torch.bool).scatter_(1, piece[:, None], False)
    return rows[others].view(len(piece), -1).numpy()
