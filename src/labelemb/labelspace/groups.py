"""Groups of labels that are linked by pairs of similar labels."""

from typing import NamedTuple

import numpy as np

from labelemb.labelspace.errors import LabelSpaceError
from labelemb.labelspace.pairs import mutual_pairs, neighbors_for_pairs
from labelemb.labelspace.record import LabelRecord
from labelemb.support.optional import import_optional
from labelemb.support.tables import Column, RowTable


class LabelGroup(NamedTuple):
    """A group of similar labels.

    Attributes:
        labels: their names, in the order of the space.
        likeness: the mean likeness of the pairs that link them.
        weakest: the smallest likeness of these pairs.
    """

    labels: tuple[str, ...]
    likeness: float
    weakest: float


class LabelGroups(RowTable[LabelGroup]):
    """Groups of at least two labels, the largest first."""

    columns = (Column("labels", "labels"), Column("likeness", "likeness"), Column("weakest", "weakest link"))


def label_groups(record: LabelRecord, threshold: float) -> LabelGroups:
    """`LabelSpace.groups`."""
    if not 0 < threshold < float("inf"):
        raise LabelSpaceError(f"threshold must be a likeness above 0, not {threshold}")
    graphs = import_optional("scipy.sparse.csgraph", "groups()", "plot")
    arrays = import_optional("scipy.sparse", "groups()", "plot")
    pairs = mutual_pairs(neighbors_for_pairs(record, "groups"))
    pairs = pairs.take(pairs.likeness >= threshold)
    size = record.num_labels
    graph = arrays.coo_matrix((np.ones(len(pairs.first)), (pairs.first, pairs.second)), shape=(size, size))
    _, group_of = graphs.connected_components(graph, directed=False)
    members: dict[int, list[int]] = {}
    for label in np.union1d(pairs.first, pairs.second).tolist():
        members.setdefault(int(group_of[label]), []).append(label)
    likeness: dict[int, list[float]] = {}
    for label, value in zip(pairs.first.tolist(), pairs.likeness.tolist(), strict=True):
        likeness.setdefault(int(group_of[label]), []).append(value)
    groups = [
        LabelGroup(tuple(record.names[label] for label in labels), float(np.mean(links)), min(links))
        for labels, links in ((members[group], likeness[group]) for group in members)
    ]
    groups.sort(key=lambda group: (-len(group.labels), -group.likeness))
    return LabelGroups(groups, "" if groups else f"no pair of labels has a likeness of {threshold:g} or more")
