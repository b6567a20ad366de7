"""A command and its workers as processes with one counter of operations, at one of which some are killed."""

import contextlib
import itertools
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from multiprocessing.sharedctypes import RawArray
from types import SimpleNamespace
from typing import IO, Any

from labelemb.lab.comparison import worker

MOST_WORKERS = 50
STRAY_SECONDS = 30.0
"""How long a worker whose command was killed may take to save its run and end."""
POLL_SECONDS = 0.01
WHO = ("all", "worker", "command")
"""Who is killed: the command with all of its workers, one worker, or the command alone."""


class Tree:
    """What a command and its workers share, in memory that forks have in common.

    Several of them may come to the deadly operation at once. One alone kills, whoever takes the only permit: two
    workers that killed each other would leave their command alive. The permit is not given back before the next
    command, so that nobody waits for a process that died with it.
    """

    def __init__(self) -> None:
        self._numbers = RawArray("q", 4 + MOST_WORKERS)
        self._places = itertools.count()  # one for each worker; forks of the command do not share it and do not use it
        self._permit = multiprocessing.Semaphore(0)

    def begin(self, deadly: int | None, who: str) -> None:
        """Forget the command before; of the next one `who` is killed at an operation."""
        self._numbers[:] = [0, -1 if deadly is None else deadly, WHO.index(who), 0, *[0] * MOST_WORKERS]
        self._permit.acquire(block=False)  # of a command that nobody killed
        self._permit.release()

    @property
    def operations(self) -> int:
        return int(self._numbers[0])

    @property
    def killed(self) -> bool:
        return self._numbers[1] == -2

    def lead(self) -> None:
        """This process is the command."""
        self._numbers[3] = os.getpid()

    def place(self) -> int:
        """The place of the next worker, asked by the command before it forks: workers that start at once get two."""
        return next(self._places) % MOST_WORKERS

    def join(self, place: int, pid: int) -> None:
        """A process is the worker of a place; said by itself and by the command, whoever comes first."""
        self._numbers[4 + place] = pid

    def count(self) -> None:
        """An operation; the deadly one, or the next that can be, kills."""
        self._numbers[0] += 1
        deadly, who = self._numbers[1], WHO[self._numbers[2]]
        if deadly < 0 or self._numbers[0] <= deadly:
            return
        me, command = os.getpid(), int(self._numbers[3])
        if who == "worker" and me == command:
            return  # the next operation of a worker
        if not self._permit.acquire(block=False):
            return  # another process kills
        self._numbers[1] = -2
        if who == "all":
            for other in (*self.workers(), command):
                if other != me:
                    _kill(other)
        _kill(command if who == "command" else me)

    def strays(self) -> int:
        """Workers that live on although their command has ended, after time to save their runs."""
        until = time.monotonic() + STRAY_SECONDS
        while (alive := sum(map(_is_alive, self.workers()))) and time.monotonic() < until:
            time.sleep(POLL_SECONDS)
        return alive

    def workers(self) -> list[int]:
        """The process numbers of all workers that have started."""
        return [int(pid) for pid in self._numbers[4:] if pid]


class ForkedWorker:
    """What the pool uses of `subprocess.Popen`, for a worker that is a fork of the command."""

    def __init__(self, tree: Tree, errors: IO[bytes], environment: dict[str, str]) -> None:
        (there_reads, here_writes), (here_reads, there_writes) = os.pipe(), os.pipe()
        self.returncode: int | None = None
        place = tree.place()
        self.pid = os.fork()
        if self.pid == 0:
            tree.join(place, os.getpid())
            _work((there_reads, there_writes, errors.fileno()), environment)
        tree.join(place, self.pid)
        os.close(there_reads)
        os.close(there_writes)
        self.stdin = os.fdopen(here_writes, "w", encoding="utf-8")
        self.stdout = os.fdopen(here_reads, "r", encoding="utf-8", errors="replace")

    @staticmethod
    def module(tree: Tree) -> SimpleNamespace:
        """In place of the module `subprocess`."""

        def start(command: Any, *, stderr: IO[bytes], env: dict[str, str], **options: Any) -> ForkedWorker:
            return ForkedWorker(tree, stderr, env)

        return SimpleNamespace(Popen=start, PIPE=subprocess.PIPE, TimeoutExpired=subprocess.TimeoutExpired)

    def poll(self) -> int | None:
        if self.returncode is None:
            with contextlib.suppress(ChildProcessError):
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self, timeout: float = 600.0) -> int:
        until = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > until:
                raise subprocess.TimeoutExpired("a forked worker", timeout)
            time.sleep(POLL_SECONDS)
        return code

    def terminate(self) -> None:
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        self._send(signal.SIGKILL)

    def _send(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


def _work(streams: tuple[int, int, int], environment: dict[str, str]) -> None:
    """In the fork: take over streams and environment, and be a worker until the pool needs none."""
    code = 70
    try:
        os.setsid()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        os.closerange(3, 1024)  # the pipes of other workers among them
        sys.stdin, sys.stdout, sys.stderr = (
            open(number, mode, encoding="utf-8", closefd=False)  # noqa: SIM115  a number, and for the whole process
            for number, mode in enumerate("rww")
        )
        os.environ.update(environment)
        code = worker.main()
    finally:
        os._exit(code)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and that nobody has waited for does not."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123  Path.open counts
            return file.read().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return False
