"""Runs on a Ray cluster, with threads in Ray's place; `test_ray_nodes.py` starts a real cluster."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from labelemb.lab.comparison import ray as ray_module
from labelemb.lab.comparison.make import make_pool
from labelemb.lab.comparison.pool import WorkerPool
from labelemb.lab.comparison.protocol import Done, Event, Failed, Lost, Moved, RunRequest, Started, Stopped, WorkerSetup
from labelemb.lab.comparison.ray import Cluster, RayPool
from labelemb.lab.comparison.run_order import PlannedRun, RunEvent, RunOrder
from labelemb.lab.comparison.worker import Reporter
from labelemb.lab.runs.messages import Progress, RunOptions
from labelemb.support.errors import UserError
from tests.helpers.command import SMALL, Capture, error_line

SETUP = WorkerSetup("a recipe", None, RunOptions(threads=1))


class RayError(Exception):
    """Anything that became of a task."""


class RayTaskError(RayError):
    """A task that raised."""


class Task:
    """A task in a thread; also the answer of an actor."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.cancelled = False
        self.function, self.arguments = function, arguments
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.value: Any = self.function(*self.arguments)
        except Exception as error:
            self.value = error


class StandIn:
    """What the pool uses of Ray. Every machine has 2 CPUs."""

    exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)

    def __init__(self, machines: int = 1) -> None:
        self.machines, self.joined, self.options = machines, False, {}

    def is_initialized(self) -> bool:
        return False

    def init(self, **options: Any) -> None:
        self.joined = True

    def shutdown(self) -> None:
        self.joined = False

    def nodes(self) -> list[dict[str, Any]]:
        return [{"Alive": True, "Resources": {"CPU": 2.0}}] * self.machines + [{"Alive": False, "Resources": {}}]

    def remote(self, **options: Any) -> Callable[[Callable[..., Any]], Any]:
        self.options = options
        return lambda function: SimpleNamespace(remote=lambda *arguments: Task(function, *arguments))

    def wait(self, tasks: list[Task], timeout: float) -> tuple[list[Task], list[Task]]:
        for task in tasks:
            task.thread.join(timeout)
        return [task for task in tasks if not task.thread.is_alive()], []

    def get(self, task: Task) -> Any:
        task.thread.join()
        if isinstance(task.value, Exception):
            raise task.value
        return task.value

    def cancel(self, task: Task, force: bool = False) -> None:
        task.cancelled = True


class Actor:
    """The mailbox in this process."""

    def __init__(self) -> None:
        mailbox = ray_module.Mailbox()
        for name in ("put", "take", "stop"):
            method = getattr(mailbox, name)
            setattr(self, name, SimpleNamespace(remote=lambda *arguments, method=method: Task(method, *arguments)))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """A cluster of threads whose runs act by the name of their method."""
    stand_in = StandIn()
    lost: set[str] = set()

    def act(setup: WorkerSetup, request: RunRequest, reporter: Reporter) -> Event:
        reporter.progress(Progress(1, 2, 0, 1, None))
        if request.method == "lost for good" or (request.method == "lost" and request.folder not in lost):
            lost.add(request.folder)
            raise RayError("the machine is gone")
        if request.method == "terminated" and request.folder not in lost:
            lost.add(request.folder)
            return Stopped()
        if request.method == "not installed":
            raise RayTaskError("a long trace\nModuleNotFoundError: No module named 'labelemb'")
        if request.method == "wrong":
            return Failed("no good", user_error=True)
        while request.method == "waiting" and reporter.stop.requested is None:
            time.sleep(0.01)
            reporter.progress(Progress(1, 2, 0, 1, None))
        return Stopped() if request.method == "waiting" else Done("fine")

    monkeypatch.setattr(ray_module, "_ray", lambda: stand_in)
    monkeypatch.setattr(ray_module, "_make_mailbox", lambda ray: Actor())
    monkeypatch.setattr(ray_module, "train_request", act)
    monkeypatch.setattr(ray_module, "POLL_SECONDS", 0.01)
    return stand_in


