"""Short signatures (hashes) of texts and images, to find duplicates without comparing all pairs."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterator, Sequence

import numpy as np

LETTERS = 3
"""Letters of the n-grams by which texts are compared: short enough for scripts that need few letters."""
HASHES, BANDS = 32, 8
"""Minimum hashes of a text and the bands they form: texts of similarity 0.8 meet with probability 0.98."""
TEXTS_AT_ONCE = 2_000
LONGEST_TEXT = 2_000
"""Letters of a text that are compared for near duplicates; exact ones compare all."""
THUMBNAIL = 16
IMAGES_AT_ONCE = 500


def normalise_text(text: str) -> str:
    """The text without differences of case, width, accents' encoding, white space and punctuation at its ends."""
    folded = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
    return folded.strip(" .,;:!?…。！？、，") or folded


def digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).digest()


def text_digest(text: str) -> bytes:
    return digest(normalise_text(text).encode("utf-8", "surrogatepass"))


def array_digest(array: np.ndarray) -> bytes:
    return digest(f"{array.dtype.str}{array.shape}".encode() + np.ascontiguousarray(array).tobytes())


def ngrams(text: str) -> set[str]:
    """The letter n-grams of a normalised text with a space before and after it."""
    padded = f" {normalise_text(text)[:LONGEST_TEXT]} "
    return {padded[start : start + LETTERS] for start in range(len(padded) - LETTERS + 1)}


def text_similarity(text: str, other: str) -> float:
    """Jaccard similarity of the letter n-grams: those in common over those in either."""
    first, second = ngrams(text), ngrams(other)
    union = len(first | second)
    return len(first & second) / union if union else 0.0


