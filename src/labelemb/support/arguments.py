"""Checks of arguments. Errors name the argument, its value and what is allowed."""

from __future__ import annotations

from numbers import Real

import torch
from torch import Tensor

from labelemb.support.wording import shorten


def require_tensor(name: str, value: object) -> None:
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} is {_shown(value)}, but must be a tensor: pass torch.as_tensor({name})")


def require_floats(name: str, value: object) -> None:
    """A tensor of floating-point numbers of any precision. Integers are refused, as `nn.Linear` refuses them."""
    require_tensor(name, value)
    assert isinstance(value, Tensor)
    if not value.is_floating_point():
        raise TypeError(f"{name} is {value.dtype}, but must be floating point: pass {name}.float()")


def require_integers(name: str, value: Tensor) -> None:
    require_tensor(name, value)
    if value.is_floating_point() or value.is_complex() or value.dtype is torch.bool:
        raise TypeError(f"{name} are {value.dtype}, but must be integer labels")


def out_of_range(labels: Tensor, num_labels: int) -> int | None:
    """A label that is none of `num_labels`, or None. Waits for a device."""
    low, high = torch.aminmax(labels)
    return next((bad for bad in (int(low), int(high)) if not 0 <= bad < num_labels), None)


def require_number(name: str, value: object, allowed: str) -> None:
    """A real number, or a tensor with one entry."""
    if not (value.numel() == 1 if isinstance(value, Tensor) else isinstance(value, Real)):
        raise TypeError(f"{name} is {_shown(value)}, but must be a number {allowed}")


def require_share(name: str, value: float) -> None:
    require_number(name, value, "in [0, 1]")
    if not 0 <= value <= 1:
        raise ValueError(f"{name} is {value}, but must be in [0, 1]")


def _shown(value: object) -> str:
    return shorten(repr(value), 60)
