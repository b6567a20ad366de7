"""Encodes text pairs as numbers: units and vocabularies, and what a run saves of them."""

from array import array
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from labelemb.lab.data.dataset import InputForm
from labelemb.lab.data.files import file_of, read_parallel
from labelemb.lab.data.pairs.sequences import Ragged, SequenceExamples
from labelemb.lab.data.pairs.units import TextUnits
from labelemb.lab.data.pairs.vocabulary import WordVocabulary
from labelemb.lab.recipes.settings import DataSettings, ParallelTextData, TextPairData
from labelemb.support.errors import UserError

Pairs = list[tuple[str, str]]


class PairInputs(InputForm, frozen=True, tag="text_pairs"):
    """Pairs of texts: their units and the source words. The target words are the run's label names."""

    noun: ClassVar[str] = "pairs of texts"

    units: dict[str, Any]
    source_words: list[str] | None
    """None where source and target share a vocabulary."""
    source_size: int
    begin: int
    cut_source: int

    def read_labelled(self, place: Path, settings: DataSettings, label_names: list[str]) -> SequenceExamples:
        """Two line-aligned files: `place` is one of them, or their names before the suffixes of the recipe."""
        named = settings if isinstance(settings, ParallelTextData) else ParallelTextData()
        suffixes = (named.source_suffix, named.target_suffix)
        stem = place.name
        if place.is_file():
            stem = stem.removesuffix(".gz").removesuffix(f".{suffixes[0]}").removesuffix(f".{suffixes[1]}")
        pairs = read_parallel(place.parent, stem, suffixes)
        return PairEncoder.from_form(self, label_names).encode_scored(pairs)

    def difference(self, other: InputForm) -> str:
        if isinstance(other, PairInputs) and other != self:
            return "its vocabulary is another one"
        return super().difference(other)


@dataclass
class PairEncoder:
    """Encodes texts as numbers: with units, two vocabularies, and a limit on how much of a source is read."""

    units: TextUnits
    source: WordVocabulary
    target: WordVocabulary
    cut_source: int = 0

    @classmethod
    def learned(cls, settings: TextPairData, units: TextUnits, train: Pairs, folder: Path | None) -> "PairEncoder":
        """An encoder with vocabularies from the recipe's files in `folder`, or else counted in the training pairs."""
        if isinstance(settings, ParallelTextData) and settings.vocabulary_files:
            source, target = _read_vocabularies(settings, folder or Path())
            return cls(units, source, target, settings.cut_source)
        counts: list[Counter[str]] = [Counter(), Counter()]
        for pair in train:
            source_words = units.split(pair[0])
            counts[0].update(source_words[: settings.cut_source or None])
            counts[1].update(units.split(pair[1]))
        if settings.shared_vocabulary:
            both = WordVocabulary.from_counts(counts[0] + counts[1], settings.vocabulary, settings.min_count)
            return cls(units, both, both, settings.cut_source)
        limits = (settings.source_vocabulary or settings.vocabulary, settings.vocabulary)
        source, target = (
            WordVocabulary.from_counts(part, limit, settings.min_count)
            for part, limit in zip(counts, limits, strict=True)
        )
        return cls(units, source, target, settings.cut_source)

    @classmethod
    def from_form(cls, form: PairInputs, target_words: list[str]) -> "PairEncoder":
        """The encoder that a run has kept; the target words are the run's label names."""
        target = WordVocabulary(target_words)
        source = target if form.source_words is None else WordVocabulary(form.source_words)
        return cls(TextUnits(**form.units), source, target, form.cut_source)

    @property
    def form(self) -> PairInputs:
        """What a run keeps, beside its label names."""
        return PairInputs(
            units=self.units.to_dict(),
            source_words=None if self.source is self.target else self.source.words,
            source_size=len(self.source),
            begin=self.target.begin,
            cut_source=self.cut_source,
        )

    def source_units(self, text: str) -> list[str]:
        """Units of a source, as far as it is read."""
        return self.units.split(text)[: self.cut_source or None]

    def encode_training(self, pairs: Pairs, longest: int, name: str, batch_tokens: int) -> SequenceExamples:
        """Pairs to train on: those with an empty side or a side of more than `longest` units are left out."""
        sources, targets = [], []
        for source_text, target_text in pairs:
            source, target = self.source_units(source_text), self.units.split(target_text)
            if source and target and not (longest and max(len(source), len(target)) > longest):
                sources.append(self.source.encode(source))
                targets.append(self._ended(target))
        if not sources:
            raise UserError(
                f"{name}: of {len(pairs)} training pairs none is left, they are empty or longer than data.max_length"
                f" = {longest}"
            )
        return SequenceExamples(
            Ragged.from_rows(sources), Ragged.from_rows(targets), self.target.begin, batch_tokens=batch_tokens
        )

    def encode_scored(self, pairs: Pairs) -> SequenceExamples:
        """Pairs to generate and to score: every one of them, whatever its length."""
        words = [self.source_units(source) or [""] for source, _ in pairs]
        targets = [self.units.split(target) for _, target in pairs]
        return SequenceExamples(
            Ragged.from_rows(self.source.encode(source) for source in words),
            Ragged.from_rows(self._ended(target) for target in targets),
            self.target.begin,
            words,
            [self.units.scored(target) for target in targets],
        )

    def encode_sources(self, words: list[list[str]]) -> SequenceExamples:
        """Sources alone, split already and none of them empty."""
        sources = Ragged.from_rows(self.source.encode(source) for source in words)
        nothing = Ragged.from_rows(array("i", [self.target.end]) for _ in words)
        return SequenceExamples(sources, nothing, self.target.begin, words)

    def _ended(self, target: list[str]) -> "array[int]":
        numbers = self.target.encode(target)
        numbers.append(self.target.end)
        return numbers


def _read_vocabularies(settings: ParallelTextData, folder: Path) -> tuple[WordVocabulary, WordVocabulary]:
    files = settings.vocabulary_files
    if len(files) != (1 if settings.shared_vocabulary else 2):
        raise UserError(
            f"data.vocabulary_files names {len(files)} files: give one for source and one for target, or a single one "
            "with data.shared_vocabulary = true"
        )
    found = [file_of(folder, file) for file in files]
    for file, place in zip(files, found, strict=True):
        if place is None:
            raise UserError(f"there is no vocabulary file {file} (or {file}.gz) in {folder}")
    vocabularies = [WordVocabulary.from_file(place) for place in found if place is not None]
    return vocabularies[0], vocabularies[-1]
