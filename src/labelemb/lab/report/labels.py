"""The data of the page about labels: neighbours, map, clustered order and similar pairs."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from labelemb import LabelSpace, LabelSpaceError
from labelemb.lab.comparison.summary import labels_first
from labelemb.lab.runs.folder import RunFolder
from labelemb.labelspace.map import label_map
from labelemb.labelspace.neighbors import neighbor_table
from labelemb.labelspace.order import clustered_order
from labelemb.labelspace.pairs import PairArrays, mutual_pairs

MOST_MATRIX_LABELS = 500
"""Up to this many labels the page holds whole rows and a clustered order; beyond it the nearest labels."""
MOST_LABELS = 100_000
NEIGHBORS = 20
MOST_NUMBERS = 1_200_000
"""Stored similarities of all spaces together: with their indices some 10 bytes each, to stay below 15 MB."""
PAIRS = 30
SHOWN_CONTRAST, MEDIAN_CONTRAST = 1.15, 1.5
"""The largest likeness over the last one shown and over the median of all pairs: below both no pair stands out."""
ROW_CONTRAST = 1.15
"""The largest over the least similarity of a label: no pair stands out either where no label is above it."""
FEWEST_PAIRS = 3
"""To compare likenesses with each other."""


def gather_spaces(runs: Mapping[str, Sequence[RunFolder]], notes: list[str]) -> list[dict[str, Any]]:
    """The label space of each method's first run that has one, label embedding's first; what is left out is noted."""
    spaces: list[dict[str, Any]] = []
    numbers = 0
    for method in labels_first(list(runs)):
        run = next((run for run in runs[method] if run.labels_file.exists()), None)
        if run is None:
            continue
        title = f"{method}, {run.path.name.replace('-', ' ')}"
        try:
            space = LabelSpace.load(run.labels_file)
        except (LabelSpaceError, OSError) as error:
            notes.append(f"The labels of {title} cannot be read: {error}")
            continue
        if space.num_labels > MOST_LABELS:
            notes.append(f"{title} has {space.num_labels:,} labels, too many for a page: use `labelemb nearest`.")
            continue
        size = _stored_numbers(space.num_labels)
        if spaces and numbers + size > MOST_NUMBERS:
            notes.append(f"The labels of {title} are left out to keep the page small.")
            continue
        numbers += size
        spaces.append({"title": title, "method": method, **describe(space)})
    return spaces


def _stored_numbers(labels: int) -> int:
    return labels * (labels if labels <= MOST_MATRIX_LABELS else _neighbors_kept(labels))


def _neighbors_kept(labels: int) -> int:
    """20, or fewer where the page would become too large."""
    return max(1, min(NEIGHBORS, MOST_NUMBERS // labels, labels - 1))


def describe(space: LabelSpace) -> dict[str, Any]:
    """A label space as the page reads it; arrays are packed."""
    table = neighbor_table(space, _neighbors_kept(space.num_labels))
    positions, found = label_map(space, table), mutual_pairs(table)
    shown = min(PAIRS, space.num_labels)
    described: dict[str, Any] = {
        "names": list(space.names),
        "neighbors": {
            "k": table.indices.shape[1],
            "indices": packed(table.indices, "int32"),
            "similarities": packed(table.similarities, "float32"),
        },
        "own": packed(table.own, "float32"),
        "map": {"positions": packed(positions.positions, "float32"), "share": positions.share},
        "groups": space.superclasses or {},
        "unlearned": [] if space.counts is None else (space.counts == 0).nonzero()[:, 0].tolist(),
        "counted": space.counts is not None,
        "pairs": first_pairs(found, shown),
        "alike": likeness_range(found, shown),
    }
    if space.num_labels <= MOST_MATRIX_LABELS:
        matrix = np.asarray(space.matrix(), dtype=np.float64)
        described |= {"matrix": packed(matrix, "float32"), "order": clustered_order(matrix)}
    return described


def packed(array: np.ndarray, kind: str) -> str:
    """Little-endian numbers in base64, a third of the size they have as text."""
    return base64.b64encode(np.ascontiguousarray(array, dtype=np.dtype(kind).newbyteorder("<")).tobytes()).decode()


def first_pairs(found: PairArrays, shown: int) -> list[list[float]]:
    """The pairs [a, b, likeness] that are most alike among those that are neighbours both ways."""
    rows = zip(found.first.tolist(), found.second.tolist(), found.likeness.tolist(), strict=True)
    return [list(row) for row in rows][:shown]


def likeness_range(found: PairArrays, shown: int) -> list[float] | None:
    """The least and the largest likeness shown where no pair stands out: too little was learned."""
    likeness = found.likeness
    if len(likeness) < FEWEST_PAIRS:
        return None
    largest, last = float(likeness[0]), float(likeness[:shown][-1])
    differ = largest > SHOWN_CONTRAST * last or largest > MEDIAN_CONTRAST * float(np.median(likeness))
    return None if differ and _prefer_some(found) else [last, largest]


def _prefer_some(found: PairArrays) -> bool:
    """Whether any label resembles some labels more than others, or a single one.

    Else likenesses differ only by what each label keeps for itself, which says nothing about pairs.
    """
    labels = np.concatenate([found.first, found.second])
    similarities = np.concatenate([found.forward, found.backward])
    largest, least = np.zeros(labels.max() + 1), np.full(labels.max() + 1, np.inf)
    np.maximum.at(largest, labels, similarities)
    np.minimum.at(least, labels, similarities)
    return bool(((largest > ROW_CONTRAST * least) | (np.bincount(labels) == 1)).any())
