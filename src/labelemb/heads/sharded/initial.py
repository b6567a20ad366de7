"""Initial values that do not depend on the number of processes, without holding the whole tensor in memory."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

from labelemb.heads.sharded.shard import LabelShard

BLOCK = 1024
"""Labels that share one random generator."""

Fill = Callable[[Tensor, torch.Generator], Tensor]


def seeds(shard: LabelShard, count: int) -> list[int]:
    """Numbers from the first process's global generator, the same in all processes; every generator moves on alike."""
    drawn = torch.randint(2**31, (count,))
    carried = drawn.to(shard.mesh.device_type)
    dist.broadcast(carried, dist.get_global_rank(shard.group, 0), group=shard.group)
    return carried.tolist()


def initial_rows(shard: LabelShard, columns: int, fill: Fill, seed: int) -> Tensor:
    """(held labels, columns): block k of all labels is filled by a generator of seed + k."""
    rows = torch.empty(shard.width, columns)
    for block in range(shard.start // BLOCK, -(-shard.stop // BLOCK) if shard.width else 0):
        first, last = max(shard.start, block * BLOCK), min(shard.stop, (block + 1) * BLOCK)
        values = fill(torch.empty(BLOCK, columns), torch.Generator().manual_seed(seed + block))
        rows[first - shard.start : last - shard.start] = values[first - block * BLOCK : last - block * BLOCK]
    return rows.to(shard.mesh.device_type)


def uniform(bound: float) -> Fill:
    return lambda values, generator: values.uniform_(-bound, bound, generator=generator)


def normal(values: Tensor, generator: torch.Generator) -> Tensor:
    return values.normal_(generator=generator)
