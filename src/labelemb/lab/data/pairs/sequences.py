"""Text pairs as numbers, and batches of pairs of similar length."""

from array import array
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from labelemb.lab.data.dataset import Examples, Inputs

IGNORED = -100
"""The target at a padded position: the heads leave it out of everything."""
BUCKET = 2
"""Target lengths that may stand in one bucket: padding is at most one position of a target."""


class Ragged:
    """Rows of different length, one after the other; row i is values[starts[i]:starts[i + 1]]."""

    def __init__(self, values: Tensor, starts: Tensor) -> None:
        self.values, self.starts = values, starts
        self.lengths = starts[1:] - starts[:-1]

    @classmethod
    def from_rows(cls, rows: Iterable["array[int]"]) -> "Ragged":
        values, starts = array("i"), array("q", [0])
        for row in rows:
            values.extend(row)
            starts.append(len(values))
        return cls(torch.tensor(values, dtype=torch.int32), torch.tensor(starts, dtype=torch.long))

    def __len__(self) -> int:
        return len(self.lengths)

    def select(self, places: Sequence[int]) -> "Ragged":
        starts = self.starts.tolist()
        return Ragged.from_rows(array("i", self.values[starts[i] : starts[i + 1]].tolist()) for i in places)

    def padded(self, index: Tensor, padding: int) -> Tensor:
        """The rows `index`, (rows, longest), long."""
        lengths = self.lengths[index]
        places = torch.arange(int(lengths.max()) if len(index) else 0)
        inside = places < lengths.unsqueeze(1)
        positions = (self.starts[index].unsqueeze(1) + places).where(inside, 0)
        return self.values[positions].long().where(inside, padding)


class SequenceExamples(Examples):
    """Source and target texts. A batch is ((source, source lengths, target shifted by one), target).

    Targets end with the end symbol and are padded with `IGNORED`; the shifted target begins with the begin symbol.
    `source_words` and `references` are the texts themselves, where somebody may want to generate and to score.
    """

    def __init__(
        self,
        source: Ragged,
        target: Ragged,
        begin: int,
        source_words: list[list[str]] | None = None,
        references: list[str] | None = None,
        batch_tokens: int = 0,
    ) -> None:
        self.targets = target.values  # as they are: a long copy of a large corpus would be felt
        self.source, self.target, self.begin = source, target, begin
        self.source_words, self.references = source_words or [], references or []
        self.batch_tokens = batch_tokens

    def __len__(self) -> int:
        return len(self.target)

    @property
    def rows(self) -> int:
        return len(self.target.values)

    def count_rows(self, index: Tensor) -> int:
        return int(self.target.lengths[index].sum())

    def batch(self, index: Tensor) -> tuple[Inputs, Tensor]:
        targets = self.target.padded(index, IGNORED)
        start = torch.full((len(index), 1), self.begin)
        # what is fed at a padded position reaches no valid one: the decoder only looks back
        shifted = torch.cat([start, targets[:, :-1].where(targets[:, :-1] != IGNORED, self.begin)], dim=1)
        return (*self.source_batch(index), shifted), targets

    def source_batch(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Source (pairs, longest) and lengths (pairs,): what is needed to generate."""
        return self.source.padded(index, 0), self.source.lengths[index]

    def select(self, index: Tensor) -> "SequenceExamples":
        places = index.tolist()
        words = [self.source_words[i] for i in places] if self.source_words else None
        references = [self.references[i] for i in places] if self.references else None
        source, target = self.source.select(places), self.target.select(places)
        return SequenceExamples(source, target, self.begin, words, references, self.batch_tokens)

    def batches(self, batch_size: int, generator: torch.Generator | None) -> list[Tensor]:
        """Batches of like length, of `batch_tokens` target positions or else `batch_size` pairs; with a generator the
        pairs of one length and the batches are shuffled. How many there are does not depend on the generator."""
        order = self._by_length(generator)
        batches = self._within_budget(order) if self.batch_tokens else list(order.split(batch_size))
        if generator is None:
            return batches
        return [batches[place] for place in torch.randperm(len(batches), generator=generator).tolist()]

    def _by_length(self, generator: torch.Generator | None) -> Tensor:
        """By target length in buckets, inside by source length, up and down in turn so that neighbours are alike."""
        count = len(self)
        shuffled = torch.arange(count) if generator is None else torch.randperm(count, generator=generator)
        bucket = (self.target.lengths[shuffled] - 1) // BUCKET
        source = self.source.lengths[shuffled]
        key = torch.where(bucket % 2 == 0, source, -source)
        order = torch.argsort(key, stable=True)
        return shuffled[order[torch.argsort(bucket[order], stable=True)]]

    def _within_budget(self, order: Tensor) -> list[Tensor]:
        bucket = (self.target.lengths[order] - 1) // BUCKET
        batches: list[Tensor] = []
        for number, part in zip(*_runs(bucket, order), strict=True):
            batches += part.split(max(1, self.batch_tokens // ((number + 1) * BUCKET)))
        return batches


def _runs(keys: Tensor, values: Tensor) -> tuple[list[int], list[Tensor]]:
    """The runs of equal keys, and the values under each."""
    found, counts = torch.unique_consecutive(keys, return_counts=True)
    return found.tolist(), list(values.split(counts.tolist()))
