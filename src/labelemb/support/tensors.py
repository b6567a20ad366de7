"""Small helpers for tensors and modules: precision, in-place changes, copies, sums over processes, evaluation mode."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

MAY_LOOK = True
"""False: values on the CPU are treated as if they were on a device for which one would have to wait. For tests."""


def can_look_at(values: Tensor) -> bool:
    """Whether values can be looked at without waiting for a device or breaking a compiled or transformed graph."""
    if not MAY_LOOK or values.device.type != "cpu" or torch.compiler.is_compiling() or is_transformed():
        return False
    return values.numel() > 0


def widened(x: Tensor) -> Tensor:
    """float32 or better: half precision is too coarse for log-probabilities."""
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


def entries(values: Tensor) -> tuple[Tensor, ...]:
    """The entries of (k,) values."""
    if torch.compiler.is_compiling():  # a compiled graph cannot return several views of a tensor of its own
        return tuple(value.clone() for value in values.unbind())
    return values.unbind()


def is_transformed() -> bool:
    """Whether `torch.func` (grad, vmap, ...) is at work: values cannot be looked at then, nor gradients be given."""
    # torch has no public question for it
    active = getattr(torch._C, "_are_functorch_transforms_active", None)
    return active is not None and bool(active())


def precision_to_keep(dtype: torch.dtype) -> torch.dtype:
    """The type in which to keep gradients of tensors of `dtype` until the gradient of the loss is known.

    A scaled loss is to bring small gradients into the range of float16, so nothing may be rounded to it before.
    """
    return torch.float32 if dtype is torch.float16 else dtype


def times_changed(x: Tensor) -> int:
    """How often a tensor was changed in place; 0 where that cannot be told: in compiled graphs and inference mode."""
    return 0 if torch.compiler.is_compiling() or x.is_inference() else x._version


def without_changes(x: Tensor) -> Tensor:
    """The tensor, in a compiled graph as a view that torch refuses to change in place where it has a gradient.

    There is no `times_changed` in compiled graphs, but one of several views of a tensor must never be changed.
    """
    return x.unsqueeze(0).unbind()[0] if torch.compiler.is_compiling() else x


@contextmanager
def kept_wide(module: nn.Module, names: Sequence[str]) -> Iterator[None]:
    """Keep the buffers `names` of a module in float32 or wider during its `_apply`.

    A sum or a mean over an epoch grows by less than half precision can hold.
    """
    before = {name: buffer for name in names if (buffer := getattr(module, name, None)) is not None}
    yield
    for name, buffer in before.items():
        moved = getattr(module, name)
        if moved.dtype.itemsize < 4:
            setattr(module, name, buffer.to(moved.device))


@torch.library.custom_op("labelemb::snapshot", mutates_args=(), schema="(Tensor x) -> Tensor")
def _snapshot(x: Tensor) -> Tensor:
    return x.clone()


@_snapshot.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def snapshot(x: Tensor) -> Tensor:
    """What a buffer holds, or what was read from it, for a loss of a call that changes the buffer.

    A compiled backward pass may compute cheap values again, from the buffer as it is by then. It never does that with
    an operation that it does not know. Where nothing is compiled, x itself.
    """
    return _snapshot(x) if torch.compiler.is_compiling() else x


def copied_state(module: nn.Module) -> dict[str, Tensor]:
    """A copy of a module's state on the CPU, to come back to: further training does not change it."""
    return {name: value.detach().cpu().clone() for name, value in module.state_dict().items()}


_suspended = ContextVar("suspended", default=False)


class _SumOverProcesses:
    """`sum_over_processes(x)`: x summed over all processes of the default group; x itself in a single process.

    Where processes of one group train different models, use `with sum_over_processes.suspended():` around one training,
    or set `enabled = False` for everything in this process.
    """

    enabled = True

    def active(self) -> bool:
        in_group = self.enabled and dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
        # torch.compile cannot read context variables: compiled graphs always sum
        return in_group and (torch.compiler.is_compiling() or not _suspended.get())

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Leave every sum to this process inside the block. Other threads go on summing."""
        token = _suspended.set(True)
        try:
            yield
        finally:
            _suspended.reset(token)

    def processes(self) -> int:
        """How many are summed over."""
        return dist.get_world_size() if self.active() else 1

    def __call__(self, value: Tensor) -> Tensor:
        if self.active():
            value = value.detach().clone(memory_format=torch.contiguous_format)
            dist.all_reduce(value)
        return value


sum_over_processes = _SumOverProcesses()


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Evaluation mode inside the block; afterwards every submodule is back in its own mode, also after an error."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training
