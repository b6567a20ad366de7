"""Start processes that meet over loopback, run one function in all of them, and collect what it gives."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing

from tests.helpers import forked as forked  # what the server of forks imports before it starts


def run_in_processes(count: int, function: Callable[..., Any], folder: Path, *arguments: object) -> list[Any]:
    """What `function` gave in each process. A start takes a while: let one function make many checks."""
    multiprocessing.start_processes(
        _run, args=(count, function, str(folder), *arguments), nprocs=count, start_method="forkserver"
    )
    return [torch.load(folder / f"process-{rank}.pt") for rank in range(count)]


def run_checks(count: int, checks: Callable[[], dict[str, Callable[[], None]]], folder: Path) -> dict[str, str]:
    """Run named checks in all processes, one start for all, and give what went wrong in each; empty: nothing.

    Processes that a check has parted cannot go on together, so those after a failure did not run.
    """
    outcomes: dict[str, str] = {}
    for rank, found in enumerate(run_in_processes(count, _outcomes, folder, checks)):
        for name, problem in found.items():
            outcomes[name] = outcomes.get(name, "") + (f"process {rank}: {problem}\n" if problem else "")
    return outcomes


def _outcomes(checks: Callable[[], dict[str, Callable[[], None]]]) -> dict[str, str]:
    outcomes: dict[str, str] = {}
    failed = ""
    for name, check in checks().items():
        if failed:
            outcomes[name] = f"did not run: {failed} failed"
            continue
        try:
            check()
            outcomes[name] = ""
        except BaseException:  # also pytest's own outcomes
            outcomes[name], failed = traceback.format_exc(), name
    return outcomes


def _run(rank: int, count: int, function: Callable[..., Any], folder: str, *arguments: object) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=count)
    torch.save(function(*arguments), Path(folder) / f"process-{rank}.pt")
    dist.destroy_process_group()