def pool(tmp_path: Path, methods: list[str], jobs: int | None = None, **reserved: Any) -> RayPool:
    runs = [PlannedRun(method, seed, tmp_path / str(seed)) for seed, method in enumerate(methods)]
    return RayPool(RunOrder(runs), jobs, SETUP, Cluster(**reserved), most=len(runs))


def ends(events: list[RunEvent]) -> dict[int, type[Event]]:
    return {event.run.seed: type(event.event) for event in events if isinstance(event.event, Done | Failed)}


def of(kind: type[Any], events: list[RunEvent]) -> list[Any]:
    return [event.event for event in events if isinstance(event.event, kind)]


def test_every_run_is_trained_once_and_its_events_come_in_their_order(tmp_path: Path, cluster: StandIn) -> None:
    events = list(pool(tmp_path, ["good"] * 5).events())
    assert ends(events) == dict.fromkeys(range(5), Done)
    for seed in range(5):
        mine = [type(event.event) for event in events if event.run.seed == seed]
        assert mine == [Started, Moved, Done]
    assert not cluster.joined, "the cluster is left at the end"


@pytest.mark.parametrize(
    ("machines", "jobs", "reserved", "slots"),
    [(3, None, {}, 6), (3, 4, {}, 4), (3, None, {"cpus_per_run": 2}, 3), (9, None, {}, 7)],
)
def test_as_many_runs_go_at_once_as_the_machines_have_room_for(
    tmp_path: Path, cluster: StandIn, machines: int, jobs: int | None, reserved: dict[str, Any], slots: int
) -> None:
    cluster.machines = machines
    assert pool(tmp_path, ["good"] * 7, jobs, **reserved).slots == slots
    assert cluster.options["num_cpus"] == reserved.get("cpus_per_run", 1)


def test_what_the_source_of_runs_raises_reaches_whoever_reads_the_events(cluster: StandIn) -> None:
    class FullDisk(RunOrder):
        def take(self) -> PlannedRun | None:
            raise UserError("the disk is full")

    pool = RayPool(FullDisk([]), 2, SETUP, Cluster())
    with pytest.raises(UserError, match="the disk is full"):
        list(pool.events())
    pool.stop()
    assert not cluster.joined


def test_a_run_that_needs_more_than_any_machine_has_is_refused(tmp_path: Path, cluster: StandIn) -> None:
    with pytest.raises(UserError, match=r"has 1 CPUs and 1 GPUs for a run \(there are 2 CPUs and 0 GPUs\): lower"):
        pool(tmp_path, ["good"], gpus_per_run=1)
    assert not cluster.joined


@pytest.mark.parametrize("method", ["lost", "terminated"])
def test_a_lost_run_starts_again(tmp_path: Path, cluster: StandIn, method: str) -> None:
    events = list(pool(tmp_path, [method, "good"]).events())
    assert ends(events) == {0: Done, 1: Done}
    (lost,) = of(Lost, events)
    assert lost.message.startswith("its process on the machine ")
    assert lost.message.endswith(": it starts again from its last checkpoint")


def test_a_run_that_is_lost_again_and_again_fails_and_others_do_not(tmp_path: Path, cluster: StandIn) -> None:
    events = list(pool(tmp_path, ["lost for good", "good"]).events())
    assert ends(events) == {0: Failed, 1: Done}
    (failed,) = of(Failed, events)
    assert failed.died
    assert "for the 3rd time: run the command again to go on" in failed.message


def test_what_a_machine_lacks_is_said_in_a_line(tmp_path: Path, cluster: StandIn) -> None:
    (failed,) = of(Failed, list(pool(tmp_path, ["not installed"]).events()))
    assert failed.message == "cannot be run on the cluster: ModuleNotFoundError: No module named 'labelemb'"


