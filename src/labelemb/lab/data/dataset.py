"""`Examples` in memory, the form of their inputs, and `Dataset`s of them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import torch
from torch import Tensor

from labelemb.lab.recipes.settings import DataSettings
from labelemb.support.errors import UserError
from labelemb.support.wording import shorten

Inputs = tuple[Tensor, ...]
Augment = Callable[[Inputs, torch.Generator], Inputs]
NO_TARGET = -1
"""Target of an input whose label is to be predicted."""


class Examples(ABC):
    """Inputs with their targets. `batch` gives what `body(*inputs)` takes."""

    texts: Sequence[str] | None = None
    """The inputs as people read them, of a test set of texts."""
    original: "Examples | None" = None
    """The examples as they were read, where these are features of them."""

    def __init__(self, targets: Tensor) -> None:
        self.targets = targets.long()

    def __len__(self) -> int:
        return self.targets.shape[0]

    @property
    def rows(self) -> int:
        """How many targets there are: examples, or the words of all target texts."""
        return len(self)

    def count_rows(self, index: Tensor) -> int:
        """How many targets the examples `index` have."""
        return len(index)

    @abstractmethod
    def batch(self, index: Tensor) -> tuple[Inputs, Tensor]:
        """Inputs and targets of the examples `index`."""

    @abstractmethod
    def select(self, index: Tensor) -> "Examples":
        """The examples `index`, in that order."""

    def batches(self, batch_size: int, generator: torch.Generator | None) -> list[Tensor]:
        """Index tensors of one epoch, shuffled with the generator, or in order without one."""
        count = len(self)
        order = torch.arange(count) if generator is None else torch.randperm(count, generator=generator)
        return list(order.split(batch_size))


LONGEST_TEXT = 60
"""Characters of a text where it stands for its place."""
SHOWN_LABELS = 5
"""Labels of a model that an error names."""


@dataclass(frozen=True)
class InputPlace:
    """Where an input to predict was found: the file, and of a text its line and the text itself."""

    file: str
    line: int | None = None
    text: str | None = None
    where: str = ""
    """The file and the place in it, in words."""

    def __str__(self) -> str:
        return self.file if self.text is None else f"{self.where}: {shorten(self.text, LONGEST_TEXT)}"


class InputForm(msgspec.Struct, frozen=True, tag_field="kind"):
    """What inputs look like to a network. Kept with a run as JSON, so that new inputs are encoded in the same way."""

    noun: ClassVar[str] = "inputs"
    """What the inputs are, for error messages."""

    def to_dict(self) -> dict[str, Any]:
        """The form as JSON has it."""
        saved: dict[str, Any] = msgspec.to_builtins(self)
        return saved

    def read(self, files: Sequence[Path], settings: DataSettings) -> tuple[list[InputPlace], Examples]:
        """New inputs from files, with the place of each; their targets are `NO_TARGET`."""
        raise UserError(f"{self.noun} are not read from files to predict")

    @abstractmethod
    def read_labelled(self, place: Path, settings: DataSettings, label_names: list[str]) -> Examples:
        """Examples to score a model on, with targets that are places in `label_names`."""

    def difference(self, other: "InputForm") -> str:
        """Why a network made for `other` cannot read these inputs, or nothing if its layers alone decide that."""
        return "" if type(self) is type(other) else f"it reads {other.noun}, this data has {self.noun}"


@dataclass(frozen=True)
class HeldOut:
    """The examples that a fold holds out, and which rows of the data its examples are."""

    examples: Examples
    rows: Tensor
    """Of the held-out examples."""
    train_rows: Tensor
    """Of the training examples."""


@dataclass
class Dataset:
    """Data of a run: examples, label names, and the form of the inputs."""

    train: Examples
    dev: Examples | None
    test: Examples
    label_names: list[str]
    inputs: InputForm
    groups: dict[str, list[str]] | None = None
    """Labels that belong together, such as CIFAR-100's coarse classes."""
    augment: Augment | None = None
    specials: tuple[str, ...] = ()
    """Labels that are no words, such as the end of a text."""
    label_counts: list[int] | None = None
    """How often each label is a target in training; None where nothing needs it."""
    held_out: HeldOut | None = None
    """Where the data is that of one fold of an audit."""
    digest: str = ""
    """SHA-256 of all that was read, before a seed splits it: the same in every run on the same data."""


def tensor_bytes(*tensors: Tensor) -> Iterator[memoryview]:
    """The bytes of tensors, for a checksum."""
    for tensor in tensors:
        yield tensor.reshape(-1).numpy().data


def no_targets(count: int) -> Tensor:
    """Targets of inputs whose labels are to be predicted."""
    return torch.full((count,), NO_TARGET)


def label_numbers(labels: Iterable[tuple[str, str]], names: Sequence[str]) -> Tensor:
    """The place of each label in `names`; the first text of a pair says in the error where the label was found."""
    numbers = {name: number for number, name in enumerate(names)}
    found = []
    for where, label in labels:
        if label not in numbers:
            raise UserError(
                f"{where}: the model has no label {shorten(label, LONGEST_TEXT)!r}; it has {len(names)}, as "
                f"{', '.join(shorten(name, LONGEST_TEXT) for name in names[:SHOWN_LABELS])}"
            )
        found.append(numbers[label])
    return torch.tensor(found, dtype=torch.long)


def check_any(found: Sequence[Any], files: Sequence[Path]) -> None:
    """Refuse files without anything to predict."""
    if not found:
        raise UserError(f"nothing to predict in {', '.join(map(str, files)) or 'no files'}")
