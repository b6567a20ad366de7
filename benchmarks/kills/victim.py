"""The training that is killed, as a process of its own:  python -m benchmarks.kills.victim

The process imports the lab once and then forks a child for every order that it reads from standard input, so that a
kill costs a training and not an import. An order is a line of JSON with the arguments of a command and the operation at
which the child kills its whole process group (null: none); the answer is the child's exit status. "warm up" trains in
the process itself.
"""

import contextlib
import io
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from labelemb.lab.cli import main as labelemb
from labelemb.lab.cli import training
from labelemb.lab.data import readers
from labelemb.lab.jobs import compare, train
from labelemb.lab.report import write

IMPORTED = (training, readers, compare, train, write)
"""What the command imports when it is used: here once, before the children are forked."""
OPERATIONS: tuple[tuple[Any, str], ...] = (
    *((os, "fsync"), (os, "replace"), (os, "open"), (os, "close")),
    *((Path, "replace"), (Path, "unlink"), (Path, "mkdir"), (Path, "open"), (Path, "read_bytes"), (Path, "exists")),
    *((torch.optim.Adam, "step"), (torch.Tensor, "backward")),
)
"""Where a child can be killed: before and after each call of these."""


def main() -> None:
    torch.set_num_threads(1)
    for line in sys.stdin:
        order = json.loads(line)
        if order["operation"] == "warm up":  # libraries are imported when they are first used: here, once for all
            with contextlib.redirect_stdout(io.StringIO()):
                print(labelemb(order["arguments"]), file=sys.__stdout__, flush=True)
            continue
        child = os.fork()
        if child == 0:
            _obey(order)
        _, status = os.waitpid(child, 0)
        print(json.dumps(status), flush=True)


def _obey(order: dict[str, Any]) -> None:
    """Run the command as the leader of a process group, and leave without the parent's clean-up."""
    os.setpgid(0, 0)
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    counted = _count(order["operation"])
    try:
        code = labelemb(order["arguments"])
        Path(order["calls"]).write_text(str(counted[0]))
        os._exit(code)
    except BaseException:
        os._exit(70)


def _count(deadly: int | None) -> list[int]:
    """Count all operations from here on; the one with the deadly number kills the process group."""
    counted = [0]

    def watched(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **keywords: Any) -> Any:
            _step(counted, deadly)
            value = original(*arguments, **keywords)
            _step(counted, deadly)
            return value

        return call

    for owner, name in OPERATIONS:
        setattr(owner, name, watched(getattr(owner, name)))
    return counted


def _step(counted: list[int], deadly: int | None) -> None:
    if counted[0] == deadly:
        os.killpg(0, signal.SIGKILL)
    counted[0] += 1


if __name__ == "__main__":
    main()
