"""Reads corpora of text pairs, and holds out missing parts."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import torch

from labelemb.lab.data.dataset import Dataset
from labelemb.lab.data.files import file_of, find_data, read_parallel
from labelemb.lab.data.pairs.encoder import PairEncoder, Pairs
from labelemb.lab.data.pairs.lcsts import PARTS, find_part, read_part
from labelemb.lab.data.pairs.units import TextUnits
from labelemb.lab.data.pairs.vocabulary import SPECIALS
from labelemb.lab.recipes.settings import LcstsData, ParallelTextData, TextPairData
from labelemb.support.errors import UserError
from labelemb.support.optional import import_optional

NUMBERS = 10_000


@dataclass
class PairSplits:
    """Pairs as a reader found them; `folder` is where vocabulary files are looked for."""

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


def load_text_pairs(settings: TextPairData, path: Path | None, seed: int, batch_tokens: int) -> Dataset:
    """Read, split and encode pairs. `batch_tokens` is that of the training."""
    read = _read_pairs(settings, path)
    found = read.digest()
    splits = _hold_out(read, settings, seed)
    if settings.max_pairs:
        splits.train = splits.train[: settings.max_pairs]
    units = TextUnits.learned(settings, chain.from_iterable(splits.train))
    encoder = PairEncoder.learned(settings, units, splits.train, splits.folder)
    if isinstance(settings, ParallelTextData) and settings.vocabulary_files:
        for vocabulary in (encoder.source, encoder.target):
            found.update("\n".join(vocabulary.words).encode())
    train = encoder.encode_training(splits.train, settings.max_length, splits.source, batch_tokens)
    dev = None if splits.dev is None else encoder.encode_scored(splits.dev)
    assert splits.test is not None
    counts = torch.bincount(train.targets, minlength=len(encoder.target)).tolist()
    return Dataset(
        train,
        dev,
        encoder.encode_scored(splits.test),
        encoder.target.words,
        encoder.form,
        specials=SPECIALS,
        label_counts=counts,
        digest=found.hexdigest(),
    )


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
        return [pair for stem in wanted for pair in read_parallel(place, stem, suffixes)] or None

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
        raise UserError(f"this recipe generates its data: leave out --data {path}, or use another recipe")
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


def number_pairs() -> list[tuple[str, str]]:
    """All numbers in English, without hyphens and commas, and in Vietnamese."""
    num2words = import_optional("num2words", "data.kind = numbers", extra="text").num2words
    pairs = []
    for number in range(NUMBERS):
        english = num2words(number, lang="en").replace("-", " ").replace(",", "")
        pairs.append((english, num2words(number, lang="vi")))
    return pairs
