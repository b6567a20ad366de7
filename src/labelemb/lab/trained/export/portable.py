"""Body and predictor of a run as one module for plain tensors, without observer and embedding.

The preprocessing that tensors can do is in the module: it takes the bytes of an image, or the numbers of a text's
features. The predictor's logits are divided by the run's temperature, so that their softmax is calibrated.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from labelemb.lab.bodies.embedding_bag import EmbeddingBag
from labelemb.lab.data import Examples, ImageInputs, TextExamples, TextInputs, TokenExamples, TokenInputs
from labelemb.lab.data.dataset import no_targets
from labelemb.lab.data.images.examples import Normalisation
from labelemb.lab.data.texts.tokens import NO_TOKEN
from labelemb.lab.data.texts.vocabulary import TOKEN
from labelemb.lab.trained.model import TrainedModel

NOTHING = -1
"""Fills up a text that has fewer features than the longest of its batch."""


class PortableModel(nn.Module, ABC):
    """`model(inputs)` gives logits, (batch, labels)."""

    input_name: str
    dimensions: Sequence[str]
    """Names of the input's leading dimensions, those of any size."""
    largest: Mapping[str, int] = {}
    """Sizes of dimensions that have a limit."""

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

    def __init__(self, body: nn.Module, predictor: nn.Linear, form: ImageInputs) -> None:
        super().__init__()
        self.body, self.predictor, self.form = body, predictor, form
        normalisation = Normalisation(form.channels, form.mean, form.std)
        self.scale: Tensor
        self.shift: Tensor
        self.register_buffer("scale", normalisation.scale)
        self.register_buffer("shift", normalisation.shift)

    def forward(self, images: Tensor) -> Tensor:
        return self.predictor(self.body(images.float() * self.scale + self.shift))

    @property
    def preprocessing(self) -> dict[str, Any]:
        return {
            "input": self.input_name,
            "type": "uint8",
            "shape": [*self.dimensions, self.form.channels, *self.form.size],
            "colors": "L" if self.form.channels == 1 else "RGB",
            "resize": "bilinear",
            "done in the model": {"scale": "(pixel / 255 - mean) / std", "mean": self.form.mean, "std": self.form.std},
        }

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        shape = (count, self.form.channels, *self.form.size)
        return torch.randint(256, shape, dtype=torch.uint8, generator=generator)

    def as_examples(self, inputs: Tensor) -> Examples:
        return self.form.encode(inputs)


class PortableTexts(PortableModel):
    """Takes the numbers of a text's features in the vocabulary, (batch, length); -1 fills up short texts."""

    input_name = "features"
    dimensions = ("batch", "length")

    def __init__(self, body: EmbeddingBag, predictor: nn.Linear, form: TextInputs) -> None:
        super().__init__()
        self.vectors, self.top, self.predictor, self.form = body.vectors.weight, body.top, predictor, form

    def forward(self, features: Tensor) -> Tensor:
        known = (features != NOTHING).unsqueeze(-1)  # (batch, length, 1)
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
            "ngrams": self.form.ngrams,
            "vocabulary": self.form.vocabulary,
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
        return TextExamples(inputs[known], starts, no_targets(len(inputs)))


class PortableTokens(PortableModel):
    """Takes the numbers of a text's tokens, (batch, length); -1 fills up short texts."""

    input_name = "tokens"
    dimensions = ("batch", "length")

    def __init__(self, body: nn.Module, predictor: nn.Linear, form: TokenInputs) -> None:
        super().__init__()
        self.body, self.predictor, self.form = body, predictor, form
        if form.max_length:
            self.largest = {"length": form.max_length}

    def forward(self, tokens: Tensor) -> Tensor:
        return self.predictor(self.body(tokens))

    @property
    def preprocessing(self) -> dict[str, Any]:
        return {
            "input": self.input_name,
            "type": "int64",
            "shape": list(self.dimensions),
            "padding": NO_TOKEN,
            "longest": self.form.max_length,
            "special tokens": self.form.special_tokens,
            "tokenizer.json": self.form.tokenizer,
        }

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Texts of different lengths, in a batch of several one with a single token."""
        longest = min(count + 2, self.form.max_length or count + 2)
        tokens = torch.randint(self.form.tokens, (count, longest), generator=generator)
        lengths = (longest - torch.arange(count)).clamp(min=1)
        lengths[1:2] = 1
        return tokens.where(torch.arange(longest) < lengths.unsqueeze(1), NO_TOKEN)

    def as_examples(self, inputs: Tensor) -> Examples:
        known = inputs != NO_TOKEN
        starts = F.pad(known.sum(1).cumsum(0), (1, 0))
        return TokenExamples(inputs[known], starts, no_targets(len(inputs)))


def portable_model(trained: TrainedModel) -> PortableModel:
    """The model of a run as a portable module, on the CPU in single precision."""
    trained.check_export()
    classifier = copy.deepcopy(trained.classifier).cpu().float().eval().requires_grad_(False)
    predictor = classifier.head.export_predictor(fold_temperature=True).requires_grad_(False)
    if isinstance(trained.inputs, TokenInputs):
        return PortableTokens(classifier.body, predictor, trained.inputs).eval()
    if isinstance(trained.inputs, TextInputs):
        return PortableTexts(cast(EmbeddingBag, classifier.body), predictor, trained.inputs).eval()
    return PortableImages(classifier.body, predictor, cast(ImageInputs, trained.inputs)).eval()
