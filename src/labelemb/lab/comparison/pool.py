"""Runs in parallel worker processes: which run comes next, and the events of all workers."""

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
from pathlib import Path
from typing import IO, Protocol

from labelemb.lab.comparison.protocol import (
    LAST_EVENTS,
    Busy,
    Done,
    Event,
    Failed,
    RunRequest,
    Started,
    Stopped,
    WorkerSetup,
)
from labelemb.lab.data import Fold
from labelemb.lab.runs.labels import LabelSource
from labelemb.lab.tasks.records import from_json, to_json

WORKER = (sys.executable, "-m", "labelemb.lab.comparison.worker")
STOP_SECONDS = 60.0
"""How long a worker may take to write its checkpoint when asked to stop."""


@dataclass(frozen=True)
class PlannedRun:
    """One run of a comparison."""

    method: str
    seed: int
    folder: Path
    labels: LabelSource | None = None
    """Where it finds the labels that it reuses."""
    after: Path | None = None
    """The folder of another planned run that must be finished before this one starts."""
    pause_epoch: int = 0
    """The epoch after which it waits for whoever planned it; 0 for none."""
    fold: Fold | None = None
    """The examples that it holds out, as a fold of an audit."""

    @property
    def title(self) -> str:
        return f"{self.method} {f'seed {self.seed}' if self.fold is None else self.fold.title}"

    def to_request(self) -> RunRequest:
        labels = None if self.labels is None else self.labels.to_message()
        return RunRequest(self.method, self.seed, str(self.folder), labels, self.pause_epoch, self.fold)


@dataclass(frozen=True)
class RunEvent:
    """An event of a run, and the number of the worker that sent it."""

    slot: int
    run: PlannedRun
    event: Event


class RunSource(Protocol):
    """Where the threads of a pool get their runs from, and bring them back to."""

    def take(self) -> PlannedRun | None:
        """The next run; waits if there may be one later. None when there is nothing left."""

    def obstacle(self, run: PlannedRun) -> str:
        """The title of a failed run that this one needed; empty if there is none."""

    def end(self, run: PlannedRun, last: Event) -> None:
        """An attempt at a run that was taken has ended with this event."""

    def clear(self) -> None:
        """Give out no run any more, and wake those that wait for one."""


class RunOrder:
    """A list of runs, given out in their order, but none before the run whose labels it needs."""

    def __init__(self, runs: Sequence[PlannedRun]) -> None:
        self._waiting = list(runs)
        self._open = {run.folder for run in runs}  # waiting or in progress
        self._failed: dict[Path, str] = {}
        self._changed = threading.Condition()

    def take(self) -> PlannedRun | None:
        """The first run that need not wait for another; waits if all must. None when there is nothing left."""
        with self._changed:
            while self._waiting:
                for index, run in enumerate(self._waiting):
                    if run.after not in self._open:
                        return self._waiting.pop(index)
                self._changed.wait()
            return None

    def obstacle(self, run: PlannedRun) -> str:
        """The title of the failed run that this one needed; empty if there is none."""
        return "" if run.after is None else self._failed.get(run.after, "")

    def end(self, run: PlannedRun, last: Event) -> None:
        """A run that was taken has ended, well or not; one that another process is training comes back as the last."""
        with self._changed:
            if isinstance(last, Busy):
                self._waiting.append(run)
            else:
                self._open.discard(run.folder)
                if not isinstance(last, Done):
                    self._failed[run.folder] = run.title
            self._changed.notify_all()

    def clear(self) -> None:
        with self._changed:
            self._waiting.clear()
            self._changed.notify_all()


