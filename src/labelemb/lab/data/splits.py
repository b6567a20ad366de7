"""Splits: what a reader hands over, and how missing parts are drawn from the training examples."""

from dataclasses import dataclass, replace
from typing import Generic, Protocol, Self, TypeVar

import torch
from torch import Tensor

from labelemb.lab.errors import LabError
from labelemb.lab.settings import DataSettings


class Selectable(Protocol):
    """Examples in whatever form a reader has them, as long as some of them can be picked out."""

    targets: Tensor

    def select(self, index: Tensor) -> Self: ...


Rows = TypeVar("Rows", bound=Selectable)


@dataclass
class Splits(Generic[Rows]):
    """What a reader found. `source` names the data in errors."""

    train: Rows
    dev: Rows | None
    test: Rows | None
    label_names: list[str]
    source: str
    groups: dict[str, list[str]] | None = None
    dev_is_first: bool = False  # a published data set: development examples are its first ones, not random ones

    def complete(self, settings: DataSettings, seed: int) -> "Splits[Rows]":
        """With a test part, a development part if the settings ask for one, and the training part limited."""
        dev_size = settings.dev_size if self.dev is None else 0.0
        test_size = settings.test_size if self.test is None else 0.0
        if self.test is None and test_size == 0:
            raise LabError(f"{self.source} has no test examples: set data.test_size, for example to 0.1")
        train, dev, test = self.train, self.dev, self.test
        if self.dev_is_first and test is not None:
            train, dev = self._first_as_dev(dev_size)
        elif dev_size or test_size:
            split_seed = seed if settings.split_seed < 0 else settings.split_seed
            parts = random_split(train.targets, dev_size, test_size, split_seed, self.label_names, self.source)
            train, drawn_dev, drawn_test = (self.train.select(part) for part in parts)
            dev = drawn_dev if dev_size else dev
            test = drawn_test if test_size else test
        if settings.max_per_label:
            train = train.select(keep_per_label(train.targets, settings.max_per_label))
        complete = replace(self, train=train, dev=dev, test=test)
        complete._check()
        return complete

    def _first_as_dev(self, dev_size: float) -> tuple[Rows, Rows | None]:
        total = len(self.train.targets)
        count = round(dev_size * total) if dev_size < 1 else round(dev_size)
        if count == 0:
            return self.train, self.dev
        if count >= total:
            raise LabError(
                f"{self.source} has {total} training examples, data.dev_size = {count} leaves none to train on"
            )
        return self.train.select(torch.arange(count, total)), self.train.select(torch.arange(count))

    def _check(self) -> None:
        assert self.test is not None
        names = self.label_names
        seen = torch.bincount(self.train.targets, minlength=len(names)) > 0
        if len(names) < 2 or int(seen.sum()) < 2:
            raise LabError(
                f"{self.source} has training examples of one label only: two are needed to tell labels apart"
            )
        tested = torch.bincount(self.test.targets, minlength=len(names)) > 0
        for part, present in (("training", seen), ("test", tested)):
            missing = [name for name, there in zip(names, present.tolist(), strict=True) if not there]
            if missing:
                more = f" and {len(missing) - 1} others have" if len(missing) > 1 else " has"
                raise LabError(
                    f"{self.source}: label {missing[0]!r}{more} no {part} example: every label needs at least one"
                )


def random_split(
    targets: Tensor, dev_size: float, test_size: float, seed: int, label_names: list[str], source: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Indices of training, development and test examples, every label in the same proportions in each part.

    A size is a count of examples or a share below 1. A part with a size gets at least one example of every label.
    """
    counts = torch.bincount(targets, minlength=len(label_names))
    dev, test = (_take_per_label(counts, size) for size in (dev_size, test_size))
    short = torch.nonzero((counts > 0) & (counts - dev - test < 1)).flatten()
    if len(short):
        label = int(short[0])
        raise LabError(
            f"{source}: label {label_names[label]!r} has {int(counts[label])} examples, a split takes {int(dev[label])} for "
            f"development and {int(test[label])} for testing: add examples, or change data.dev_size and data.test_size"
        )
    rank = rank_in_label(targets, torch.Generator().manual_seed(seed))
    is_test = rank < test[targets]
    is_dev = ~is_test & (rank < (test + dev)[targets])
    train_index, dev_index, test_index = (
        torch.nonzero(part).flatten() for part in (~is_test & ~is_dev, is_dev, is_test)
    )
    return train_index, dev_index, test_index


def keep_per_label(targets: Tensor, limit: int) -> Tensor:
    """Indices of at most `limit` random examples of each label, in their old order and the same in every run."""
    rank = rank_in_label(targets, torch.Generator().manual_seed(0))
    return torch.nonzero(rank < limit).flatten()


def rank_in_label(targets: Tensor, generator: torch.Generator) -> Tensor:
    """For each example its place, from 0, in a random order of the examples of its label."""
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
    share = size if size < 1 else size / int(counts.sum())
    return torch.where(counts > 0, (counts * share).round().long().clamp(min=1), 0)
