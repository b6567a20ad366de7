"""The command that is killed, as a process of its own:  python -m benchmarks.kills.victim

The process imports the lab once and then forks a child for every order that it reads from standard input, so that a
kill costs a training and not an import; the workers of the child are forks of it. An order is a line of JSON with the
arguments of a command, the operation at which somebody is killed (null: nobody) and who. The answer says how the child
ended, how many operations there were, and whether somebody was killed. "warm up" runs in the process itself.
"""

import contextlib
import io
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from benchmarks.kills.processes import ForkedWorker, Tree
from labelemb.lab.cli import audit as audit_verb
from labelemb.lab.cli import choosing, training
from labelemb.lab.cli import main as labelemb
from labelemb.lab.comparison import pool
from labelemb.lab.data import readers
from labelemb.lab.jobs import audit, choose, compare, train
from labelemb.lab.report import write
from labelemb.lab.runs import loop, state

IMPORTED = (audit_verb, choosing, training, readers, audit, choose, compare, train, write)
"""What the command imports when it is used: here once, before the children are forked."""
OPERATIONS: tuple[tuple[Any, str], ...] = (
    *((os, "fsync"), (os, "replace"), (os, "open"), (os, "close")),
    *((Path, "replace"), (Path, "unlink"), (Path, "mkdir"), (Path, "open"), (Path, "read_bytes"), (Path, "exists")),
    *((torch.optim.Adam, "step"), (torch.Tensor, "backward")),
)
"""Where somebody can be killed: before and after each call of these."""


def main() -> None:
    torch.set_num_threads(1)
    tree = Tree()
    _stop_clocks()
    pool.subprocess = ForkedWorker.module(tree)  # type: ignore[assignment]
    for line in sys.stdin:
        order = json.loads(line)
        if order["operation"] == "warm up":  # libraries are imported when they are first used: here, once for all
            with contextlib.redirect_stdout(io.StringIO()):
                code = labelemb(order["arguments"])
            print(json.dumps({"status": code, "operations": 0, "killed": False, "strays": 0}), flush=True)
            continue
        tree.begin(order["operation"], order["who"])
        child = os.fork()
        if child == 0:
            _obey(order, tree)
        _, status = os.waitpid(child, 0)
        answer = {"status": status, "operations": tree.operations, "killed": tree.killed, "strays": tree.strays()}
        print(json.dumps(answer), flush=True)


def _obey(order: dict[str, Any], tree: Tree) -> None:
    """Run the command as the leader of a process group, and leave without the parent's clean-up."""
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    quiet = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(quiet, stream)
    tree.lead()
    _watch(tree)
    try:
        os._exit(labelemb(order["arguments"]))
    except BaseException:
        os._exit(70)


def _stop_clocks() -> None:
    """Let all trainings take no time, so that their files are the same to the byte."""
    stopped = SimpleNamespace(perf_counter=lambda: 0.0, monotonic=time.monotonic)
    loop.time = state.time = stopped  # type: ignore[assignment]  # what these modules use of it


def _watch(tree: Tree) -> None:
    """Count all operations from here on, in this process and its forks."""

    def watched(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **keywords: Any) -> Any:
            tree.count()
            value = original(*arguments, **keywords)
            tree.count()
            return value

        return call

    for owner, name in OPERATIONS:
        setattr(owner, name, watched(getattr(owner, name)))


if __name__ == "__main__":
    main()
