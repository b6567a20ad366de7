"""Pools that train runs in parallel and yield their events; `WorkerPool` uses processes of this machine."""

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import IO

from labelemb.lab.comparison.protocol import LAST_EVENTS, Event, Failed, RunRequest, Started, Stopped, WorkerSetup
from labelemb.lab.comparison.run_order import PlannedRun, RunEvent, RunSource
from labelemb.lab.tasks.records import from_json, to_json

WORKER = (sys.executable, "-m", "labelemb.lab.comparison.worker")
STOP_SECONDS = 60.0
"""How long a worker may take to write its checkpoint when asked to stop."""


class RunPool(ABC):
    """Slots that train the runs of a source side by side, and one stream of their events."""

    def __init__(self, order: RunSource) -> None:
        self.order = order
        self._events: queue.SimpleQueue[RunEvent | Exception | None] = queue.SimpleQueue()

    @property
    @abstractmethod
    def workers(self) -> Sequence["PoolSlot"]:
        """What trains one run at a time each."""

    @property
    def slots(self) -> int:
        """How many runs are trained at once; the events of the n-th slot carry its number."""
        return len(self.workers)

    @abstractmethod
    def stop(self) -> None:
        """Ask all runs to write their checkpoints and end; wait until they have."""

    def events(self) -> Iterator[RunEvent]:
        """The events of all runs, until all are done or failed. Raises what the source of runs raises."""
        for slot in self.workers:
            slot.thread.start()
        working = self.slots
        while working:
            event = self._events.get()
            if event is None:
                working -= 1
            elif isinstance(event, Exception):
                raise event
            else:
                yield event

    def put(self, event: RunEvent | Exception | None) -> None:
        """Send an event, what the source of runs has raised, or None: a slot has ended."""
        self._events.put(event)


class PoolSlot(ABC):
    """A thread of a pool that trains one run after the other."""

    def __init__(self, pool: RunPool, number: int) -> None:
        self._send_to, self.number = pool.put, number
        self.thread = threading.Thread(target=self._work, daemon=True)

    @abstractmethod
    def train_runs(self) -> None:
        """Train runs until the source has no more."""

    def send(self, run: PlannedRun, event: Event) -> Event:
        self._send_to(RunEvent(self.number, run, event))
        return event

    def _work(self) -> None:
        try:
            self.train_runs()
        except Exception as error:  # of the source of runs: a search whose disk is full, say
            self._send_to(error)
        finally:
            self._send_to(None)  # whoever reads the events must not wait for this slot any more


class WorkerPool(RunPool):
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
        super().__init__(order)
        self._setup, self._worker = setup, worker
        threads = setup.options.threads
        self._environment = os.environ | {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
        self._slots = [_WorkerSlot(self, number) for number in range(jobs)]

    @property
    def workers(self) -> Sequence["_WorkerSlot"]:
        return self._slots

    def stop(self) -> None:
        self.order.clear()
        for slot in self._slots:
            slot.terminate()
        for slot in self._slots:
            slot.wait()

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


class _WorkerSlot(PoolSlot):
    """One worker of the pool: a thread that sends runs to a worker process and passes its events on."""

    def __init__(self, pool: WorkerPool, number: int) -> None:
        super().__init__(pool, number)
        self.pool = pool
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

    def train_runs(self) -> None:
        errors = _temporary_file()
        if isinstance(errors, OSError):
            self._fail_runs(errors)
        else:
            with errors:
                self._use_worker(errors)

    def _fail_runs(self, error: OSError) -> None:
        while (run := self.pool.order.take()) is not None:
            self.pool.order.end(run, self.send(run, Failed(_reason(error))))

    def _use_worker(self, errors: IO[bytes]) -> None:
        while not self._stopping and (run := self.pool.order.take()) is not None:
            self.pool.order.end(run, self._attempt(run, errors))
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait()

    def _attempt(self, run: PlannedRun, errors: IO[bytes]) -> Event:
        """Train one run; its last event."""
        self.send(run, Started())
        try:
            return self._train(run, errors)
        except Exception as error:  # whatever it is, others wait for the end of this run
            return self.send(run, Failed(_reason(error)))

    def _train(self, run: PlannedRun, errors: IO[bytes]) -> Event:
        if obstacle := self.pool.order.obstacle(run):
            return self.send(run, needed_run_failed(obstacle))
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
                return self.send(run, Failed(message))
            self.send(run, event)
            if isinstance(event, LAST_EVENTS):
                return event
        if self._stopping:  # before it could note the request
            return Stopped()
        return self.send(run, Failed(_death(process, errors), died=True))


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
