"""A worker whose comparison was killed: it saves and ends by itself."""

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from labelemb.lab.comparison import worker
from labelemb.lab.runs import folder as runfolder
from labelemb.lab.runs.checkpoint.file import CURRENT
from labelemb.lab.runs.folder import RunFolder
from labelemb.lab.runs.messages import RunOptions
from labelemb.support.errors import UserError
from tests.helpers.quick_runs import assert_same_run, quick_recipe, quick_run


def test_a_worker_ends_with_a_checkpoint_when_nobody_listens_any_more(tmp_path: Path) -> None:
    recipe = quick_recipe("train.epochs=100000").to_toml()
    comparison = {"recipe": recipe, "data": None, "options": {"threads": 1, "checkpoint_seconds": 1000.0}}
    task = {"method": "plain", "seed": 0, "folder": str(tmp_path / "run")}
    process = subprocess.Popen(
        [sys.executable, "-m", "labelemb.lab.comparison.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(comparison) + "\n" + json.dumps(task) + "\n")
    process.stdin.flush()
    assert json.loads(process.stdout.readline())["event"] == "progress"
    process.stdout.close()
    assert process.wait() != 0
    process.stdin.close()
    assert (tmp_path / "run" / CURRENT).exists()


def test_a_worker_reports_a_method_it_does_not_know_and_waits_for_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = quick_recipe("train.epochs=1").to_toml()
    comparison = {"recipe": recipe, "data": None, "options": {"threads": 1}}
    tasks = [{"method": name, "seed": 0, "folder": str(tmp_path / name)} for name in ("magic", "plain")]
    sent = "".join(json.dumps(message) + "\n" for message in (comparison, *tasks))
    monkeypatch.setattr(sys, "stdin", io.StringIO(sent))
    monkeypatch.setattr(sys, "stdout", written := io.StringIO())
    assert worker.main() == 0
    events = [json.loads(line) for line in written.getvalue().splitlines()]
    assert events[0]["event"] == "failed"
    assert events[0]["user_error"]
    assert "magic" in events[0]["message"]
    assert events[-1]["event"] == "done"


def test_what_another_process_made_of_the_folder_meanwhile_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = RunFolder.locked

    @contextmanager
    def overtaken(folder: RunFolder) -> Iterator[None]:
        monkeypatch.setattr(RunFolder, "locked", lock)
        quick_run(tmp_path, method="label-smoothing", seed=5)
        with lock(folder):
            yield

    monkeypatch.setattr(RunFolder, "locked", overtaken)
    with pytest.raises(UserError, match="holds a run of the method label-smoothing, not plain"):
        quick_run(tmp_path, method="plain")


def test_two_processes_do_not_train_in_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runfolder, "LOCK_SECONDS", 0.0)
    with RunFolder(tmp_path).locked(), pytest.raises(UserError, match="another process is training in"):
        quick_run(tmp_path)
    quick_run(tmp_path)


def test_a_run_that_pauses_goes_on_as_if_it_had_never_stopped(tmp_path: Path) -> None:
    comparison = {"recipe": quick_recipe().to_toml(), "data": None, "options": {"threads": 1, "command": "a test"}}
    task = {"method": "label-embedding", "seed": 0, "folder": str(tmp_path / "paused")}
    tasks = [{**task, "pause_epoch": 1}, {**task, "pause_epoch": 2}, task]
    done = subprocess.run(
        [sys.executable, "-m", "labelemb.lab.comparison.worker"],
        input="".join(json.dumps(message) + "\n" for message in (comparison, *tasks)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    events = [json.loads(line)["event"] for line in done.stdout.splitlines()]
    assert [event for event in events if event != "progress"] == ["paused", "paused", "done"]
    quick_run(tmp_path / "whole", options=RunOptions(threads=1, command="a test"))
    assert_same_run(tmp_path / "paused", tmp_path / "whole")
