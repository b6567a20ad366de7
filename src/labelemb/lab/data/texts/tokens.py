"""Texts as token ids of an existing tokenizer, for pretrained bodies."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate, chain
from typing import Any

import torch
from torch import Tensor

from labelemb.lab.data.dataset import InputForm, Inputs, no_targets, tensor_bytes
from labelemb.lab.data.texts.examples import TextExamples, TextForm
from labelemb.lab.pretrained.places import vector_files
from labelemb.lab.pretrained.tokenizers import (
    make_tokenizer,
    read_network_tokenizer,
    read_tokenizer_file,
    token_numbers,
)
from labelemb.lab.recipes.pretrained_settings import PretrainedBody, TokenVectorsBody
from labelemb.support.errors import UserError

NO_TOKEN = -1
"""Fills up a text that has fewer tokens than the longest of its batch."""


class TokenExamples(TextExamples):
    """Texts as token numbers. A batch is one tensor, (rows, tokens of the longest); `NO_TOKEN` fills up the others."""

    def batch(self, index: Tensor) -> tuple[Inputs, Tensor]:
        tokens, starts = self._gather(index)
        lengths = starts.diff().unsqueeze(1)  # (rows, 1)
        places = torch.arange(max(1, int(lengths.max())))
        padded = torch.full((len(index), len(places)), NO_TOKEN)
        padded[places < lengths] = tokens
        return (padded,), self.targets[index]

    def batches(self, batch_size: int, generator: torch.Generator | None) -> list[Tensor]:
        """Index tensors of one epoch, shuffled with the generator; without one by length, which fills up little."""
        if generator is not None:
            return super().batches(batch_size, generator)
        return list(self.starts.diff().argsort(stable=True).split(batch_size))

    def content(self) -> Iterator[memoryview]:
        """The bytes of all texts."""
        return tensor_bytes(self.features, self.starts)


class TokenInputs(TextForm, frozen=True, tag="tokens", dict=True):
    """Texts as tokens: the tokenizer as JSON text, so that a run needs no other file."""

    tokenizer: str
    max_length: int
    """Tokens read of a text; 0 for all."""
    special_tokens: bool
    """Whether the tokenizer's marks for the start and the end of a text are added."""

    @cached_property
    def _tokenizer(self) -> Any:
        return make_tokenizer(self.tokenizer, "the kept tokenizer")

    @property
    def tokens(self) -> int:
        """How many tokens the tokenizer has."""
        return int(self._tokenizer.get_vocab_size())

    def encode(self, texts: Sequence[str], targets: Tensor | None = None) -> TokenExamples:
        numbers = token_numbers(self._tokenizer, texts, self.max_length, self.special_tokens)
        features = torch.tensor(list(chain.from_iterable(numbers)), dtype=torch.long)
        starts = torch.tensor([0, *accumulate(map(len, numbers))], dtype=torch.long)
        return TokenExamples(features, starts, no_targets(len(texts)) if targets is None else targets)

    def difference(self, other: InputForm) -> str:
        if isinstance(other, TokenInputs) and other != self:
            return "its tokenizer is another one"
        return super().difference(other)


def token_form(settings: TokenVectorsBody | PretrainedBody) -> TokenInputs:
    """How a body that was trained before reads texts."""
    if isinstance(settings, TokenVectorsBody):
        _, tokenizer = vector_files(settings)
        return TokenInputs(read_tokenizer_file(tokenizer), settings.max_length, special_tokens=False)
    text, limit = read_network_tokenizer(settings.name)
    if limit and settings.max_length > limit:
        raise UserError(f"body.max_length is {settings.max_length}, but {settings.name} takes at most {limit} tokens")
    return TokenInputs(text, settings.max_length or limit, special_tokens=True)
