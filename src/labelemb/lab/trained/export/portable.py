"""What leaves a run: body and predictor as one module that takes plain tensors, without observer and embedding.

The preprocessing that tensors can do is in the module: it takes the bytes of an image, or the numbers of a text's
features. The predictor's logits are divided by the run's temperature, so that their softmax is calibrated.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from labelemb.lab.bodies.embedding_bag import EmbeddingBag
from labelemb.lab.data import Examples, ImageExamples, TextExamples
from labelemb.lab.data.texts.vocabulary import TOKEN
from labelemb.lab.trained.model import TrainedModel
from labelemb.support.errors import UserError

NOTHING = -1
"""Fills up a text that has fewer features than the longest of its batch."""


class PortableModel(nn.Module, ABC):
    """`model(inputs)` gives logits, (batch, labels)."""

    input_name: str
    dimensions: Sequence[str]
    """Names of the input's leading dimensions, those of any size."""

    @property
    @abstractmethod
    def preprocessing(self) -> dict[str, Any]:
        """How an input is made; goes into the file."""

    @abstractmethod
    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Random inputs."""

    @abstractmethod
    def as_examples(self, inputs: Tensor) -> Examples:
        """The same inputs as the run reads them."""


class PortableImages(PortableModel):
    """Takes pixels from 0 to 255, (batch, channels, height, width)."""

    input_name = "images"
    dimensions = ("batch",)

    def __init__(self, body: nn.Module, predictor: nn.Linear, about: dict[str, Any]) -> None:
        super().__init__()
        self.body, self.predictor, self.about = body, predictor, about
        mean, std = (torch.tensor(about[name]).view(-1, 1, 1) for name in ("mean", "std"))
        self.scale: Tensor
        self.shift: Tensor
        self.register_buffer("scale", 1 / (255 * std))
        self.register_buffer("shift", -mean / std)

    def forward(self, images: Tensor) -> Tensor:
        return self.predictor(self.body(images.float() * self.scale + self.shift))

    @property
    def preprocessing(self) -> dict[str, Any]:
        return {
            "input": self.input_name,
            "type": "uint8",
            "shape": [*self.dimensions, self.about["channels"], *self.about["size"]],
            "colors": "L" if self.about["channels"] == 1 else "RGB",
            "resize": "bilinear",
            "done in the model": {"scale": "(pixel / 255 - mean) / std", **_only(self.about, "mean", "std")},
        }

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        shape = (count, self.about["channels"], *self.about["size"])
        return torch.randint(256, shape, dtype=torch.uint8, generator=generator)

    def as_examples(self, inputs: Tensor) -> Examples:
        return ImageExamples(inputs, _no_targets(inputs), self.about["mean"], self.about["std"])


class PortableTexts(PortableModel):
    """Takes the numbers of a text's features in the vocabulary, (batch, positions); -1 fills up short texts."""

    input_name = "features"
    dimensions = ("batch", "positions")

    def __init__(self, body: EmbeddingBag, predictor: nn.Linear, about: dict[str, Any]) -> None:
        super().__init__()
        self.vectors, self.top, self.predictor, self.about = body.vectors.weight, body.top, predictor, about

    def forward(self, features: Tensor) -> Tensor:
        known = (features != NOTHING).unsqueeze(-1)  # (batch, positions, 1)
        vectors = F.embedding(features.clamp(min=0), self.vectors) * known
        mean = vectors.sum(1) / known.sum(1).clamp(min=1)  # a text without features is all zeros
        return self.predictor(self.top(mean))

    @property
    def preprocessing(self) -> dict[str, Any]:
        return {
            "input": self.input_name,
            "type": "int64",
            "shape": list(self.dimensions),
            "padding": NOTHING,
            "lower": True,
            "words": TOKEN.pattern,
            **_only(self.about, "ngrams", "vocabulary"),
        }

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Texts of different lengths, in a batch of several one without any feature."""
        longest = count + 2
        features = torch.randint(len(self.vectors), (count, longest), generator=generator)
        lengths = longest - torch.arange(count)
        lengths[1:2] = 0
        return features.where(torch.arange(longest) < lengths.unsqueeze(1), NOTHING)

    def as_examples(self, inputs: Tensor) -> Examples:
        known = inputs != NOTHING
        starts = F.pad(known.sum(1).cumsum(0), (1, 0))
        return TextExamples(inputs[known], starts, _no_targets(inputs))


def portable_model(trained: TrainedModel) -> PortableModel:
    """The model of a run to be taken out, on the CPU in single precision."""
    if trained.recipe.task != "classification":
        raise UserError(
            f"{trained.run.path} learned {trained.recipe.task}, which cannot be exported: its texts are searched word "
            "by word, and a file of one network does not hold that search; use `labelemb translate`"
        )
    classifier = copy.deepcopy(trained.classifier).cpu().float().eval().requires_grad_(False)
    predictor = classifier.head.export_predictor(fold_temperature=True).requires_grad_(False)
    if trained.preprocessing["kind"] == "text":
        return PortableTexts(cast(EmbeddingBag, classifier.body), predictor, trained.preprocessing).eval()
    return PortableImages(classifier.body, predictor, trained.preprocessing).eval()


def _only(table: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: table[name] for name in names}


def _no_targets(inputs: Tensor) -> Tensor:
    return torch.full((len(inputs),), -1)
