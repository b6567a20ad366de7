"""Inputs that occur more than once with different labels, or on both sides of a split."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from labelemb.findings import signatures
from labelemb.support.optional import import_optional

NEAR_TEXT = 0.8
"""Jaccard similarity of letter n-grams from which two texts are near duplicates."""
NEAR_IMAGE = 0.98
"""Correlation of grey thumbnails from which two images are near duplicates."""
IMAGE_WINDOW = 8
"""Images of a bucket that each one is compared with: a band of 16 signs tells fewer images apart than one of hashes."""
LEAST_EQUAL_HASHES = 0.6
"""Candidates with a smaller share of equal hashes are not compared: NEAR_TEXT, less three standard deviations."""


@dataclass(frozen=True)
class DuplicateFinding:
    """Examples whose inputs are the same or nearly the same, and that disagree in label or cross a split.

    Attributes:
        kind: "exact" (texts: but for case, white space and punctuation at the ends; else byte for byte) or "near".
        rows: the examples, in the order of the data.
        labels: the given label of each.
        splits: the split of each; None without splits.
        similarity: 1 for exact duplicates; Jaccard similarity of texts, correlation of images for near ones.
        different_labels, crosses_splits: which of the two it is; at least one is True.
        reason: the same in words.
    """

    kind: Literal["exact", "near"]
    rows: tuple[int, ...]
    labels: tuple[str, ...]
    splits: tuple[str, ...] | None
    similarity: float
    different_labels: bool
    crosses_splits: bool
    reason: str


Differ: TypeAlias = Callable[[np.ndarray], np.ndarray]
"""Which of the (pairs, 2) candidates are worth comparing: those that differ in label or split."""
NearPairs: TypeAlias = tuple[np.ndarray, np.ndarray]
"""(pairs, 2) near duplicates and their similarity."""


@dataclass(frozen=True)
class Comparison:
    """How one kind of input is compared.

    Attributes:
        digests: one for each input, equal for exact duplicates.
        near: finds near duplicates among some of the inputs; None for raw bytes and vectors of features.
    """

    digests: list[bytes]
    near: Callable[[list[int], Differ], NearPairs] | None = None


def find_duplicates(
    inputs: Sequence[Any], given: np.ndarray, names: Sequence[str], splits: np.ndarray | None
) -> tuple[DuplicateFinding, ...]:
    """Duplicates with different labels first, then those across splits; of each, exact ones come before near ones.

    Duplicates with one label in one split are fine.
    """
    comparison = compare_inputs(inputs)
    rows = _Rows(given, names, splits)
    members = _equal_rows(comparison.digests)
    found = [rows.finding("exact", group, 1.0) for group in members if len(group) > 1]
    if comparison.near is not None:
        codes = np.array([rows.code(group, -1 - number) for number, group in enumerate(members)])
        pairs, similarity = comparison.near(
            [group[0] for group in members], lambda pairs: codes[pairs[:, 0]] != codes[pairs[:, 1]]
        )
        for place in np.lexsort((pairs[:, 1], pairs[:, 0], -similarity)).tolist():
            first, second = pairs[place].tolist()
            found.append(rows.finding("near", sorted(members[first] + members[second]), float(similarity[place])))
    disagreeing = [finding for finding in found if finding is not None]
    return tuple(sorted(disagreeing, key=lambda finding: not finding.different_labels))


def _equal_rows(digests: list[bytes]) -> list[list[int]]:
    """Rows with the same digest together, in the order of the first of them."""
    groups: dict[bytes, list[int]] = {}
    for row, digest in enumerate(digests):
        groups.setdefault(digest, []).append(row)
    return list(groups.values())


class _Rows:
    """Label and split of every row, and what to say of rows with the same input."""

    def __init__(self, given: np.ndarray, names: Sequence[str], splits: np.ndarray | None) -> None:
        self._given, self._names, self._splits = given, names, splits
        places = np.zeros(len(given), np.int64) if splits is None else np.unique(splits, return_inverse=True)[1]
        self._codes = given.astype(np.int64) * (places.max(initial=0) + 1) + places

    def code(self, group: list[int], mixed: int) -> int:
        """A number equal for groups of the same label and split; `mixed` for a group that differs in itself."""
        codes = self._codes[group]
        return int(codes[0]) if (codes == codes[0]).all() else mixed

    def finding(self, kind: Literal["exact", "near"], rows: list[int], similarity: float) -> DuplicateFinding | None:
        """What is wrong with these rows; None where they agree in label and split."""
        labels = tuple(self._names[label] for label in self._given[rows])
        splits = None if self._splits is None else tuple(str(split) for split in self._splits[rows])
        different, crossing = len(set(labels)) > 1, splits is not None and len(set(splits)) > 1
        if not different and not crossing:
            return None
        parts = [f"labelled {_counted(labels)}"] if different else []
        parts += [f"in {_counted(splits)}"] if splits is not None and crossing else []
        same = "the same input" if kind == "exact" else f"nearly the same input ({similarity:.2f})"
        reason = f"{same} {', '.join(parts)}"
        return DuplicateFinding(kind, tuple(rows), labels, splits, similarity, different, crossing, reason)


def _counted(names: Sequence[str]) -> str:
    return ", ".join(f"{name!r} {count}x" if count > 1 else repr(name) for name, count in Counter(names).items())


def compare_inputs(inputs: Sequence[Any]) -> Comparison:
    """How these inputs are compared, by their type: texts, files, images, raw bytes or vectors of features."""
    if isinstance(inputs, np.ndarray) and inputs.dtype.kind in "biuf" and inputs.ndim >= 2:
        return _compare_arrays(inputs)
    kinds = {str: "text", bytes: "bytes", Path: "file"}
    found = {next((kind for of, kind in kinds.items() if isinstance(item, of)), "array") for item in inputs}
    if len(found) > 1:
        raise ValueError(f"inputs must be of one kind, not {' and '.join(sorted(found))}")
    kind = found.pop() if found else "bytes"
    if kind == "text":
        return Comparison([signatures.text_digest(text) for text in inputs], _NearTexts(inputs))
    if kind == "bytes":
        return Comparison([signatures.digest(content) for content in inputs])
    if kind == "file":
        files = _ImageFiles(inputs)
        return Comparison([signatures.digest(files.content(row)) for row in range(len(inputs))], _NearImages(files))
    return _compare_arrays([np.asarray(item) for item in inputs])


def _compare_arrays(arrays: Sequence[np.ndarray]) -> Comparison:
    digests = []
    for row, array in enumerate(arrays):
        if array.dtype.kind not in "biuf" or not 1 <= array.ndim <= 3 or not array.size:
            raise ValueError(
                f"input {row} must be a text, bytes, a Path, or an array of numbers with one to three dimensions, not "
                f"{array.dtype} of shape {array.shape}"
            )
        digests.append(signatures.array_digest(array))
    are_images = all(array.ndim > 1 for array in arrays)
    return Comparison(digests, _NearImages(arrays) if are_images else None)


class _ImageFiles(Sequence[Any]):
    """Image files, read when they are looked at."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        self._pillow = import_optional("PIL.Image", "comparing image files", "lab")

    def __len__(self) -> int:
        return len(self._paths)

    def content(self, row: int) -> bytes:
        try:
            return self._paths[row].read_bytes()
        except OSError as error:
            raise ValueError(f"input {row}: cannot read {self._paths[row]}: {error.strerror or error}") from error

    def __getitem__(self, row: Any) -> Any:
        try:
            with self._pillow.open(self._paths[row]) as image:
                return np.asarray(image.convert("L"))
        except (OSError, ValueError, self._pillow.DecompressionBombError) as error:
            raise ValueError(f"input {row}: {self._paths[row]} is not an image that Pillow reads: {error}") from error


