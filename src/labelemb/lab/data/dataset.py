"""Examples in memory, and batches of them without a Python step per example."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from labelemb.support.errors import UserError

Inputs = tuple[Tensor, ...]
Augment = Callable[[Inputs, torch.Generator], Inputs]


class Examples(ABC):
    """Inputs with their targets. `batch` gives what `body(*inputs)` takes."""

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


class ImageExamples(Examples):
    """Images kept as bytes, (rows, channels, height, width); a batch is float32, (pixel / 255 - mean) / std."""

    def __init__(self, images: Tensor, targets: Tensor, mean: Sequence[float] = (), std: Sequence[float] = ()) -> None:
        super().__init__(targets)
        self.images = images
        channels = images.shape[1]
        self.mean = tuple(mean) or (0.0,) * channels
        self.std = tuple(std) or (1.0,) * channels
        if len(self.mean) != channels or len(self.std) != channels or min(self.std) <= 0:
            raise UserError(
                f"images have {channels} channel(s), but data.mean = {list(mean)} and data.std = {list(std)}: "
                "give a number for each channel, with std above 0, or none"
            )
        # (pixel / 255 - mean) / std as one multiplication and one addition
        self._scale = 1.0 / (255.0 * torch.tensor(self.std)).view(1, channels, 1, 1)
        self._shift = -(torch.tensor(self.mean) / torch.tensor(self.std)).view(1, channels, 1, 1)

    def batch(self, index: Tensor) -> tuple[Inputs, Tensor]:
        images = self.images[index].float() * self._scale + self._shift
        return (images,), self.targets[index]

    def select(self, index: Tensor) -> "ImageExamples":
        return ImageExamples(self.images[index], self.targets[index], self.mean, self.std)

    def content(self) -> Iterator[memoryview]:
        """The bytes of all examples."""
        for tensor in (self.images, self.targets):
            yield tensor.reshape(-1).numpy().data


class TextExamples(Examples):
    """Texts as feature numbers, one after the other in `features`; text i is features[starts[i]:starts[i + 1]].

    A batch is (features, offsets) as `torch.nn.EmbeddingBag` takes them.
    """

    def __init__(self, features: Tensor, starts: Tensor, targets: Tensor) -> None:
        super().__init__(targets)
        self.features = features
        self.starts = starts

    def batch(self, index: Tensor) -> tuple[Inputs, Tensor]:
        features, starts = self._gather(index)
        return (features, starts[:-1]), self.targets[index]

    def select(self, index: Tensor) -> "TextExamples":
        return TextExamples(*self._gather(index), self.targets[index])

    def _gather(self, index: Tensor) -> tuple[Tensor, Tensor]:
        begin = self.starts[index]
        lengths = self.starts[index + 1] - begin
        starts = torch.zeros(len(index) + 1, dtype=torch.long)
        torch.cumsum(lengths, 0, out=starts[1:])
        # position of a feature = begin of its text + its place inside the text
        shift = torch.repeat_interleave(begin - starts[:-1], lengths)
        return self.features[torch.arange(len(shift)) + shift], starts


@dataclass
class Dataset:
    """All that a run needs to know of its data.

    `preprocessing` is JSON-able and holds what is needed to encode new inputs in the same way.
    """

    train: Examples
    dev: Examples | None
    test: Examples
    label_names: list[str]
    groups: dict[str, list[str]] | None = None
    augment: Augment | None = None
    preprocessing: dict[str, Any] = field(default_factory=dict)
    specials: tuple[str, ...] = ()
    """Labels that are no words, such as the end of a text."""
    label_counts: list[int] | None = None
    """How often each label is a target in training, where somebody may ask for the frequent ones."""
    digest: str = ""
    """SHA-256 of all that was read, before a seed splits it: the same in every run on the same data."""
