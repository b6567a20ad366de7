"""The pool of workers: all runs, each once, whatever becomes of the processes. The workers here only act."""

import errno
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from labelemb.lab.comparison.pool import WorkerPool
from labelemb.lab.comparison.protocol import Busy, Done, Event, Failed, Moved, Started, WorkerSetup
from labelemb.lab.comparison.run_order import PlannedRun, RunEvent, RunOrder
from labelemb.lab.runs.messages import Progress, RunOptions
from labelemb.support.errors import UserError

WORKER = """
import json, os, signal, sys, time
comparison = json.loads(sys.stdin.readline())
assert comparison["recipe"] == "a recipe"
for line in sys.stdin:
    task = json.loads(line)
    progress = {"step": 1, "total_steps": 2, "epoch": 0, "epochs": 1, "score": None}
    print(json.dumps({"event": "progress", "progress": progress}), flush=True)
    if task["method"] == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if task["method"] == "crashed":
        print("a library's last words", file=sys.stderr)
        os._exit(7)
    if task["method"] == "cut":
        os.write(1, b'{"event": "prog')
        os.kill(os.getpid(), signal.SIGKILL)
    if task["method"] == "noisy":
        os.write(1, b"a library without manners\\n3\\ncaf\\xe9\\n")
    if task["method"] == "signalled":
        os.kill(os.getpid(), 40)
    if task["method"] == "stopped":
        print(json.dumps({"event": "stopped"}), flush=True)
        time.sleep(0.2)
        sys.exit(1)
    if task["method"] == "busy" and not os.path.exists(task["folder"]):
        os.mkdir(task["folder"])
        print(json.dumps({"event": "busy"}), flush=True)
        continue
    if task["method"] == "waiting":
        signal.pause()
    if task["method"] == "wrong":
        print(json.dumps({"event": "failed", "message": "no good", "user_error": True}), flush=True)
    else:
        print(json.dumps({"event": "done", "scores": str(os.getpid())}), flush=True)
"""


SETUP = WorkerSetup("a recipe", None, RunOptions(threads=1))


def pool(tmp_path: Path, methods: list[str], jobs: int) -> WorkerPool:
    runs = [PlannedRun(method, seed, tmp_path / str(seed)) for seed, method in enumerate(methods)]
    (tmp_path / "worker.py").write_text(WORKER)
    return WorkerPool(RunOrder(runs), jobs, SETUP, worker=[sys.executable, str(tmp_path / "worker.py")])


def ends(events: list[RunEvent]) -> dict[int, type[Event]]:
    return {event.run.seed: type(event.event) for event in events if isinstance(event.event, Done | Failed)}


def processes(events: list[RunEvent]) -> set[str]:
    return {event.event.scores for event in events if isinstance(event.event, Done)}


def failures(events: Iterable[RunEvent]) -> list[Failed]:
    return [event.event for event in events if isinstance(event.event, Failed)]


@pytest.mark.parametrize("jobs", [1, 2, 9])
def test_every_run_is_trained_once(tmp_path: Path, jobs: int) -> None:
    events = list(pool(tmp_path, ["good"] * 6, jobs).events())
    assert sorted(event.run.seed for event in events if isinstance(event.event, Done)) == list(range(6))
    assert len(processes(events)) <= jobs


def test_a_worker_keeps_its_process_from_run_to_run(tmp_path: Path) -> None:
    events = list(pool(tmp_path, ["good", "wrong", "good"], 1).events())
    assert ends(events) == {0: Done, 1: Failed, 2: Done}
    assert len(processes(events)) == 1


def test_a_killed_worker_fails_its_run_and_is_replaced(tmp_path: Path) -> None:
    events = list(pool(tmp_path, ["good", "killed", "good"], 1).events())
    assert ends(events) == {0: Done, 1: Failed, 2: Done}
    (failed,) = failures(events)
    assert failed == Failed("the worker was killed by SIGKILL", died=True)


def test_a_worker_killed_within_a_line_fails_its_run(tmp_path: Path) -> None:
    assert ends(list(pool(tmp_path, ["cut", "good"], 1).events())) == {0: Failed, 1: Done}


