"""`RayPool`: runs as tasks on the machines of a Ray cluster that share a folder, with the interface of `WorkerPool`."""

import json
import logging
import math
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from labelemb.lab.comparison.pool import STOP_SECONDS, PoolSlot, RunPool, needed_run_failed
from labelemb.lab.comparison.protocol import Event, Failed, Lost, RunRequest, Started, Stopped, WorkerSetup
from labelemb.lab.comparison.run_order import PlannedRun, RunEvent, RunSource
from labelemb.lab.comparison.worker import Reporter, train_request
from labelemb.lab.tasks.records import from_json, to_json
from labelemb.support.errors import UserError
from labelemb.support.files import make_folder
from labelemb.support.interrupts import StopRequests
from labelemb.support.optional import import_optional

POLL_SECONDS = 0.2
MOST_LOSSES = 3
"""How often a run may lose its machine or process before it counts as failed."""
PASSED_ON = ("LABELEMB_", "HF_HOME", "HF_HUB_OFFLINE", "XDG_CACHE_HOME", "MLFLOW_TRACKING_URI", "WANDB_MODE")
"""Environment variables that begin so are passed on to all machines: where data and trackers are, but no passwords."""


@dataclass(frozen=True)
class Cluster:
    """A Ray cluster, and what a run reserves on it."""

    address: str = "auto"
    """`auto` for the cluster that this machine belongs to, or its HOST:PORT."""
    cpus_per_run: int | None = None
    """None: as many as a run has threads."""
    gpus_per_run: float = 0.0


class Mailbox:
    """An actor beside the comparison: keeps the events of tasks until they are read, and tells tasks to stop."""

    def __init__(self) -> None:
        self.events: dict[int, list[str]] = {}
        self.stopping = False

    def put(self, task: int, event: str) -> bool:
        """Leave an event; gives whether the task should stop."""
        self.events.setdefault(task, []).append(event)
        return self.stopping

    def take(self, task: int) -> list[str]:
        return self.events.pop(task, [])

    def stop(self) -> None:
        self.stopping = True


class MailboxReporter(Reporter):
    """Sends the events of a task to the mailbox."""

    def __init__(self, task: int, mailbox: Any, stop: StopRequests) -> None:
        super().__init__(stop)
        self.ray = _ray()
        self.task, self.mailbox = task, mailbox

    def send(self, event: Event) -> None:
        try:
            stopping = self.ray.get(self.mailbox.put.remote(self.task, _to_text(event)))
        except self.ray.exceptions.RayError:  # the comparison and its mailbox are gone
            stopping = True
        if stopping:
            self.stop.request(signal.SIGTERM)


def train_in_task(task: int, setup: str, request: str, folder: str, mailbox: Any) -> str:
    """On a machine of the cluster: train a run of a comparison that was started in `folder`; its last event."""
    reporter = MailboxReporter(task, mailbox, StopRequests())
    reporter.send(Started(socket.gethostname()))
    asked = from_json(request, RunRequest)
    if not Path(asked.folder).is_dir():
        place = f"the machine {socket.gethostname()} has no folder {asked.folder}"
        return _to_text(Failed(f"{place}: choose an --out that all machines of the cluster share", user_error=True))
    with suppress(OSError):  # for relative paths in the recipe; those of the command are absolute
        os.chdir(folder)
    return _to_text(train_request(from_json(setup, WorkerSetup), asked, reporter))


class RayPool(RunPool):
    """Tasks on a cluster that share runs. A run that loses its machine or process starts again from its checkpoint."""

    def __init__(
        self, order: RunSource, jobs: int | None, setup: WorkerSetup, cluster: Cluster, most: int | None = None
    ) -> None:
        """Join the cluster; `jobs` is None for all runs that it has room for, and `most` is how many there are."""
        super().__init__(order)
        self.ray = _ray()
        cpus = cluster.cpus_per_run or setup.options.threads or 1
        self._joined = _join(self.ray, cluster.address)
        try:
            room = _room(self.ray.nodes(), cpus, cluster.gpus_per_run)
            self.mailbox = _make_mailbox(self.ray)
        except BaseException:
            self._leave()
            raise
        threads = str(setup.options.threads or cpus)
        passed_on = {name: value for name, value in os.environ.items() if name.startswith(PASSED_ON)}
        self.task = self.ray.remote(
            num_cpus=cpus,
            num_gpus=cluster.gpus_per_run,
            max_retries=0,  # the pool tries again itself, and says so
            runtime_env={"env_vars": passed_on | {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}},
        )(train_in_task)
        self.setup = _to_text(_with_absolute_data(setup))
        self._slots = [_TaskSlot(self, number) for number in range(min(jobs or room, most or room))]
        self._last_task, self._lock = 0, threading.Lock()

    @property
    def workers(self) -> Sequence["_TaskSlot"]:
        return self._slots

    def events(self) -> Iterator[RunEvent]:
        yield from super().events()
        self._leave()

    def stop(self) -> None:
        self.order.clear()
        for slot in self._slots:
            slot.stopping = True
        self.ray.get(self.mailbox.stop.remote())
        for slot in self._slots:
            slot.cancel_waiting()
        end = time.monotonic() + STOP_SECONDS
        for slot in self._slots:
            slot.thread.join(max(0.0, end - time.monotonic()))
        for slot in self._slots:
            slot.kill()
        self._leave()

    def new_task(self) -> int:
        """A number for a task, which its events carry."""
        with self._lock:
            self._last_task += 1
            return self._last_task

    def _leave(self) -> None:
        if self._joined:
            self.ray.shutdown()


