"""Statistics of a head (running means, counters) summed over data-parallel processes."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor


class _SumOverProcesses:
    """`sum_over_processes(x)`: x summed over all processes of the default group; x itself in a single process.

    Set `enabled = False` where processes of one group train different models.
    """

    enabled = True

    def active(self) -> bool:
        return self.enabled and dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1

    def __call__(self, value: Tensor) -> Tensor:
        if self.active():
            value = value.detach().clone(memory_format=torch.contiguous_format)
            dist.all_reduce(value)
        return value


sum_over_processes = _SumOverProcesses()
