"""Pairs of texts, such as sentences with their translations, and the dataset that a translation recipe trains on."""

import hashlib
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from labelemb.lab.data.dataset import Dataset
from labelemb.lab.data.files import find_data
from labelemb.lab.data.pairs.lcsts import PARTS, find_part, read_part
from labelemb.lab.data.pairs.numbers import number_pairs
from labelemb.lab.data.pairs.sequences import Ragged, SequenceExamples
from labelemb.lab.data.pairs.units import TextUnits
from labelemb.lab.data.pairs.vocabulary import SPECIALS, WordVocabulary
from labelemb.lab.data.text_files import read_pairs
from labelemb.lab.recipes.recipe import Recipe
from labelemb.lab.recipes.settings import LcstsData, ParallelTextData, TextPairData
from labelemb.support.errors import UserError

Pairs = list[tuple[str, str]]


@dataclass
class PairSplits:
    """What a reader found; `folder` is where vocabulary files are looked for."""

    train: Pairs
    dev: Pairs | None
    test: Pairs | None
    source: str
    folder: Path | None = None

    def digest(self) -> "hashlib._Hash":
        """SHA-256 of all pairs, to which more can be added."""
        found = hashlib.sha256()
        for part in (self.train, self.dev, self.test):
            found.update(b"part")
            found.update("\n".join(chain.from_iterable(part or [])).encode())
        return found


def load_text_pairs(recipe: Recipe, path: Path | None, seed: int) -> Dataset:
    """Read, split and encode the pairs of a recipe."""
    settings = recipe.data
    assert isinstance(settings, TextPairData)
    read = _read_pairs(settings, path)
    found = read.digest()
    splits = _hold_out(read, settings, seed)
    if settings.max_pairs:
        splits.train = splits.train[: settings.max_pairs]
    units = TextUnits.learned(settings, chain.from_iterable(splits.train))
    encoder = PairEncoder.learned(settings, units, splits)
    if isinstance(settings, ParallelTextData) and settings.vocabulary_files:
        for vocabulary in (encoder.source, encoder.target):
            found.update("\n".join(vocabulary.words).encode())
    train = encoder.encode_training(splits.train, settings.max_length, splits.source, recipe.train.batch_tokens)
    dev = None if splits.dev is None else encoder.encode_scored(splits.dev)
    assert splits.test is not None
    counts = torch.bincount(train.targets, minlength=len(encoder.target)).tolist()
    return Dataset(
        train,
        dev,
        encoder.encode_scored(splits.test),
        encoder.target.words,
        preprocessing=encoder.to_dict(),
        specials=SPECIALS,
        label_counts=counts,
        digest=found.hexdigest(),
    )


def file_of(folder: Path, name: str) -> Path | None:
    """The file of that name, packed or not."""
    return next((place for place in (folder / name, folder / f"{name}.gz") if place.is_file()), None)


def find_text_pairs(settings: TextPairData, path: Path | None) -> Path | None:
    """Where the pairs of a recipe are, or None where they need no files."""
    if isinstance(settings, LcstsData):
        return _find_lcsts(settings, path)
    return _find_parallel(settings, path) if isinstance(settings, ParallelTextData) else None


def _read_pairs(settings: TextPairData, path: Path | None) -> PairSplits:
    if isinstance(settings, LcstsData):
        return _read_lcsts(settings, path)
    return _read_parallel(settings, path) if isinstance(settings, ParallelTextData) else _read_numbers(path)


def _find_parallel(settings: ParallelTextData, path: Path | None) -> Path:
    if not settings.train_files:
        raise UserError('data.kind = parallel_text needs data.train_files, as ["train"] for train.src and train.tgt')
    stems = (*settings.train_files, *settings.dev_files, *settings.test_files)
    names = [f"{stem}.{suffix}" for stem in stems for suffix in (settings.source_suffix, settings.target_suffix)]
    return find_data(
        path,
        settings.folders,
        lambda found: found.is_dir() and any(file_of(found, name) for name in names),
        f"a folder with {', '.join(names)} (.gz or not)",
    )


def _read_parallel(settings: ParallelTextData, path: Path | None) -> PairSplits:
    place = _find_parallel(settings, path)
    suffixes = (settings.source_suffix, settings.target_suffix)

    def read(wanted: Sequence[str]) -> Pairs | None:
        pairs: Pairs = []
        for stem in wanted:
            files = [file_of(place, f"{stem}.{suffix}") for suffix in suffixes]
            for file, suffix in zip(files, suffixes, strict=True):
                if file is None:
                    raise UserError(f"{place} lacks the file {stem}.{suffix} (or {stem}.{suffix}.gz)")
            assert files[0] is not None
            assert files[1] is not None
            pairs += read_pairs(files[0], files[1])
        return pairs or None

    train = read(settings.train_files)
    return PairSplits(train or [], read(settings.dev_files), read(settings.test_files), str(place), place)