class _TaskSlot(PoolSlot):
    """A thread that hands one run after the other to the cluster and passes its events on."""

    def __init__(self, pool: RayPool, number: int) -> None:
        super().__init__(pool, number)
        self.pool = pool
        self.stopping = False
        self._task: Any = None
        self._machine = ""
        """Where the task runs; empty while it waits for room."""

    def cancel_waiting(self) -> None:
        if self._task is not None and not self._machine:
            self.pool.ray.cancel(self._task)

    def kill(self) -> None:
        if self._task is not None:
            self.pool.ray.cancel(self._task, force=True)

    def train_runs(self) -> None:
        while not self.stopping and (run := self.pool.order.take()) is not None:
            self.pool.order.end(run, self._train(run))

    def _train(self, run: PlannedRun) -> Event:
        """Train a run, if need be several times; its last event."""
        if obstacle := self.pool.order.obstacle(run):
            return self.send(run, needed_run_failed(obstacle))
        try:
            make_folder(run.folder)
            for loss in range(1, MOST_LOSSES + 1):
                last = self._attempt(run)
                if not isinstance(last, Lost):
                    break
                if loss == MOST_LOSSES:
                    last = Failed(f"{last.message}, for the {loss}rd time: run the command again to go on", died=True)
                    break
                self.send(run, Lost(f"{last.message}: it starts again from its last checkpoint"))
        except UserError as error:
            last = Failed(str(error), user_error=True)
        except Exception as error:  # whatever it is, others wait for the end of this run
            last = Failed(f"cannot be run on the cluster: {_last_line(error)}")
        return last if isinstance(last, Stopped) and self.stopping else self.send(run, last)

    def _attempt(self, run: PlannedRun) -> Event:
        """Hand a run to the cluster and wait for it; its last event, which is not sent yet."""
        ray, pool = self.pool.ray, self.pool
        number, self._machine = pool.new_task(), ""
        request = _to_text(_with_absolute_paths(run).to_request())
        self._task = pool.task.remote(number, pool.setup, request, str(Path.cwd()), pool.mailbox)
        ended: list[Any] = []
        while not ended:
            ended, _ = ray.wait([self._task], timeout=POLL_SECONDS)
            for message in ray.get(pool.mailbox.take.remote(number)):
                event = _to_event(message)
                if isinstance(event, Started):
                    self._machine = event.machine
                self.send(run, event)
        try:
            last = _to_event(ray.get(self._task))
        except ray.exceptions.RayTaskError:  # of the machine's installation: what a run raises comes as an event
            raise
        except ray.exceptions.RayError as error:
            last = Stopped() if self.stopping else self._lost(type(error).__name__)
        finally:
            self._task = None
        return self._lost("it was told to stop") if isinstance(last, Stopped) and not self.stopping else last

    def _lost(self, reason: str) -> Lost:
        where = f" on the machine {self._machine}" if self._machine else ""
        return Lost(f"its process{where} was lost ({reason})")


def _ray() -> Any:
    return import_optional("ray", "--ray", "ray")


def _join(ray: Any, address: str) -> bool:
    """Join the cluster; False if this process is part of one already."""
    if ray.is_initialized():
        return False
    if address.startswith("ray://"):
        raise UserError(f"--ray {address}: start the command on a machine of the cluster, with --ray auto")
    before = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        advice = "start one by `ray start --head`, and join it on other machines by `ray start --address=HOST:6379`"
        raise UserError(f"--ray {address}: no Ray cluster can be joined from here; {advice}") from error
    finally:
        signal.signal(signal.SIGTERM, before)  # Ray sets it
    return True


def _room(nodes: list[dict[str, Any]], cpus: int, gpus: float) -> int:
    """How many runs the machines of a cluster train at once."""
    found = [(node["Resources"].get("CPU", 0.0), node["Resources"].get("GPU", 0.0)) for node in nodes if node["Alive"]]
    room = sum(int(min(cpu / cpus, gpu / gpus if gpus else math.inf)) for cpu, gpu in found)
    if not room:
        wanted = f"{cpus} CPUs" + (f" and {gpus:g} GPUs" if gpus else "")
        machines = "; ".join(f"{cpu:g} CPUs and {gpu:g} GPUs" for cpu, gpu in sorted(set(found)))
        advice = "lower --cpus-per-run, --threads or --gpus-per-run"
        raise UserError(f"no machine of the Ray cluster has {wanted} for a run (there are {machines}): {advice}")
    return room


def _make_mailbox(ray: Any) -> Any:
    """The mailbox, on this machine: it is there as long as the comparison is."""
    strategies = import_optional("ray.util.scheduling_strategies", "--ray", "ray")
    here = strategies.NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    return ray.remote(num_cpus=0, scheduling_strategy=here)(Mailbox).remote()


def _with_absolute_data(setup: WorkerSetup) -> WorkerSetup:
    if setup.data is None or not Path(setup.data).exists():  # as it is: the name of a published data set
        return setup
    return msgspec.structs.replace(setup, data=str(Path(setup.data).absolute()))


def _with_absolute_paths(run: PlannedRun) -> PlannedRun:
    labels = None if run.labels is None else replace(run.labels, path=run.labels.path.absolute())
    return replace(run, folder=run.folder.absolute(), labels=labels)


def _to_text(message: Any) -> str:
    return json.dumps(to_json(message))


def _to_event(message: str) -> Event:
    return from_json(message, Event)  # type: ignore[arg-type]  # a union, of which mypy wants a class


def _last_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[-1].strip() if lines else type(error).__name__
