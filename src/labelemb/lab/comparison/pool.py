"""Runs in parallel worker processes, and what comes back from them."""

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any

from labelemb.lab.comparison.order import Task, TaskOrder

WORKER = (sys.executable, "-m", "labelemb.lab.comparison.worker")
ENDS = ("done", "failed", "busy", "stopped")
"""Kinds of the last event of an attempt; a run that is busy, in the hands of another comparison, comes back later."""
STOP_SECONDS = 60.0
"""How long a worker may take to write its checkpoint when asked to stop."""


@dataclass(frozen=True)
class Event:
    """Something a worker said of its run. `kind` is started, progress, warning, done, failed, busy or stopped."""

    slot: int
    task: Task
    kind: str
    values: dict[str, Any]


class WorkerPool:
    """`jobs` worker processes that share a list of tasks.

    A worker keeps its process from run to run, so that importing is paid once. One that dies is replaced, and its run
    counts as failed.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        jobs: int,
        comparison: dict[str, Any],
        threads: int,
        worker: Sequence[str] = WORKER,
    ) -> None:
        self.order = TaskOrder(tasks)
        self._comparison, self._worker = comparison, worker
        self._environment = os.environ | {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
        self._events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._slots = [_Slot(self, number) for number in range(min(jobs, len(tasks)))]

    def events(self) -> Iterator[Event]:
        """Everything the workers say, until all tasks are done or failed."""
        for slot in self._slots:
            slot.thread.start()
        working = len(self._slots)
        while working:
            event = self._events.get()
            if event is None:
                working -= 1
            else:
                yield event

    def stop(self) -> None:
        """Ask all workers to write their checkpoints and end; wait until they have."""
        self.order.clear()
        for slot in self._slots:
            slot.terminate()
        for slot in self._slots:
            slot.wait()

    def put(self, event: Event | None) -> None:
        self._events.put(event)

    def start_process(self, errors: IO[bytes]) -> subprocess.Popen[str]:
        # a session of its own: Ctrl-C in the terminal reaches the comparison only, which then stops its workers
        process = subprocess.Popen(
            self._worker,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            encoding="utf-8",
            errors="replace",  # libraries print past Python, in whatever encoding
            env=self._environment,
            start_new_session=True,
        )
        _send(process, self._comparison)
        return process


class _Slot:
    """One place of the pool: a thread that feeds tasks to a worker process and passes its events on."""

    def __init__(self, pool: WorkerPool, number: int) -> None:
        self.pool, self.number = pool, number
        self.thread = threading.Thread(target=self._work, daemon=True)
        self._process: subprocess.Popen[str] | None = None
        self._stopping = False
        self._lock = threading.Lock()

    def terminate(self) -> None:
        with self._lock:
            self._stopping = True
            if self._process is not None:
                self._process.terminate()

    def wait(self) -> None:
        if self._process is not None:
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def _work(self) -> None:
        try:
            with tempfile.TemporaryFile() as errors:
                self._take_tasks(errors)
        except OSError as error:  # there is no place for a temporary file
            while (task := self.pool.order.take()) is not None:
                self._fail(task, _reason(error))
                self.pool.order.end(task, done=False)
        finally:
            self.pool.put(None)  # whoever listens to the events must not wait for this slot any more

    def _take_tasks(self, errors: IO[bytes]) -> None:
        while not self._stopping and (task := self.pool.order.take()) is not None:
            outcome = self._attempt(task, errors)
            if outcome == "busy":
                self.pool.order.postpone(task)
            else:
                self.pool.order.end(task, done=outcome == "done")
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait()

    def _attempt(self, task: Task, errors: IO[bytes]) -> str:
        """One task; the kind of its last event."""
        self._tell(task, "started", {})
        try:
            return self._run(task, errors)
        except Exception as error:  # whatever it is, others wait for the end of this task
            return self._fail(task, _reason(error))

    def _run(self, task: Task, errors: IO[bytes]) -> str:
        if obstacle := self.pool.order.obstacle(task):
            return self._fail(task, f"{obstacle}, whose labels it needs, failed", user_error=True)
        with self._lock:
            if self._stopping:
                return "stopped"
            if self._process is None or self._process.poll() is not None:
                errors.seek(0)
                errors.truncate()
                self._process = self.pool.start_process(errors)
        process = self._process
        _send(process, task.to_message())
        assert process.stdout is not None
        for line in process.stdout:
            values = _read_event(line)
            if values is None:
                continue
            kind = values.pop("event")
            if kind == "stopped" and not self._stopping:
                process.wait()
                return self._fail(task, "its worker was told to stop, and saved a checkpoint: run the command again")
            self._tell(task, kind, values)
            if kind in ENDS:
                return str(kind)
        return self._fail(task, _death(process, errors))

    def _fail(self, task: Task, message: str, user_error: bool = False) -> str:
        self._tell(task, "failed", {"message": message, "user_error": user_error})
        return "failed"

    def _tell(self, task: Task, kind: str, values: dict[str, Any]) -> None:
        self.pool.put(Event(self.number, task, kind, values))


def _reason(error: Exception) -> str:
    return f"cannot run a worker: {getattr(error, 'strerror', None) or error}"


def _send(process: subprocess.Popen[str], message: dict[str, Any]) -> None:
    assert process.stdin is not None
    try:
        process.stdin.write(json.dumps(message) + "\n")
        process.stdin.flush()
    except BrokenPipeError:
        pass  # the end of its output tells that it died


def _read_event(line: str) -> dict[str, Any] | None:
    """What a worker said; None for what a library printed past Python, or a line within which the worker died."""
    try:
        values = json.loads(line)
    except ValueError:
        return None
    return values if isinstance(values, dict) and "event" in values else None


def _death(process: subprocess.Popen[str], errors: IO[bytes]) -> str:
    """How a worker ended, with the last line it wrote to standard error."""
    code = process.wait()
    how = f"was killed by {_signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
    errors.seek(0)
    lines = errors.read().decode(errors="replace").strip().splitlines()
    return f"the worker {how}" + (f": {lines[-1]}" if lines else "")


def _signal_name(number: int) -> str:
    """SIGKILL for 9; real-time signals have numbers only."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
