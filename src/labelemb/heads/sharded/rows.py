"""Gathers the rows of several processes, for a data-parallel body in front of a sharded head."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh


def gather_rows(rows: Tensor, mesh: DeviceMesh) -> Tensor:
    """Collect the rows (n, ...) of all processes of the mesh, one after the other; n may differ.

    Use it on hidden states, targets and row weights before a call of `ShardedLabelEmbeddingHead`, so that each process
    runs the body on its own part of the batch. The gradient of a process's rows is multiplied by the number of
    processes, because DDP and FSDP average the body's gradients over the processes, and the gradient of the whole batch
    is their sum.
    """
    gathered: Tensor = _GatherRows.apply(rows, mesh)
    return gathered


class _GatherRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, mesh: DeviceMesh) -> Tensor:
        group, processes = mesh.get_group(), mesh.size()
        counts = [torch.zeros(1, dtype=torch.long, device=rows.device) for _ in range(processes)]
        dist.all_gather(counts, torch.full_like(counts[0], len(rows)), group=group)
        sizes = [int(count) for count in counts]
        padded = rows.new_zeros(max(sizes), *rows.shape[1:])
        padded[: len(rows)] = rows
        parts = [torch.empty_like(padded) for _ in range(processes)]
        dist.all_gather(parts, padded, group=group)
        rank = mesh.get_local_rank()
        ctx.mine, ctx.processes = slice(sum(sizes[:rank]), sum(sizes[: rank + 1])), processes
        return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        # every process has the whole gradient: the head has summed it over the labels
        return gradient[ctx.mine] * ctx.processes, None
