"""Counts what a call would start on a device at whose values nobody may look: the stand-in for a GPU."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import torch
from torch.utils._python_dispatch import TorchDispatchMode

VIEWS = re.compile(
    "alias|as_strided|detach|empty|empty_like|expand|new_empty|permute|promote_types|select|slice|split|squeeze_?|t|"
    "transpose|unbind|unsqueeze|view|_unsafe_view|_reshape_alias"
)
"""Operations that start nothing on a device: they describe memory, or reserve it."""
WAITS = re.compile(
    "_local_scalar_dense|nonzero|masked_select|_unique2?|unique_dim|unique_consecutive|equal|is_nonzero|repeat_interleave|"
    "bincount"
)
"""Operations whose result decides a shape or a Python value: the program waits until the device gets there."""


class Operations(TorchDispatchMode):
    """Counts operations by name while it is active."""

    def __init__(self) -> None:
        super().__init__()
        self.by_name: Counter[str] = Counter()
        self.waits = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.partition("::")[2]
        self.by_name[name] += 1
        indexed_by_mask = name in ("index", "index_put", "index_put_") and any(
            index is not None and index.dtype is torch.bool for index in args[1]
        )
        self.waits += bool(WAITS.fullmatch(name)) or indexed_by_mask
        return func(*args, **(kwargs or {}))

    @property
    def started(self) -> int:
        return sum(count for name, count in self.by_name.items() if not VIEWS.fullmatch(name))


def count_operations(call: Callable[[], torch.Tensor]) -> Operations:
    """Of a loss and its backward pass; what happens only the first time is left out."""
    with patch("labelemb.support.tensors.MAY_LOOK", False):
        call().backward()
        with Operations() as operations:
            call().backward()
    return operations