def _find_lcsts(settings: LcstsData, path: Path | None) -> Path:
    wanted = ", ".join(f"{name}.txt" for name in PARTS.values())
    names = f"{wanted}, or line files as {settings.train_files[0] if settings.train_files else 'train'}."
    names += f"{settings.source_suffix} and .{settings.target_suffix}"

    def holds(place: Path) -> bool:
        line_file = settings.train_files and file_of(place, f"{settings.train_files[0]}.{settings.source_suffix}")
        return place.is_dir() and bool(find_part(place, "train") or line_file)

    return find_data(path, settings.folders, holds, f"a folder with {names}")


def _read_lcsts(settings: LcstsData, path: Path | None) -> PairSplits:
    """The published PART files, or else line files as `parallel_text` reads them."""
    place = _find_lcsts(settings, path)
    if find_part(place, "train") is None:
        return _read_parallel(settings, place)
    pairs = {}
    for part, name in PARTS.items():
        file = find_part(place, part)
        if file is None:
            raise UserError(f"{place} lacks the file {name}.txt (or {name}.txt.gz)")
        pairs[part] = read_part(file)
    return PairSplits(pairs["train"], pairs["dev"], pairs["test"], str(place), place)


def _read_numbers(path: Path | None) -> PairSplits:
    if path is not None:
        raise UserError(f"the numbers are spelled out by a program: leave out --data {path}, or copy another recipe")
    return PairSplits(number_pairs(), None, None, "the numbers", None)


def _hold_out(splits: PairSplits, settings: TextPairData, seed: int) -> PairSplits:
    """Draw the parts that are missing from the training pairs."""
    total = len(splits.train)
    sizes = {"dev": settings.dev_size, "test": settings.test_size}
    counts = {
        part: 0 if getattr(splits, part) is not None else round(size * total) if size < 1 else round(size)
        for part, size in sizes.items()
    }
    if splits.test is None and counts["test"] == 0:
        raise UserError(f"{splits.source} has no test pairs: set data.test_files, or data.test_size to 0.1")
    if sum(counts.values()) >= total:
        raise UserError(
            f"{splits.source} has {total} pairs, data.dev_size and data.test_size take {counts['dev']} and "
            f"{counts['test']}: none are left to train on"
        )
    if not sum(counts.values()):
        return splits
    split_seed = seed if settings.split_seed < 0 else settings.split_seed
    order = torch.randperm(total, generator=torch.Generator().manual_seed(split_seed)).tolist()
    held = counts["dev"] + counts["test"]
    parts = {"dev": order[: counts["dev"]], "test": order[counts["dev"] : held]}
    for part, places in parts.items():
        if places:
            setattr(splits, part, [splits.train[place] for place in sorted(places)])
    splits.train = [splits.train[place] for place in sorted(order[held:])]
    return splits


@dataclass
class PairEncoder:
    """From texts to numbers: the units, the two vocabularies, and how much of a source is read."""

    units: TextUnits
    source: WordVocabulary
    target: WordVocabulary
    cut_source: int = 0

    @classmethod
    def learned(cls, settings: TextPairData, units: TextUnits, splits: PairSplits) -> "PairEncoder":
        """With vocabularies from the recipe's files, or else counted in the training pairs."""
        if isinstance(settings, ParallelTextData) and settings.vocabulary_files:
            source, target = _read_vocabularies(settings, splits.folder)
            return cls(units, source, target, settings.cut_source)
        counts: list[Counter[str]] = [Counter(), Counter()]
        for pair in splits.train:
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
    def from_dict(cls, saved: dict[str, Any], target_words: list[str]) -> "PairEncoder":
        """As a run has kept it; the target words are the run's label names."""
        target = WordVocabulary(target_words)
        source = target if saved["source_words"] is None else WordVocabulary(saved["source_words"])
        return cls(TextUnits(**saved["units"]), source, target, saved["cut_source"])

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": "text_pairs",
            "units": self.units.to_dict(),
            "source_words": None if self.source is self.target else self.source.words,
            "source_size": len(self.source),
            "begin": self.target.begin,
            "cut_source": self.cut_source,
        }

    def source_units(self, text: str) -> list[str]:
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


def _read_vocabularies(settings: ParallelTextData, folder: Path | None) -> tuple[WordVocabulary, WordVocabulary]:
    files = settings.vocabulary_files
    if len(files) != (1 if settings.shared_vocabulary else 2):
        raise UserError(
            f"data.vocabulary_files names {len(files)} files: give one for source and one for target, or a single one "
            "with data.shared_vocabulary = true"
        )
    found = [file_of(folder or Path(), file) for file in files]
    for file, place in zip(files, found, strict=True):
        if place is None:
            raise UserError(f"there is no vocabulary file {file} (or {file}.gz) in {folder or Path()}")
    vocabularies = [WordVocabulary.from_file(place) for place in found if place is not None]
    return vocabularies[0], vocabularies[-1]