@dataclass(frozen=True)
class _NearTexts:
    """Finds near duplicates by MinHash, and compares the letter n-grams of those that meet."""

    texts: Sequence[str]

    def __call__(self, rows: list[int], differ: Differ) -> NearPairs:
        hashes, bands = signatures.text_signatures([self.texts[row] for row in rows])
        alike: list[tuple[int, int]] = []
        similarity: list[float] = []
        for first, second in _candidates(bands, differ).tolist():
            if (hashes[first] == hashes[second]).mean() < LEAST_EQUAL_HASHES:
                continue
            value = signatures.text_similarity(self.texts[rows[first]], self.texts[rows[second]])
            if value >= NEAR_TEXT:
                alike.append((first, second))
                similarity.append(value)
        return np.array(alike, np.int64).reshape(-1, 2), np.array(similarity)


@dataclass(frozen=True)
class _NearImages:
    """Finds near duplicates by a perceptual hash, and correlates the thumbnails of those that meet."""

    images: Sequence[np.ndarray]

    def __call__(self, rows: list[int], differ: Differ) -> NearPairs:
        small = signatures.thumbnails(self.images, rows)
        pairs = _candidates(signatures.image_signatures(small), differ, window=IMAGE_WINDOW)
        similarity = signatures.correlations(small, pairs)
        near = similarity >= NEAR_IMAGE
        return pairs[near], similarity[near]


def _candidates(bands: np.ndarray, differ: Differ, window: int = 3) -> np.ndarray:
    """(pairs, 2) places that share a band and differ in label or split, each once."""
    keys = np.empty(0, np.int64)
    for pairs in signatures.candidate_pairs(bands, window):
        wanted = pairs[differ(pairs)]
        keys = np.union1d(keys, wanted[:, 0] * len(bands) + wanted[:, 1])
    return np.stack(np.divmod(keys, len(bands)), axis=1)
