"""Start processes that meet over loopback, run one function in all of them, and collect what it gives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing


def run_in_processes(count: int, function: Callable[..., Any], folder: Path, *arguments: object) -> list[Any]:
    """What `function` gave in each process. A start takes seconds: let one function make many checks."""
    multiprocessing.spawn(_run, args=(count, function, str(folder), *arguments), nprocs=count)
    return [torch.load(folder / f"process-{rank}.pt") for rank in range(count)]


def _run(rank: int, count: int, function: Callable[..., Any], folder: str, *arguments: object) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=count)
    torch.save(function(*arguments), Path(folder) / f"process-{rank}.pt")
    dist.destroy_process_group()