def test_what_a_library_prints_among_the_events_is_passed_over(tmp_path: Path) -> None:
    events = list(pool(tmp_path, ["noisy"], 1).events())
    assert [type(event.event) for event in events] == [Started, Moved, Done]


def test_a_signal_without_a_name_is_given_by_its_number(tmp_path: Path) -> None:
    (failed,) = failures(pool(tmp_path, ["signalled"], 1).events())
    assert failed.message == "the worker was killed by signal 40"


def test_a_worker_that_was_stopped_from_outside_fails_its_run_and_is_replaced(tmp_path: Path) -> None:
    events = list(pool(tmp_path, ["stopped", "good"], 1).events())
    assert ends(events) == {0: Failed, 1: Done}
    (failed,) = failures(events)
    assert "run the command again" in failed.message


def test_a_worker_that_cannot_be_started_fails_its_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    events = list(pool(tmp_path, ["good", "good"], 2).events())
    assert ends(events) == {0: Failed, 1: Failed}
    assert {failed.message for failed in failures(events)} == {"cannot run a worker: Too many open files"}


def test_the_last_words_of_a_crashed_worker_are_passed_on(tmp_path: Path) -> None:
    (failed,) = failures(pool(tmp_path, ["crashed"], 1).events())
    assert failed.message == "the worker ended with exit code 7: a library's last words"


def test_a_failed_run_fails_those_that_need_it_and_no_others(tmp_path: Path) -> None:
    wrong, right = PlannedRun("wrong", 0, tmp_path / "wrong"), PlannedRun("good", 1, tmp_path / "good")
    needing = [
        PlannedRun("good", seed, tmp_path / str(seed), after=run.folder) for seed, run in ((2, wrong), (3, right))
    ]
    (tmp_path / "worker.py").write_text(WORKER)
    order = RunOrder([*needing, wrong, right])
    started = WorkerPool(order, 2, SETUP, worker=[sys.executable, str(tmp_path / "worker.py")])
    events = list(started.events())
    assert ends(events) == {0: Failed, 1: Done, 2: Failed, 3: Done}
    (skipped,) = failures(event for event in events if event.run.seed == 2)
    assert skipped.message == "wrong seed 0, whose labels it needs, failed"


def test_stopping_ends_the_workers_and_starts_no_other_run(tmp_path: Path) -> None:
    started = pool(tmp_path, ["waiting", "waiting", "good"], 2)
    seen = []
    for event in started.events():
        seen.append(event)
        if sum(isinstance(entry.event, Moved) for entry in seen) == 2:
            started.stop()
    assert {event.run.seed for event in seen} == {0, 1}
    assert all(slot._process is not None and slot._process.poll() is not None for slot in started._slots)


def test_progress_comes_through_as_the_worker_sent_it(tmp_path: Path) -> None:
    events = list(pool(tmp_path, ["good"], 1).events())
    assert [type(event.event) for event in events] == [Started, Moved, Done]
    assert events[1].event == Moved(Progress(1, 2, 0, 1, None))


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_run_in_the_hands_of_another_process_is_taken_up_again_after_the_others(tmp_path: Path, jobs: int) -> None:
    events = list(pool(tmp_path, ["busy", "good", "good"], jobs).events())
    assert [event.run.seed for event in events if isinstance(event.event, Busy)] == [0]
    assert sorted(event.run.seed for event in events if isinstance(event.event, Done)) == [0, 1, 2]
    assert failures(events) == []


def test_a_pool_that_cannot_even_begin_fails_its_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr("labelemb.lab.comparison.pool.tempfile.TemporaryFile", refuse)
    events = list(pool(tmp_path, ["good", "good"], jobs=1).events())
    assert ends(events) == {0: Failed, 1: Failed}
    assert "No usable temporary directory" in failures(events)[-1].message


def test_what_the_source_of_runs_raises_reaches_whoever_reads_the_events() -> None:
    class FullDisk(RunOrder):
        def take(self) -> PlannedRun | None:
            raise UserError("the disk is full")

    with pytest.raises(UserError, match="the disk is full"):
        list(WorkerPool(FullDisk([]), 2, SETUP).events())
