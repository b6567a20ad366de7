"""From what a user passes to checked tensors of our own, on the CPU and cut off from any graph."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from labelemb.labelspace.errors import LabelSpaceError

ArrayLike = Tensor | np.ndarray | Sequence[Any]


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