def text_signatures(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """MinHash of the letter n-grams: (texts, HASHES) uint16, and (texts, BANDS) uint64 that fold the hashes of a band.

    The share of equal hashes of two texts estimates their Jaccard similarity.
    """
    generator = np.random.default_rng(0)
    factors = generator.integers(1, 2**63, HASHES, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    offsets = generator.integers(0, 2**63, HASHES, dtype=np.uint64)
    bands, hashes = np.zeros((len(texts), BANDS), np.uint64), np.empty((len(texts), HASHES), np.uint16)
    for start in range(0, len(texts), TEXTS_AT_ONCE):
        part = texts[start : start + TEXTS_AT_ONCE]
        rows = slice(start, start + len(part))
        codes, starts = _ngram_codes(part)
        for number, (factor, offset) in enumerate(zip(factors, offsets, strict=True)):
            smallest = np.minimum.reduceat((codes * factor + offset) >> np.uint64(16), starts)
            band = number * BANDS // HASHES
            hashes[rows, number] = smallest & np.uint64(0xFFFF)
            bands[rows, band] = bands[rows, band] * np.uint64(0x9E3779B97F4A7C15) + smallest
    return hashes, bands


def _ngram_codes(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Codes of the n-grams of all texts in one array, and where each text starts in it."""
    padded = [f" {normalise_text(text)[:LONGEST_TEXT] or ' '} " for text in texts]
    letters = np.frombuffer("".join(padded).encode("utf-32-le", "surrogatepass"), np.uint32).astype(np.uint64)
    lengths = np.array([len(text) for text in padded])
    codes = letters[: len(letters) - LETTERS + 1].copy()
    for place in range(1, LETTERS):  # 21 bits hold every letter, so three of them fit without a collision
        codes = (codes << np.uint64(21)) | letters[place : len(letters) - LETTERS + 1 + place]
    # mixes the bits (splitmix64's finaliser), for the products of MinHash are otherwise ordered alike
    codes = (codes ^ (codes >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    codes ^= codes >> np.uint64(27)
    ends = np.cumsum(lengths)
    inside = np.ones(len(letters), bool)
    for place in range(1, LETTERS):  # n-grams that reach into the next text
        inside[ends - place] = False
    starts = np.concatenate([[0], np.cumsum(lengths - (LETTERS - 1))[:-1]])
    return codes[inside[: len(codes)]], starts


def thumbnails(images: Sequence[np.ndarray], rows: Sequence[int]) -> np.ndarray:
    """(rows, 256) uint8: grey pictures of 16 x 16, each scaled from its darkest to its brightest point."""
    found = np.empty((len(rows), THUMBNAIL * THUMBNAIL), np.uint8)
    if isinstance(images, np.ndarray):
        for start in range(0, len(rows), IMAGES_AT_ONCE):
            part = rows[start : start + IMAGES_AT_ONCE]
            found[start : start + len(part)] = _small_grey(images[part])
    else:
        for place, row in enumerate(rows):
            found[place] = _small_grey(images[row][None])[0]
    return found


def _small_grey(images: np.ndarray) -> np.ndarray:
    """Grey thumbnails of (n, height, width), (n, height, width, channels) or (n, channels, height, width)."""
    grey = images.astype(np.float32)
    if grey.ndim == 4:
        grey = grey.mean(axis=1 if grey.shape[1] <= 4 < grey.shape[3] else 3)
    for axis in (1, 2):
        grey = _averaged(grey, axis)
    flat = grey.reshape(len(grey), -1)
    low, high = flat.min(axis=1, keepdims=True), flat.max(axis=1, keepdims=True)
    return np.rint((flat - low) / np.maximum(high - low, 1e-12) * 255).astype(np.uint8)


def _averaged(grey: np.ndarray, axis: int) -> np.ndarray:
    """Means over THUMBNAIL equal parts of an axis; a point on the edge of two parts counts for both by its shares."""
    size = grey.shape[axis]
    sums = np.concatenate([np.zeros_like(grey.take([0], axis)), grey.cumsum(axis)], axis)
    edges = np.arange(THUMBNAIL + 1) * size / THUMBNAIL
    before = np.minimum(edges.astype(int), size - 1)
    shape = [1] * grey.ndim
    shape[axis] = -1
    share = (edges - before).astype(np.float32).reshape(shape)
    at_edges = sums.take(before, axis) * (1 - share) + sums.take(before + 1, axis) * share
    return np.diff(at_edges, axis=axis) / (size / THUMBNAIL)


def image_signatures(small: np.ndarray) -> np.ndarray:
    """(images, 4) uint64: a perceptual hash, the signs of the 64 lowest frequencies, in four bands from low to high.

    Within a band the lower frequencies, which a disturbed copy keeps best, are the higher bits: they sort first.
    """
    across, down = np.meshgrid(np.arange(9), np.arange(9))
    by_frequency = np.argsort((across + down).ravel(), kind="stable")[1:65]  # the first is the mean, which is 0
    waves = np.cos(np.pi / THUMBNAIL * np.outer(np.arange(9), np.arange(THUMBNAIL) + 0.5)).astype(np.float32)
    places = np.uint64(1) << np.arange(16, dtype=np.uint64)[::-1]
    found = np.empty((len(small), 4), np.uint64)
    for start in range(0, len(small), IMAGES_AT_ONCE):
        pictures = small[start : start + IMAGES_AT_ONCE].reshape(-1, THUMBNAIL, THUMBNAIL).astype(np.float32)
        strengths = (waves @ pictures @ waves.T).reshape(len(pictures), 81)  # the cosine transform
        bits = (strengths[:, by_frequency] > 0).reshape(-1, 4, 16)
        found[start : start + len(pictures)] = (bits * places).sum(axis=2)
    return found


def correlations(small: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """(pairs,) correlation of two thumbnails each; 0 for a picture of one colour."""
    found = np.zeros(len(pairs))
    for start in range(0, len(pairs), 10_000):
        part = pairs[start : start + 10_000]
        first, second = (small[part[:, side]].astype(np.float64) for side in (0, 1))
        first -= first.mean(axis=1, keepdims=True)
        second -= second.mean(axis=1, keepdims=True)
        scale = np.sqrt((first**2).sum(axis=1) * (second**2).sum(axis=1))
        found[start : start + len(part)] = (first * second).sum(axis=1) / np.maximum(scale, 1e-12)
    return found


def candidate_pairs(signatures: np.ndarray, window: int = 3) -> Iterator[np.ndarray]:
    """(pairs, 2) rows that share a band, one array for each band.

    A band sorts the rows by its number, then by the other bands; each row meets at most `window` following ones. So the
    work grows with the rows, also where thousands of rows share a band.
    """
    bands = signatures.shape[1]
    for band in range(bands):
        others = [signatures[:, (band + shift) % bands] for shift in range(bands)]
        order = np.lexsort(others[::-1])
        keys = signatures[order, band]
        for shift in range(1, window + 1):
            same = np.flatnonzero(keys[:-shift] == keys[shift:])
            yield np.sort(np.stack([order[same], order[same + shift]], axis=1), axis=1)
