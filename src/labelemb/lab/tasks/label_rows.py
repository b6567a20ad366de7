"""One row per label: its error, its most frequent confusion, its nearest label, and whether it was learned."""

from collections import defaultdict
from typing import Any

import msgspec

from labelemb import LabelSpace
from labelemb.lab.tasks.records import Confusion
from labelemb.labelspace.neighbors import neighbor_table


class LabelRow(msgspec.Struct, frozen=True):
    """One label on the test set and in the label space; None where something is not known."""

    label: str
    examples: int | None = None
    error: float | None = None
    """Percent of the examples; None without any."""
    confused_with: str | None = None
    """The label that it is taken for most often."""
    confused: int | None = None
    """How often that happens."""
    nearest: str | None = None
    """None for a label that was never observed right: its neighbours mean nothing."""
    similarity: float | None = None
    observed: bool | None = None
    """Whether it was ever observed right in training."""


def label_rows(confusion: Confusion | None, space: LabelSpace | None) -> list[LabelRow]:
    """Every label of a confusion and of a label space, in the order of the first that there is."""
    tested, learned = _tested(confusion), _learned(space)
    names = list(dict.fromkeys([*([] if confusion is None else confusion.labels), *learned]))
    return [LabelRow(name, **tested.get(name, {}), **learned.get(name, {})) for name in names]


def by_error(rows: list[LabelRow]) -> list[LabelRow]:
    """The rows with the largest error first."""
    return sorted(rows, key=lambda row: -1.0 if row.error is None else row.error, reverse=True)


def _tested(confusion: Confusion | None) -> dict[str, dict[str, Any]]:
    if confusion is None:
        return {}
    wrong: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for target, predicted, count in confusion.wrong:
        wrong[target].append((count, predicted))
    found = {}
    for index, (name, examples) in enumerate(zip(confusion.labels, confusion.examples, strict=True)):
        count, other = max(wrong[index], default=(0, -1), key=lambda pair: pair[0])
        error = 100 * sum(times for times, _ in wrong[index]) / examples if examples else None
        found[name] = {
            "examples": examples,
            "error": error,
            "confused_with": confusion.labels[other] if count else None,
            "confused": count,
        }
    return found


def _learned(space: LabelSpace | None) -> dict[str, dict[str, Any]]:
    if space is None:
        return {}
    table = neighbor_table(space, 1)
    rows = zip(space.names, table.indices[:, 0].tolist(), table.similarities[:, 0].tolist(), strict=True)
    counts = [None] * space.num_labels if space.counts is None else (space.counts > 0).tolist()
    found: dict[str, dict[str, Any]] = {}
    for (name, near, similarity), observed in zip(rows, counts, strict=True):
        if name not in space.specials:
            known = near >= 0 and observed is not False
            nearest = {"nearest": space.names[near], "similarity": similarity} if known else {}
            found[name] = {**nearest, "observed": observed}
    return found
