"""The contents of a checkpoint, checked against the run that resumes from it.

A checkpoint with the right checksum may still be of another program, or made by hand. `SavedState` has a type for
every entry; the functions compare its tensors, optimiser and random numbers with those that the run has made anew.
"""

import math
from collections.abc import Mapping
from typing import Any

import msgspec
import torch
from torch import Tensor

from labelemb.lab.runs.checkpoint.file import CorruptCheckpoint
from labelemb.lab.tasks.records import AtLeastOne, Count

MOMENTS = ("exp_avg", "exp_avg_sq", "momentum_buffer")
"""What optimisers keep for a parameter, each in its shape; `step` is a single number."""


class SavedState(msgspec.Struct, frozen=True, kw_only=True):
    """The entries of a checkpoint."""

    model: dict[str, Tensor]
    optimizer: dict[str, Any]
    precision: dict[str, Any]
    processes: AtLeastOne
    streams: dict[str, Tensor]
    order: Tensor
    epoch: Count
    batch: Count
    log: list[Tensor]
    records: list[dict[str, Any]]
    best: dict[str, Any] | None
    best_state: dict[str, Tensor] | None
    seconds: dict[str, float]
    losses: dict[str, Tensor] | None = None
    """Of the examples, in a fold of an audit."""

    def to_dict(self) -> dict[str, Any]:
        """The entries as `torch.save` takes them."""
        return msgspec.structs.asdict(self)


def read_state(state: object) -> SavedState:
    """The entries of a checkpoint with their types."""
    try:
        saved = msgspec.convert(state, SavedState)
    except (ValueError, TypeError, AttributeError) as error:  # msgspec has no word for a type that JSON lacks
        raise CorruptCheckpoint(str(error)) from error
    if saved.seconds.keys() != {"training", "evaluation"} or not all(map(_is_time, saved.seconds.values())):
        raise CorruptCheckpoint("its times are not valid")
    if (saved.best is None) != (saved.best_state is None):
        raise CorruptCheckpoint("its best evaluation is incomplete")
    return saved


def check_tensors(found: Mapping[str, Tensor], expected: Mapping[str, Tensor], what: str) -> None:
    """Tensors must have the names, shapes and types of the expected ones."""
    if found.keys() != expected.keys():
        [name, *_] = sorted(found.keys() ^ expected.keys())
        raise CorruptCheckpoint(f"{what}: {name!r} is only in {'the checkpoint' if name in found else 'the run'}")
    for name, tensor in expected.items():
        check_tensor(found[name], tensor, f"{what}: {name}")


def check_tensor(found: Tensor, expected: Tensor, what: str) -> None:
    if found.shape != expected.shape or found.dtype != expected.dtype or found.layout != expected.layout:
        raise CorruptCheckpoint(f"{what} is {_form(found)} in place of {_form(expected)}")


def restore_optimizer(optimizer: torch.optim.Optimizer, saved: dict[str, Any]) -> None:
    """Load the state of an optimiser whose groups must be those that the run has made."""
    expected = optimizer.state_dict()["param_groups"]
    groups, entries = saved.get("param_groups"), saved.get("state")
    if not isinstance(groups, list) or not isinstance(entries, dict) or len(groups) != len(expected):
        raise CorruptCheckpoint("the optimiser has other groups of parameters")
    for group, made in zip(groups, expected, strict=True):
        if not isinstance(group, dict) or group.keys() != made.keys() or not _is_time(group["lr"]):
            raise CorruptCheckpoint("the optimiser has other settings")
        # as text: to compare with a tensor gives a tensor
        if changed := [key for key, value in made.items() if key != "lr" and repr(group[key]) != repr(value)]:
            raise CorruptCheckpoint(f"the optimiser has another {changed[0]}")
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for index, values in entries.items():
        if type(index) is not int or not 0 <= index < len(parameters) or not isinstance(values, dict):
            raise CorruptCheckpoint("the optimiser has states of other parameters")
        for name, value in values.items():
            _check_moment(name, value, parameters[index])
    if len({frozenset(values) for values in entries.values()}) > 1:
        raise CorruptCheckpoint("the optimiser has lost a part of its state")
    optimizer.load_state_dict(saved)


def check_precision(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """The state of a gradient scaler: numbers under the names that the run's own has."""
    if found.keys() != expected.keys() or not all(map(_is_number, found.values())):
        raise CorruptCheckpoint("the state of the precision is another one")


def _check_moment(name: object, value: object, parameter: Tensor) -> None:
    if name == "momentum_buffer" and value is None:
        return
    if not isinstance(value, Tensor):
        raise CorruptCheckpoint(f"the optimiser's {name} is no tensor")
    if name == "step":
        if value.shape != () or not value.dtype.is_floating_point or not _is_time(value.item()):
            raise CorruptCheckpoint("the optimiser's step is no number")
    elif name in MOMENTS:
        check_tensor(value, parameter, f"the optimiser's {name}")
    else:
        raise CorruptCheckpoint(f"the optimiser has no {name!r}")


def _form(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


def _is_time(value: object) -> bool:
    return isinstance(value, (int, float)) and 0 <= value < math.inf
