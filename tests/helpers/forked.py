"""Processes for tests that need not import everything again: forks of one server process that has imported it once.

A start takes a tenth of a second where a new interpreter takes seconds. What a process does is the same: its own
memory, standard streams, environment and folder.
"""

import importlib
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import pytest
from torch.distributed import TCPStore

PRELOADED = ["torch.distributed", "labelemb.lab.comparison.worker", "labelemb.lab.jobs.compare"]

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(PRELOADED)


@pytest.fixture(autouse=True)
def quick_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pool starts its workers as forks. Workers of its own that a test hands to it stay what they are."""
    from labelemb.lab.comparison import pool

    known = SimpleNamespace(Popen=_start, PIPE=subprocess.PIPE, TimeoutExpired=subprocess.TimeoutExpired)
    monkeypatch.setattr(pool, "subprocess", known)


def _start(command: Sequence[str], *, stderr: IO[bytes], env: dict[str, str], **options: Any) -> Any:
    if command[1] != "-m":
        return subprocess.Popen(command, stderr=stderr, env=env, **options)
    return ForkedProcess(partial(_main_of, command[2]), stderr, env)


def _main_of(module: str) -> Any:
    return importlib.import_module(module).main()


class ForkedProcess:
    """What the tests and the pool use of `subprocess.Popen`, for a function with standard streams of its own."""

    def __init__(self, function: Callable[[], Any], errors: IO[bytes], environment: dict[str, str]) -> None:
        there_reads, here_writes = CONTEXT.Pipe(duplex=False)
        here_reads, there_writes = CONTEXT.Pipe(duplex=False)
        streams = [there_reads, there_writes, Connection(os.dup(errors.fileno()))]
        self._process = _started(function, streams, environment)
        self.stdin = _file(here_writes, "w")
        self.stdout = _file(here_reads, "r")
        self.pid = self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("a forked process", timeout or 0.0)
        return self._process.exitcode

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        self._process.kill()


@dataclass(frozen=True)
class Ended:
    """How processes that worked together ended: codes, and what all of them wrote."""

    codes: list[int]
    stdout: str
    stderr: str


def run_as_torchrun(count: int, function: Callable[[], Any]) -> Ended:
    """Call a function in `count` forks with the environment that torchrun gives its processes.

    As torchrun does, the parent serves the store in which they meet: it holds a free port from the start.
    """
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors, Path(os.devnull).open("rb") as nothing:
        processes = []
        for rank in range(count):
            places = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count}
            meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": store.port, "TORCHELASTIC_USE_AGENT_STORE": True}
            agent = {"TORCHELASTIC_RUN_ID": "test", "TORCHELASTIC_RESTART_COUNT": 0}
            environment = os.environ | {name: str(value) for name, value in (places | meeting | agent).items()}
            streams = [Connection(os.dup(file.fileno())) for file in (nothing, output, errors)]
            processes.append(_started(function, streams, environment))
        codes = [_code(process) for process in processes]
        for file in (output, errors):
            file.seek(0)
        return Ended(codes, output.read().decode(), errors.read().decode())


def _code(process: Any) -> int:
    process.join()
    return process.exitcode


def _started(function: Callable[[], Any], streams: list[Connection], environment: dict[str, str]) -> Any:
    process = CONTEXT.Process(target=_run, args=(function, streams, environment, str(Path.cwd())), daemon=True)
    process.start()
    for connection in streams:
        connection.close()
    return process


def _file(connection: Connection, mode: str) -> IO[str]:
    """The end of a pipe as a text file."""
    file = os.fdopen(os.dup(connection.fileno()), mode, encoding="utf-8", errors="replace")
    connection.close()
    return file


def _run(function: Callable[[], Any], streams: list[Connection], environment: dict[str, str], folder: str) -> None:
    """In the fork: take over streams, environment and folder, then call the function, which gives the exit code."""
    os.setsid()  # Ctrl-C in the terminal is for the tests
    for number, connection in enumerate(streams):
        os.dup2(connection.fileno(), number)
        connection.close()
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, mode, encoding="utf-8", closefd=False)  # noqa: SIM115  a number, and for the whole process
        for number, mode in enumerate("rww")
    )
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.exit(function())