def test_a_failed_run_fails_those_that_need_it(tmp_path: Path, cluster: StandIn) -> None:
    wrong = PlannedRun("wrong", 0, tmp_path / "wrong")
    needing = PlannedRun("good", 1, tmp_path / "needing", after=wrong.folder)
    events = list(RayPool(RunOrder([needing, wrong]), None, SETUP, Cluster()).events())
    assert [failed.message for failed in of(Failed, events)] == [
        "no good",
        "wrong seed 0, whose labels it needs, failed",
    ]


def test_a_folder_that_cannot_be_made_fails_its_run(tmp_path: Path, cluster: StandIn) -> None:
    (tmp_path / "0").write_text("in the way")
    events = list(pool(tmp_path, ["good", "good"]).events())
    assert ends(events) == {0: Failed, 1: Done}
    assert of(Failed, events)[0].user_error


def test_a_machine_that_does_not_share_the_folder_is_named(tmp_path: Path, cluster: StandIn) -> None:
    request = ray_module._to_text(PlannedRun("good", 0, tmp_path / "nowhere").to_request())
    last = ray_module._to_event(ray_module.train_in_task(1, ray_module._to_text(SETUP), request, ".", Actor()))
    assert isinstance(last, Failed)
    assert "has no folder" in last.message
    assert "choose an --out that all machines of the cluster share" in last.message


def test_stopping_lets_the_runs_save_and_starts_no_other(tmp_path: Path, cluster: StandIn) -> None:
    started = pool(tmp_path, ["waiting", "waiting", "good"])
    seen = []
    for event in started.events():
        seen.append(event)
        if {entry.run.seed for entry in seen if isinstance(entry.event, Moved)} == {0, 1}:
            started.stop()
    assert {event.run.seed for event in seen} == {0, 1}
    assert not of(Failed, seen)


def test_a_run_whose_comparison_is_gone_is_asked_to_stop(tmp_path: Path, cluster: StandIn) -> None:
    def gone(*arguments: Any) -> bool:
        raise RayError("the mailbox died")

    reporter = ray_module.MailboxReporter(
        1, SimpleNamespace(put=SimpleNamespace(remote=lambda *arguments: Task(gone))), ray_module.StopRequests()
    )
    reporter.warn("nobody reads this")
    assert reporter.stop.requested == signal.SIGTERM


def test_paths_are_absolute_where_tasks_read_them(
    tmp_path: Path, cluster: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rows.csv").touch()
    run = ray_module._with_absolute_paths(PlannedRun("plain", 0, Path("runs/0")))
    assert run.folder == tmp_path / "runs" / "0"
    setup = ray_module._with_absolute_data(WorkerSetup("", "rows.csv", RunOptions()))
    assert setup.data == str(tmp_path / "rows.csv")


def test_one_argument_chooses_between_this_machine_and_a_cluster(cluster: StandIn) -> None:
    assert isinstance(make_pool(RunOrder([]), 1, SETUP), WorkerPool)
    assert isinstance(make_pool(RunOrder([]), 1, SETUP, Cluster()), RayPool)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--cpus-per-run", "2"), "--cpus-per-run is for runs on a Ray cluster: pass --ray auto as well"),
        (("--gpus-per-run", "1.5"), "'1.5' is neither a whole number of at least 1 nor a fraction below 1"),
        (("--ray", "auto", "--device", "cuda"), "reserves no GPU of the cluster: pass --gpus-per-run 1"),
    ],
)
def test_what_does_not_go_together_is_said(
    capsys: Capture, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    assert message in error_line(capsys, "compare", "digits", "--out", str(tmp_path / "out"), *arguments)


def test_a_missing_ray_is_said_with_its_extra(capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    message = error_line(capsys, "compare", "digits", "--out", str(tmp_path / "out"), "--ray", "auto", *SMALL)
    assert message == "labelemb: --ray needs the package ray: pip install 'labelemb[ray]'"
