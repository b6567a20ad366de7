"""Converts the given labels (names, indices or class values) to column indices of the probabilities."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from labelemb.support.wording import did_you_mean, quote_few


def resolve_labels(labels: Any, names: Sequence[Any] | None, columns: int | None) -> tuple[np.ndarray, tuple[str, ...]]:
    """(rows,) int64 indices of the given labels, and one name for each of the `columns`.

    With names, labels are names or, where names are strings and labels integers, indices of names. Without, they are
    indices of columns, or values whose sorted distinct ones stand for the columns, as scikit-learn's `classes_`.
    """
    given = _label_array(labels)
    if names is None:
        if columns is None:
            raise ValueError("pass names: top-k pairs do not tell how many labels there are")
        indices, texts = _without_names(given, columns)
    else:
        if isinstance(names, str):
            raise ValueError(f"names must be a sequence of label names, not the one string {names!r}")
        listed = [name.item() if isinstance(name, np.generic) else name for name in names]
        texts = tuple(str(name) for name in listed)
        if columns is not None and len(texts) != columns:
            raise ValueError(
                f"{len(texts)} names for {columns} columns of probabilities: pass one name for each column"
            )
        refuse_repeated(texts)
        by_index = given.dtype.kind == "i" and all(isinstance(name, str) for name in listed)
        indices = _indices(given, len(texts)) if by_index else _by_name(given, texts)
    if len(texts) < 2:
        raise ValueError(f"there is only the label {texts[0]!r}: an audit needs at least two" if texts else "no labels")
    return indices, texts


def refuse_repeated(names: Sequence[str]) -> None:
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise ValueError(f"names must be unique, but more than once there is {quote_few(repeated)}")


def _label_array(labels: Any) -> np.ndarray:
    """(rows,) integers (kind "i") or strings (kind "U" or "O")."""
    given = np.asarray(labels)
    if given.ndim != 1 or not len(given):
        raise ValueError(f"labels must be one label for each row, not of shape {given.shape}")
    if given.dtype.kind == "f":
        broken = np.flatnonzero(~np.isfinite(given) | (given != np.floor(given)))
        if len(broken):
            raise ValueError(f"the label of row {broken[0]} is {given[broken[0]]}: labels are names or integers")
    if given.dtype.kind in "fub":
        given = given.astype(np.int64)
    if given.dtype.kind == "O":
        for row, label in enumerate(given.tolist()):
            if not isinstance(label, str | int | np.integer):
                raise ValueError(f"the label of row {row} is {label}: labels are names or integers; leave others out")
        if all(isinstance(label, int | np.integer) for label in given.tolist()):
            return given.astype(np.int64)
        return np.array([str(label) for label in given.tolist()], dtype=object)
    if given.dtype.kind not in "iUT":
        raise ValueError(f"labels must be names or integers, not {given.dtype}")
    return given


def _without_names(given: np.ndarray, columns: int) -> tuple[np.ndarray, tuple[str, ...]]:
    if given.dtype.kind == "i" and given.min() >= 0 and given.max() < columns:
        return given.astype(np.int64), tuple(str(index) for index in range(columns))
    distinct, indices = np.unique(given, return_inverse=True)
    if len(distinct) != columns:
        raise ValueError(
            f"{len(distinct)} different labels for {columns} columns of probabilities: pass names, one for each column"
        )
    return indices.astype(np.int64), tuple(str(name) for name in distinct.tolist())


def _indices(given: np.ndarray, count: int) -> np.ndarray:
    outside = np.flatnonzero((given < 0) | (given >= count))
    if len(outside):
        raise ValueError(f"the label of row {outside[0]} is {given[outside[0]]}: it must lie between 0 and {count - 1}")
    return given.astype(np.int64)


def _by_name(given: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    index_of = {name: index for index, name in enumerate(names)}
    distinct, inverse = np.unique(given, return_inverse=True)
    indices = np.empty(len(distinct), np.int64)
    for place, name in enumerate(map(str, distinct.tolist())):
        if name not in index_of:
            raise ValueError(f"the label {name!r} is not among the {len(names)} names{did_you_mean(name, names)}")
        indices[place] = index_of[name]
    return indices[inverse]
