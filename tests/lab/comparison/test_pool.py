"""The pool of workers: all tasks, each once, whatever becomes of the processes. The workers here only act."""

import errno
import json
import subprocess
import sys
from pathlib import Path

import pytest

from labelemb.lab.comparison.pool import Event, Task, WorkerPool

WORKER = """
import json, os, signal, sys, time
comparison = json.loads(sys.stdin.readline())
assert comparison == {"data": None}
for line in sys.stdin:
    task = json.loads(line)
    print(json.dumps({"event": "progress", "step": 1, "total_steps": 2}), flush=True)
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
        print(json.dumps({"event": "done", "test_error": task["seed"], "process": os.getpid()}), flush=True)
"""


def pool(tmp_path: Path, methods: list[str], jobs: int) -> WorkerPool:
    tasks = [Task(method, seed, tmp_path / str(seed)) for seed, method in enumerate(methods)]
    (tmp_path / "worker.py").write_text(WORKER)
    return WorkerPool(tasks, jobs, {"data": None}, threads=1, worker=[sys.executable, str(tmp_path / "worker.py")])


def ends(events: list[Event]) -> dict[int, str]:
    return {event.task.seed: event.kind for event in events if event.kind in ("done", "failed")}


@pytest.mark.parametrize("jobs", [1, 2, 9])
def test_every_task_is_done_once(tmp_path: Path, jobs: int) -> None:
    events = list(pool(tmp_path, ["good"] * 6, jobs).events())
    assert sorted(event.task.seed for event in events if event.kind == "done") == list(range(6))
    assert len({event.values["process"] for event in events if event.kind == "done"}) <= jobs


def test_a_worker_keeps_its_process_from_run_to_run(tmp_path: Path) -> None:
    events = list(pool(tmp_path, ["good", "wrong", "good"], 1).events())
    assert ends(events) == {0: "done", 1: "failed", 2: "done"}
    assert len({event.values["process"] for event in events if event.kind == "done"}) == 1


def test_a_killed_worker_fails_its_run_and_is_replaced(tmp_path: Path) -> None:
    events = list(pool(tmp_path, ["good", "killed", "good"], 1).events())
    assert ends(events) == {0: "done", 1: "failed", 2: "done"}
    (failed,) = [event for event in events if event.kind == "failed"]
    assert failed.values == {"message": "the worker was killed by SIGKILL", "user_error": False}


def test_a_worker_killed_within_a_line_fails_its_run(tmp_path: Path) -> None:
    assert ends(list(pool(tmp_path, ["cut", "good"], 1).events())) == {0: "failed", 1: "done"}


def test_what_a_library_prints_among_the_events_is_passed_over(tmp_path: Path) -> None:
    events = list(pool(tmp_path, ["noisy"], 1).events())
    assert [event.kind for event in events] == ["started", "progress", "done"]


def test_a_signal_without_a_name_is_given_by_its_number(tmp_path: Path) -> None:
    (failed,) = [event for event in pool(tmp_path, ["signalled"], 1).events() if event.kind == "failed"]
    assert failed.values["message"] == "the worker was killed by signal 40"


def test_a_worker_that_was_stopped_from_outside_fails_its_run_and_is_replaced(tmp_path: Path) -> None:
    events = list(pool(tmp_path, ["stopped", "good"], 1).events())
    assert ends(events) == {0: "failed", 1: "done"}
    (failed,) = [event for event in events if event.kind == "failed"]
    assert "run the command again" in failed.values["message"]


def test_a_worker_that_cannot_be_started_fails_its_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    events = list(pool(tmp_path, ["good", "good"], 2).events())
    assert ends(events) == {0: "failed", 1: "failed"}
    assert {event.values["message"] for event in events if event.kind == "failed"} == {
        "cannot run a worker: Too many open files"
    }


def test_the_last_words_of_a_crashed_worker_are_passed_on(tmp_path: Path) -> None:
    (failed,) = [event for event in pool(tmp_path, ["crashed"], 1).events() if event.kind == "failed"]
    assert failed.values["message"] == "the worker ended with exit code 7: a library's last words"


def test_a_failed_run_fails_those_that_need_it_and_no_others(tmp_path: Path) -> None:
    wrong, right = Task("wrong", 0, tmp_path / "wrong"), Task("good", 1, tmp_path / "good")
    needing = [Task("good", seed, tmp_path / str(seed), after=task.folder) for seed, task in ((2, wrong), (3, right))]
    (tmp_path / "worker.py").write_text(WORKER)
    started = WorkerPool(
        [*needing, wrong, right], 2, {"data": None}, threads=1, worker=[sys.executable, str(tmp_path / "worker.py")]
    )
    events = list(started.events())
    assert ends(events) == {0: "failed", 1: "done", 2: "failed", 3: "done"}
    (skipped,) = [event for event in events if event.kind == "failed" and event.task.seed == 2]
    assert skipped.values["message"] == "wrong seed 0, whose labels it needs, failed"


def test_stopping_ends_the_workers_and_starts_no_other_task(tmp_path: Path) -> None:
    started = pool(tmp_path, ["waiting", "waiting", "good"], 2)
    seen = []
    for event in started.events():
        seen.append(event)
        if sum(entry.kind == "progress" for entry in seen) == 2:
            started.stop()
    assert {event.task.seed for event in seen} == {0, 1}
    assert all(slot._process is not None and slot._process.poll() is not None for slot in started._slots)


def test_progress_comes_through_as_the_worker_sent_it(tmp_path: Path) -> None:
    events = list(pool(tmp_path, ["good"], 1).events())
    assert [event.kind for event in events] == ["started", "progress", "done"]
    assert json.dumps(events[1].values) == '{"step": 1, "total_steps": 2}'


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_run_in_the_hands_of_another_process_is_taken_up_again_after_the_others(tmp_path: Path, jobs: int) -> None:
    events = list(pool(tmp_path, ["busy", "good", "good"], jobs).events())
    assert [event.task.seed for event in events if event.kind == "busy"] == [0]
    assert sorted(event.task.seed for event in events if event.kind == "done") == [0, 1, 2]
    assert "failed" not in {event.kind for event in events}


def test_a_pool_that_cannot_even_begin_fails_its_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr("labelemb.lab.comparison.pool.tempfile.TemporaryFile", refuse)
    events = list(pool(tmp_path, ["good", "good"], jobs=1).events())
    assert ends(events) == {0: "failed", 1: "failed"}
    assert "No usable temporary directory" in events[-1].values["message"]
