"""Cross-validation folds of an audit: which examples each run holds out and predicts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Literal

import msgspec
import torch
from torch import Tensor

from labelemb.lab.data.splits import CompleteSplits, DrawnData, Rows, Splits, keep_per_label, rank_in_label
from labelemb.lab.recipes.settings import PublishedImages
from labelemb.support.errors import UserError

Part = Literal["train", "dev", "test"]
PARTS: tuple[Part, ...] = ("train", "dev", "test")
MOST_TESTED = 5_000_000
"""Rows x labels of the held-out examples that are evaluated after each epoch; all of them are predicted at the end."""
FEWEST_TESTED = 1_000


class Fold(msgspec.Struct, frozen=True):
    """One of `count` parts of the examples, equal in size and in their shares of labels."""

    number: int = 0
    """From 0."""
    count: int = 3
    """1: the run trains on all examples, and predicts what it was trained on."""
    parts: tuple[Part, ...] = ("train",)
    """Parts of the data whose examples are judged; the others take no part in the folds."""
    seed: int = 0
    """Of the random order by which examples come to folds."""

    @property
    def title(self) -> str:
        return f"fold {self.number + 1} of {self.count}"

    @property
    def identity(self) -> str:
        """What makes two folds the same one."""
        return f"{self.title} of {'+'.join(self.parts)}, drawn with seed {self.seed}"


@dataclass
class AllRows(Generic[Rows]):
    """The examples of all parts in one order (train, dev, test), and which of them are judged."""

    rows: Rows
    parts: Sequence[str]
    """The part of each row."""
    judged: Tensor
    """Indices of the rows that folds hold out in turn."""


@dataclass
class FoldedSplits(CompleteSplits[Rows]):
    """The examples of one fold; row numbers are places in `AllRows`.

    `test` is the held-out examples, or so many of them that evaluating them after each epoch stays cheap.
    """

    held_out: Rows
    train_rows: Tensor
    held_out_rows: Tensor


def all_rows(read: Splits[Rows], max_per_label: int, parts: Sequence[Part]) -> AllRows[Rows]:
    """All examples of a data set. With `max_per_label` only that many of each label are judged."""
    found = {name: part for name in PARTS if (part := getattr(read, name)) is not None}
    if missing := [name for name in parts if name not in found]:
        raise UserError(f"{read.source} has no {missing[0]} part to audit: there is {', '.join(found)}")
    rows, *others = found.values()
    for other in others:
        rows = rows.joined(other)
    names = [name for name, part in found.items() for _ in range(len(part.targets))]
    judged = torch.tensor([name in parts for name in names]).nonzero().flatten()
    if max_per_label:
        judged = judged[keep_per_label(rows.targets[judged], max_per_label)]
    return AllRows(rows, names, judged)


def fold_splits(read: Splits[Rows], settings: PublishedImages | DrawnData, fold: Fold) -> FoldedSplits[Rows]:
    """The examples that a fold trains on, and those that it holds out.

    Where the data has no development part, a share of the fold's training examples (`data.dev_size`) is drawn for it.
    """
    found = all_rows(read, settings.max_per_label, fold.parts)
    rows, judged = found.rows, found.judged
    targets = rows.targets[judged]
    check_counts(targets, read.label_names, fold.count, read.source)
    if fold.count == 1:
        train_rows = held_out_rows = judged
    else:
        numbers = fold_numbers(targets, fold)
        train_rows, held_out_rows = judged[numbers != fold.number], judged[numbers == fold.number]
    dev = None if "dev" in fold.parts else read.dev
    if dev is None and settings.dev_size and fold.count > 1:
        share = settings.dev_size if settings.dev_size < 1 else settings.dev_size / len(read.train.targets)
        is_dev = _drawn(rows.targets[train_rows], share, fold.seed)
        train_rows, dev_rows = train_rows[~is_dev], train_rows[is_dev]
        dev = rows.select(dev_rows) if len(dev_rows) else None
    tested = max(FEWEST_TESTED, MOST_TESTED // len(read.label_names))
    held_out = rows.select(held_out_rows)
    test = held_out if len(held_out_rows) <= tested else rows.select(held_out_rows[:: -(-len(held_out_rows) // tested)])
    return FoldedSplits(
        rows.select(train_rows), dev, test, read.label_names, read.groups, held_out, train_rows, held_out_rows
    )


def check_counts(targets: Tensor, names: Sequence[str], folds: int, source: str) -> None:
    """Refuse labels that would be missing in the training part or in the held-out part of a fold."""
    counts = torch.bincount(targets, minlength=len(names))
    if int((counts > 0).sum()) < 2:
        raise UserError(f"{source} has examples of one label only: two are needed to tell labels apart")
    needed = min(folds, len(targets) + 1)  # a larger number is as impossible, and need not fit into 64 bits
    short = (counts < needed).nonzero().flatten().tolist()
    if short:
        label = min(short, key=lambda label: int(counts[label]))
        others = f" ({len(short) - 1} more labels have too few)" if len(short) > 1 else ""
        raise UserError(
            f"{source}: label {names[label]!r} has {int(counts[label])} of the audited examples, {folds} folds need "
            f"one in each{others}: pass a smaller --folds, add examples, or leave the label out"
        )


def fold_numbers(targets: Tensor, fold: Fold) -> Tensor:
    """The fold of each example, from 0: every label is spread evenly, and the folds are of the same size."""
    rank = rank_in_label(targets, torch.Generator().manual_seed(fold.seed))
    counts = torch.bincount(targets)
    first = torch.cumsum(counts, 0) - counts
    return (first[targets] + rank) % fold.count


def _drawn(targets: Tensor, share: float, seed: int) -> Tensor:
    """A share of the examples of every label, at least one where that leaves one."""
    counts = torch.bincount(targets)
    take = torch.minimum((counts * share).round().long().clamp(min=1), counts - 1).clamp(min=0)
    return rank_in_label(targets, torch.Generator().manual_seed(seed + 1)) < take[targets]
