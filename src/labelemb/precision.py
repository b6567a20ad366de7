"""Buffers that stay in float32 when their module goes to half precision."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import nn


@contextmanager
def kept_wide(module: nn.Module, names: Sequence[str]) -> Iterator[None]:
    """Around a module's `_apply`: its buffers `names` move with it, but never below float32.

    A sum or a mean over an epoch grows by less than half precision can hold.
    """
    before = {name: buffer for name in names if (buffer := getattr(module, name, None)) is not None}
    yield
    for name, buffer in before.items():
        moved = getattr(module, name)
        if moved.dtype.itemsize < 4:
            setattr(module, name, buffer.to(moved.device))
