"""`Splits`: the parts that a reader found, and random splits for missing parts."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, Self, TypeVar

import torch
from torch import Tensor

from labelemb.lab.recipes.settings import DigitsData, ImageFolderData, PublishedImages, TextTableData
from labelemb.support.errors import UserError
from labelemb.support.wording import counted


class Selectable(Protocol):
    """Examples of any form from which some can be selected."""

    targets: Tensor

    def select(self, index: Tensor) -> Self: ...

    def joined(self, other: Self) -> Self: ...

    def content(self) -> Iterable[bytes | memoryview]: ...


Rows = TypeVar("Rows", bound=Selectable)
DrawnData = DigitsData | ImageFolderData | TextTableData
"""Settings of data whose missing parts are drawn at random."""


@dataclass
class Splits(Generic[Rows]):
    """Parts of a data set as a reader found them. `source` names the data in errors."""

    train: Rows
    dev: Rows | None
    test: Rows | None
    label_names: list[str]
    source: str
    groups: dict[str, list[str]] | None = None
    files: Sequence[Path] = ()  # below `source`: where machines decode the same files to examples that differ a little

    def digest(self) -> str:
        """SHA-256 of the label names and of all files, or else of all examples."""
        found = hashlib.sha256(json.dumps(self.label_names).encode())
        for file in self.files:
            found.update(file.relative_to(self.source).as_posix().encode(errors="surrogateescape"))
            found.update(hashlib.sha256(file.read_bytes()).digest())
        for part in () if self.files else (self.train, self.dev, self.test):
            found.update(b"part")
            for content in () if part is None else part.content():
                found.update(content)
        return found.hexdigest()

    def complete(self, settings: PublishedImages | DrawnData, seed: int) -> "CompleteSplits[Rows]":
        """Add the test and development parts that are missing, and limit the training part."""
        test: Rows | None
        if isinstance(settings, PublishedImages):
            train, dev = self._first_as_dev(_checked("dev_size", settings.dev_size))
            test = self.test
        else:
            train, dev, test = self._drawn(settings, seed)
        if test is None:
            raise UserError(f"{self.source} has no test examples: set data.test_size, for example to 0.1")
        if settings.max_per_label:
            train = train.select(keep_per_label(train.targets, settings.max_per_label))
        _check_labels(train.targets, test.targets, self.label_names, self.source)
        return CompleteSplits(train, dev, test, self.label_names, self.groups)

    def _drawn(self, settings: DrawnData, seed: int) -> tuple[Rows, Rows | None, Rows | None]:
        """Draw the parts that the data lacks at random."""
        dev_size = _checked("dev_size", settings.dev_size) if self.dev is None else 0.0
        test_size = _checked("test_size", settings.test_size) if self.test is None else 0.0
        if not dev_size and not test_size:
            return self.train, self.dev, self.test
        split_seed = seed if settings.split_seed < 0 else settings.split_seed
        parts = random_split(self.train.targets, dev_size, test_size, split_seed, self.label_names, self.source)
        train, dev, test = (self.train.select(part) for part in parts)
        return train, dev if dev_size else self.dev, test if test_size else self.test

    def _first_as_dev(self, dev_size: float) -> tuple[Rows, Rows | None]:
        total = len(self.train.targets)
        count = round(dev_size * total) if dev_size < 1 else round(dev_size)
        if count == 0:
            return self.train, self.dev
        if count >= total:
            raise UserError(
                f"{self.source} has {total} training examples, data.dev_size = {count} leaves none to train on"
            )
        return self.train.select(torch.arange(count, total)), self.train.select(torch.arange(count))


@dataclass
class CompleteSplits(Generic[Rows]):
    """Splits as they are used: there is a test part, and every label has training and test examples."""

    train: Rows
    dev: Rows | None
    test: Rows
    label_names: list[str]
    groups: dict[str, list[str]] | None


def _checked(name: str, size: float) -> float:
    if size > 1 and not size.is_integer():
        raise UserError(f"data.{name} is {size}, but must be a share below 1 or a whole number of examples")
    return size


def _check_labels(train: Tensor, test: Tensor, names: list[str], source: str) -> None:
    if len(train.unique()) < 2:
        raise UserError(f"{source} has training examples of one label only: two are needed to tell labels apart")
    for part, targets in (("training", train), ("test", test)):
        counts = torch.bincount(targets, minlength=len(names)).tolist()
        missing = [name for name, count in zip(names, counts, strict=True) if count == 0]
        if missing:
            others = f" and {len(missing) - 1} more have" if len(missing) > 1 else " has"
            raise UserError(f"{source}: label {missing[0]!r}{others} no {part} example, every label needs at least one")


def random_split(
    targets: Tensor, dev_size: float, test_size: float, seed: int, label_names: list[str], source: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Indices of training, development and test examples, every label in the same proportions in each part.

    A size is a count of examples or a share below 1. A part with a size gets at least one example of every label, also
    of a rare one; scikit-learn's stratified splits do not promise that, and refuse labels with a single example left.
    """
    counts = torch.bincount(targets, minlength=len(label_names))
    dev, test = (_take_per_label(counts, size) for size in (dev_size, test_size))
    short = torch.nonzero((counts > 0) & (counts - dev - test < 1)).flatten()
    if len(short):
        label = int(short[0])
        raise UserError(
            f"{source}: label {label_names[label]!r} has {counted(int(counts[label]), 'example')}, a split takes "
            f"{int(dev[label])} for development and {int(test[label])} for testing: add examples, "
            "or change data.dev_size and data.test_size"
        )
    rank = rank_in_label(targets, torch.Generator().manual_seed(seed))
    is_test = rank < test[targets]
    is_dev = ~is_test & (rank < (test + dev)[targets])
    train_index, dev_index, test_index = (
        torch.nonzero(part).flatten() for part in (~is_test & ~is_dev, is_dev, is_test)
    )
    return train_index, dev_index, test_index


def keep_per_label(targets: Tensor, limit: int) -> Tensor:
    """Indices of at most `limit` random examples of each label, in their old order and the same in every call."""
    rank = rank_in_label(targets, torch.Generator().manual_seed(0))
    return torch.nonzero(rank < limit).flatten()


def rank_in_label(targets: Tensor, generator: torch.Generator) -> Tensor:
    """Rank of each example, from 0, in a random order of the examples of its label."""
    shuffled = torch.randperm(len(targets), generator=generator)
    order = shuffled[torch.argsort(targets[shuffled], stable=True)]  # by label, random inside a label
    counts = torch.bincount(targets)
    first = torch.cumsum(counts, 0) - counts
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(order)) - first[targets[order]]
    return rank


def _take_per_label(counts: Tensor, size: float) -> Tensor:
    if size == 0:
        return torch.zeros_like(counts)
    if size < 1:
        return torch.where(counts > 0, (counts * size).round().long().clamp(min=1), 0)
    exact = counts * (size / int(counts.sum()))
    taken = torch.where(counts > 0, exact.long().clamp(min=1), 0)
    missing = max(0, int(size) - int(taken.sum()))
    taken[torch.argsort(taken - exact, stable=True)[:missing]] += 1  # where most is lacking, so that the count is met
    return taken