class WorkerPool:
    """`jobs` worker processes that share runs.

    A worker keeps its process from run to run, so that importing is paid once. One that dies is replaced, and its run
    counts as failed.
    """

    def __init__(
        self,
        order: RunSource,
        jobs: int,
        setup: WorkerSetup,
        worker: Sequence[str] = WORKER,
    ) -> None:
        self.order = order
        self._setup, self._worker = setup, worker
        threads = setup.options.threads
        self._environment = os.environ | {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
        self._events: queue.SimpleQueue[RunEvent | Exception | None] = queue.SimpleQueue()
        self.slots = jobs
        self._slots = [_Slot(self, number) for number in range(jobs)]

    def events(self) -> Iterator[RunEvent]:
        """The events of all workers, until all runs are done or failed. Raises what the source of runs raises."""
        for slot in self._slots:
            slot.thread.start()
        working = len(self._slots)
        while working:
            event = self._events.get()
            if event is None:
                working -= 1
            elif isinstance(event, Exception):
                raise event
            else:
                yield event

    def stop(self) -> None:
        """Ask all workers to write their checkpoints and end; wait until they have."""
        self.order.clear()
        for slot in self._slots:
            slot.terminate()
        for slot in self._slots:
            slot.wait()

    def put(self, event: RunEvent | Exception | None) -> None:
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
        _send(process, self._setup)
        return process


class _Slot:
    """One worker of the pool: a thread that sends runs to a worker process and passes its events on."""

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
            errors = _temporary_file()
            if isinstance(errors, OSError):
                self._fail_runs(errors)
            else:
                with errors:
                    self._train_runs(errors)
        except Exception as error:  # of the source of runs: a search whose disk is full, say
            self.pool.put(error)
        finally:
            self.pool.put(None)  # whoever reads the events must not wait for this slot any more

    def _fail_runs(self, error: OSError) -> None:
        while (run := self.pool.order.take()) is not None:
            self.pool.order.end(run, self._send_event(run, Failed(_reason(error))))

    def _train_runs(self, errors: IO[bytes]) -> None:
        while not self._stopping and (run := self.pool.order.take()) is not None:
            self.pool.order.end(run, self._attempt(run, errors))
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait()

    def _attempt(self, run: PlannedRun, errors: IO[bytes]) -> Event:
        """Train one run; its last event."""
        self._send_event(run, Started())
        try:
            return self._train(run, errors)
        except Exception as error:  # whatever it is, others wait for the end of this run
            return self._send_event(run, Failed(_reason(error)))

    def _train(self, run: PlannedRun, errors: IO[bytes]) -> Event:
        if obstacle := self.pool.order.obstacle(run):
            return self._send_event(run, needed_run_failed(obstacle))
        with self._lock:
            if self._stopping:
                return Stopped()
            if self._process is None or self._process.poll() is not None:
                errors.seek(0)
                errors.truncate()
                self._process = self.pool.start_process(errors)
        process = self._process
        _send(process, run.to_request())
        assert process.stdout is not None
        for line in process.stdout:
            event = _read_event(line)
            if event is None:
                continue
            if isinstance(event, Stopped) and not self._stopping:
                process.wait()
                message = "its worker was told to stop, and saved a checkpoint: run the command again"
                return self._send_event(run, Failed(message))
            self._send_event(run, event)
            if isinstance(event, LAST_EVENTS):
                return event
        if self._stopping:  # before it could note the request
            return Stopped()
        return self._send_event(run, Failed(_death(process, errors), died=True))

    def _send_event(self, run: PlannedRun, event: Event) -> Event:
        self.pool.put(RunEvent(self.number, run, event))
        return event


def _temporary_file() -> IO[bytes] | OSError:
    try:
        return tempfile.TemporaryFile()
    except OSError as error:
        return error


def needed_run_failed(title: str) -> Failed:
    """The end of a run that needed another, which has failed."""
    return Failed(f"{title}, whose labels it needs, failed", user_error=True)


def _reason(error: Exception) -> str:
    return f"cannot run a worker: {getattr(error, 'strerror', None) or error}"


def _send(process: subprocess.Popen[str], message: WorkerSetup | RunRequest) -> None:
    assert process.stdin is not None
    try:
        process.stdin.write(json.dumps(to_json(message)) + "\n")
        process.stdin.flush()
    except BrokenPipeError:
        pass  # the end of its output tells that it died


def _read_event(line: str) -> Event | None:
    """An event of a worker; None for a line that a library printed, or within which the worker died."""
    try:
        return from_json(line, Event)  # type: ignore[arg-type]  # a union, of which mypy wants a class
    except ValueError:
        return None


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
