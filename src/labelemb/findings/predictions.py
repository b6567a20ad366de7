"""Out-of-fold probabilities reduced to the top k of each row; read from an array, top-k pairs, or blocks of either."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

Block: TypeAlias = Any
"""(rows, labels) probabilities, or a pair of (rows, k) arrays: label indices (-1: unused) and their probabilities."""

Reduced: TypeAlias = tuple[np.ndarray, np.ndarray, np.ndarray]
"""(rows,) probability of the given label; (rows, k) labels and (rows, k) values of the largest probabilities."""

SUM_TOLERANCE = 0.01
"""How far from 1 a row may sum: half precision stays far below, logits and scores do not."""
BLOCK_NUMBERS = 1_000_000
"""Numbers of a large array that are looked at together."""


@dataclass(frozen=True)
class Predictions:
    """What is kept of the probabilities of n rows over m labels.

    Attributes:
        given: (n,) index of the label that each example carries.
        self_confidence: (n,) float32 probability of the given label; NaN where a row has no prediction.
        top_labels: (n, k) int32 indices of the most probable labels, best first; -1: unused.
        top_values: (n, k) float32 probabilities of these; 0 where unused.
        num_labels: m.
        absent: (m,) True for a label whose every example has probability exactly 0 (or NaN) for it. In k-fold cross
            validation this is how a label looks that was absent from the training part of a fold: all of its examples
            were in the held-out part.
    """

    given: np.ndarray
    self_confidence: np.ndarray
    top_labels: np.ndarray
    top_values: np.ndarray
    num_labels: int
    absent: np.ndarray

    @cached_property
    def predicted_rows(self) -> np.ndarray:
        """(n,) True where the row has a prediction."""
        return ~np.isnan(self.self_confidence)

    @cached_property
    def usable(self) -> np.ndarray:
        """(n,) True where the row has a prediction by a model that knew its given label."""
        return self.predicted_rows & ~self.absent[self.given]

    @cached_property
    def predicted(self) -> np.ndarray:
        """(n,) the most probable label; the given one where it is equally probable; -1 without a prediction."""
        best = np.where(self.self_confidence >= self.top_values[:, 0], self.given, self.top_labels[:, 0])
        return np.where(self.predicted_rows, best, -1)

    def best_other(self) -> tuple[np.ndarray, np.ndarray]:
        """(n,) the most probable label that is not the given one, and its probability."""
        column = (self.top_labels[:, 0] == self.given).astype(np.intp)
        rows = np.arange(len(self.given))
        return self.top_labels[rows, column], self.top_values[rows, column]


def read_predictions(probabilities: Any, given: np.ndarray, num_labels: int, top_k: int) -> Predictions:
    """The predictions of all rows, checked; `ValueError` for numbers that are no probabilities."""
    rows, k = len(given), min(top_k, num_labels)
    self_confidence = np.full(rows, np.nan, np.float32)
    top_labels, top_values = np.full((rows, k), -1, np.int32), np.zeros((rows, k), np.float32)
    above_zero = np.zeros(num_labels, bool)
    reduction = _Reduction(num_labels, k)
    start = 0
    for block in blocks_of(probabilities):
        pair = isinstance(block, tuple)
        stop = start + len(block[0] if pair else block)
        if stop > rows:
            raise ValueError(f"probabilities have more rows than the {rows} labels: pass one label for each row")
        part = given[start:stop]
        reduced = reduction.pairs(block[0], block[1], part, start) if pair else reduction.dense(block, part, start)
        own, labels, values = reduced
        above_zero[part[own > 0]] = True
        self_confidence[start:stop] = own
        top_labels[start:stop, : labels.shape[1]], top_values[start:stop, : labels.shape[1]] = labels, values
        start = stop
    if start < rows:
        raise ValueError(f"{start} rows of probabilities for {rows} labels: pass one label for each row")
    if np.isnan(self_confidence).all():
        raise ValueError("probabilities are NaN in every row: there is no prediction to audit")
    has_examples = np.bincount(given, minlength=num_labels) > 0
    return Predictions(given, self_confidence, top_labels, top_values, num_labels, has_examples & ~above_zero)


def blocks_of(probabilities: Any) -> Iterator[Block]:
    """Blocks of bounded size from an array, from a pair of top-k arrays, or from an iterable of either."""
    if _is_pair(probabilities):
        yield from _pair_blocks(probabilities)
    elif hasattr(probabilities, "__array__") or _is_nested_list(probabilities):
        yield from _dense_blocks(np.asarray(probabilities))
    elif isinstance(probabilities, Iterable) and not isinstance(probabilities, str | bytes):
        for block in probabilities:
            yield from _pair_blocks(block) if _is_pair(block) else _dense_blocks(np.asarray(block))
    else:
        kind = type(probabilities).__name__
        raise ValueError(f"probabilities must be an array (rows, labels) or an iterable of such blocks, not a {kind}")


def columns_of(probabilities: Any) -> int | None:
    """The number of labels of an array of probabilities; None where only its blocks, or the names, tell."""
    if _is_pair(probabilities) or not (hasattr(probabilities, "__array__") or _is_nested_list(probabilities)):
        return None
    shape = np.shape(probabilities)
    return shape[1] if len(shape) == 2 else None


def _is_pair(value: Any) -> bool:
    if not isinstance(value, tuple) or len(value) != 2:
        return False
    first = np.asarray(value[0])
    return first.ndim == 2 and first.dtype.kind in "iu"


def _is_nested_list(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and np.ndim(value[0]) == 1 and not _is_pair(value)


def _dense_blocks(array: np.ndarray) -> Iterator[np.ndarray]:
    if array.ndim != 2 or array.dtype.kind not in "fiu":
        raise ValueError(
            f"probabilities must be numbers of shape (rows, labels), not {array.dtype} of shape {array.shape}"
        )
    step = max(1, BLOCK_NUMBERS // max(1, array.shape[1]))
    for start in range(0, len(array), step):
        yield array[start : start + step]


def _pair_blocks(pair: tuple[Any, Any]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    indices, values = np.asarray(pair[0]), np.asarray(pair[1])
    if indices.ndim != 2 or indices.shape != values.shape or values.dtype.kind != "f":
        raise ValueError(
            f"top-k pairs must be indices and probabilities of one shape (rows, k), not {indices.shape} and "
            f"{values.dtype} {values.shape}"
        )
    step = max(1, BLOCK_NUMBERS // max(1, indices.shape[1]))
    for start in range(0, len(indices), step):
        yield indices[start : start + step], values[start : start + step]


@dataclass(frozen=True)
class _Reduction:
    """Takes from a block of rows that begins at row `start` what `Predictions` keeps, with k entries a row."""

    num_labels: int
    k: int

    def dense(self, block: np.ndarray, given: np.ndarray, start: int) -> Reduced:
        """Probability of the given label, and labels and probabilities of the k largest entries, of each row."""
        if block.shape[1] != self.num_labels:
            raise ValueError(
                f"probabilities have {block.shape[1]} columns (row {start}) but there are {self.num_labels} labels: "
                "pass one column for each label, also for labels without examples"
            )
        if block.dtype.kind != "f" or block.dtype.itemsize < 4:
            block = block.astype(np.float32)
        sums = block.sum(axis=1, dtype=np.float64 if block.dtype.itemsize > 4 else np.float32)
        missing = np.isnan(sums)
        no_prediction = np.zeros(len(block), bool)
        if missing.any():
            no_prediction[missing] = np.isnan(block[missing]).all(axis=1)
            block = np.nan_to_num(
                block, nan=0.0, posinf=np.inf, neginf=-np.inf
            )  # NaN: a label that a fold did not know
            sums = block.sum(axis=1)
        _check_rows(block.min(axis=1), np.abs(sums - 1) > SUM_TOLERANCE, sums, no_prediction, start)
        own = block[np.arange(len(block)), given]
        own[no_prediction] = np.nan
        labels, values = largest(block, self.k)
        return own, labels, values

    def pairs(self, indices: np.ndarray, values: np.ndarray, given: np.ndarray, start: int) -> Reduced:
        """The same from the largest entries of each row; labels that are not listed count as 0."""
        unused = indices < 0
        if indices.size and (indices.max() >= self.num_labels or indices.min() < -1):
            worst = int(indices.max()) if indices.max() >= self.num_labels else int(indices.min())
            raise ValueError(
                f"top-k pairs name label {worst} but there are {self.num_labels} labels (and -1 for unused places)"
            )
        in_order = np.sort(np.where(unused, -1 - np.arange(indices.shape[1]), indices), axis=1)
        repeated = (np.diff(in_order, axis=1) == 0).any(axis=1)
        if repeated.any():
            raise ValueError(f"top-k pairs name a label twice in row {start + int(repeated.argmax())}")
        no_prediction = (np.isnan(values) | unused).all(axis=1)
        values = np.where(unused | np.isnan(values), 0.0, values).astype(np.float32)
        sums = values.sum(axis=1)
        _check_rows(values.min(axis=1), sums > 1 + SUM_TOLERANCE, sums, no_prediction, start)
        own = np.where((indices == given[:, None]), values, 0).sum(axis=1)
        own[no_prediction] = np.nan
        order = np.lexsort((np.where(unused, self.num_labels, indices), -values), axis=1)[:, : self.k]
        labels = np.take_along_axis(indices, order, axis=1).astype(np.int32)
        return own, labels, np.take_along_axis(values, order, axis=1)


def _check_rows(
    least: np.ndarray, wrong_sum: np.ndarray, sums: np.ndarray, no_prediction: np.ndarray, start: int
) -> None:
    if (least < 0).any():
        row = int((least < 0).argmax())
        raise ValueError(
            f"the probability {least[row]:.4g} in row {start + row} is negative: pass probabilities, not logits"
        )
    wrong_sum = (wrong_sum | ~np.isfinite(sums)) & ~no_prediction
    if wrong_sum.any():
        row = int(wrong_sum.argmax())
        raise ValueError(
            f"row {start + row} of probabilities sums to {sums[row]:.4g}, not to 1: pass probabilities over all labels"
        )


def largest(block: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Columns and values (rows, k) of the k largest positive entries of each row, largest first, then by column.

    Rows with fewer positive entries have column -1 and value 0 in the unused places.
    """
    rows, columns = block.shape
    least = np.maximum(_lower_bounds(block, k), np.finfo(np.float32).tiny)
    row, column = np.divmod(np.flatnonzero(block >= least[:, None]), columns)
    found = block[row, column].astype(np.float32)
    order = np.lexsort((column, -found, row))
    place = np.arange(len(row)) - np.searchsorted(row, np.arange(rows))[row]  # `row` is in order already
    kept = place < k
    row, place, order = row[kept], place[kept], order[kept]
    labels, values = np.full((rows, k), -1, np.int32), np.zeros((rows, k), np.float32)
    labels[row, place], values[row, place] = column[order], found[order]
    return labels, values


def _lower_bounds(block: np.ndarray, k: int) -> np.ndarray:
    """(rows,) a number that at least k entries of the row reach: the k-th largest of the maxima of groups of columns.

    Reads a row of many columns once, where a partition of the whole row takes several times as long.
    """
    rows, columns = block.shape
    groups = int((columns * k) ** 0.5)
    depth = columns // groups
    # group g holds the columns g, g + groups, g + 2 groups, ...; what is left over belongs to no group
    maxima = block[:, : depth * groups].reshape(rows, depth, groups).max(axis=1) if depth > 1 else block
    return np.partition(maxima, maxima.shape[1] - k, axis=1)[:, maxima.shape[1] - k]
