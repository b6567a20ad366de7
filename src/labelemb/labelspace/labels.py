"""Checks labels given by users: names, indices, and arrays, which become tensors."""

import json
import operator
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, SupportsIndex

import numpy as np
import torch
from torch import Tensor

from labelemb.labelspace.errors import LabelSpaceError, UnknownLabelError
from labelemb.support.wording import did_you_mean, quote, quote_few

Label = str | SupportsIndex
Labels = Iterable[Label] | Label | Tensor
ArrayLike = Tensor | np.ndarray | Sequence[Any]


class LabelIndex:
    """Names in order, and the index of a label given by name or index."""

    def __init__(self, names: Iterable[str] | None, num_labels: int) -> None:
        self.names = check_names(names, num_labels)
        self._index_of = {name: index for index, name in enumerate(self.names)}

    def __len__(self) -> int:
        return len(self.names)

    def __contains__(self, name: object) -> bool:
        return name in self._index_of

    def index(self, label: Label) -> int:
        if isinstance(label, str):
            if label in self._index_of:
                return self._index_of[label]
            hint = did_you_mean(label, self.names, limit=3)
            raise UnknownLabelError(f"unknown label {quote(label)} among {len(self)}{hint}")
        if isinstance(label, bool):
            raise TypeError(f"a label is a name or an index, not {label}")
        try:
            index = operator.index(label)
        except TypeError:
            raise TypeError(f"a label is a name or an index, not {type(label).__name__}") from None
        if not 0 <= index < len(self):
            raise UnknownLabelError(f"label index {index} is outside [0, {len(self)})")
        return index

    def indices(self, labels: Labels | None) -> Tensor:
        """The indices (k,) int64 of one label, several, or a tensor of indices; None is all."""
        if labels is None:
            return torch.arange(len(self))
        if isinstance(labels, Tensor) and labels.ndim > 0:
            return self._checked(labels)
        if isinstance(labels, str | Tensor) or not isinstance(labels, Iterable):
            return torch.tensor([self.index(labels)])
        return torch.tensor([self.index(label) for label in labels], dtype=torch.int64)

    def _checked(self, labels: Tensor) -> Tensor:
        if labels.ndim != 1:
            raise LabelSpaceError(f"a tensor of labels must have one dimension, not shape {tuple(labels.shape)}")
        indices = integer_copy("labels", labels)
        outside = indices[(indices < 0) | (indices >= len(self))]
        if len(outside):
            raise UnknownLabelError(f"label index {int(outside[0])} is outside [0, {len(self)})")
        return indices


def check_names(names: Iterable[str] | None, num_labels: int) -> tuple[str, ...]:
    """The names as a tuple; "0", "1", ... without any. Raises when they are not `num_labels` different texts."""
    if names is None:
        return tuple(str(index) for index in range(num_labels))
    if isinstance(names, str):
        raise TypeError(f"names must be a sequence of strings, not the one string {names!r}")
    checked = tuple(names)
    for name in checked:
        if not isinstance(name, str):
            raise TypeError(f"names must be strings, not {type(name).__name__}: {name!r}")
    if len(checked) != num_labels:
        raise LabelSpaceError(f"{len(checked)} names for {num_labels} labels: pass one name a label")
    refuse_repeated(checked)
    for name in checked:
        try:
            name.encode("utf-8")
        except UnicodeEncodeError:
            raise LabelSpaceError(f"the name {name!r} is not valid Unicode: UTF-8 cannot hold it") from None
    return checked


def refuse_repeated(names: Sequence[str]) -> None:
    """Raise if a name occurs twice."""
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise LabelSpaceError(f"names must be unique, but more than once there is {quote_few(repeated)}")


def refuse_other_names(names: Sequence[str], ordered: Sequence[str]) -> None:
    """Raise unless `ordered` is `names` in another order."""
    known, order = LabelIndex(names, len(names)), LabelIndex(ordered, len(ordered))
    missing = [name for name in names if name not in order]
    extra = [name for name in ordered if name not in known]
    if missing or extra:
        parts = [f"missing {quote_few(missing)}"] * bool(missing) + [f"unknown {quote_few(extra)}"] * bool(extra)
        raise LabelSpaceError(f"reorder needs the same names in another order: {'; '.join(parts)}")


def float32_copy(what: str, values: ArrayLike) -> Tensor:
    """A float32 copy of real numbers of any type on any device."""
    tensor = _as_tensor(what, values)
    if tensor.is_complex():
        raise TypeError(f"{what} must be real numbers, not {tensor.dtype}")
    return tensor.detach().to("cpu", torch.float32, copy=True).contiguous()


def integer_copy(what: str, values: ArrayLike) -> Tensor:
    """An int64 copy of whole numbers of any integer type on any device."""
    tensor = _as_tensor(what, values)
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
        raise TypeError(f"{what} must be whole numbers, not {tensor.dtype}")
    return tensor.detach().to("cpu", torch.int64, copy=True).contiguous()


def checked_counts(counts: ArrayLike, num_labels: int) -> Tensor:
    """The counts as int64 (labels,)."""
    tensor = _as_tensor("counts", counts)
    if tensor.is_floating_point() and bool((tensor == tensor.round()).all()):
        tensor = tensor.detach().to(torch.int64)
    checked = integer_copy("counts", tensor)
    if tuple(checked.shape) != (num_labels,):
        raise LabelSpaceError(f"counts must be ({num_labels},), one for each label, not {tuple(checked.shape)}")
    if (checked < 0).any():
        raise LabelSpaceError(f"counts must not be negative, found {int(checked.min())}")
    return checked


def plain_objective(objective: Mapping[str, Any]) -> dict[str, Any]:
    """A copy made of plain numbers, strings and lists, as the file can hold it."""
    if not isinstance(objective, Mapping):
        raise TypeError(f"objective must be a dict of plain values, not {type(objective).__name__}")
    try:
        return json.loads(json.dumps(dict(objective), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise LabelSpaceError(f"objective must hold plain, finite values only: {error}") from None


def _as_tensor(what: str, values: ArrayLike) -> Tensor:
    if isinstance(values, Tensor):
        return values
    try:
        # Arrays may be read-only or have negative strides, which torch does not take over.
        return torch.from_numpy(np.array(values))
    except (TypeError, ValueError) as error:
        raise LabelSpaceError(f"{what} must be a tensor, an array or nested lists of numbers: {error}") from None
