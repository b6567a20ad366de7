"""A worker whose comparison was killed: it saves and ends by itself."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from labelemb.lab.runs import folder as runfolder
from labelemb.lab.runs.checkpoint import CURRENT
from labelemb.lab.runs.folder import RunFolder
from labelemb.support.errors import UserError
from tests.helpers.quick_runs import quick_recipe, quick_run


def test_a_worker_ends_with_a_checkpoint_when_nobody_listens_any_more(tmp_path: Path) -> None:
    recipe = quick_recipe("train.epochs=100000").to_toml()
    comparison = {"recipe": recipe, "data": None, "options": {"threads": 1, "checkpoint_seconds": 1000.0}}
    task = {"method": "plain", "seed": 0, "folder": str(tmp_path / "run")}
    worker = subprocess.Popen(
        [sys.executable, "-m", "labelemb.lab.comparison.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert worker.stdin is not None
    assert worker.stdout is not None
    worker.stdin.write(json.dumps(comparison) + "\n" + json.dumps(task) + "\n")
    worker.stdin.flush()
    assert json.loads(worker.stdout.readline())["event"] == "progress"
    worker.stdout.close()
    assert worker.wait() != 0
    worker.stdin.close()
    assert (tmp_path / "run" / CURRENT).exists()


def test_a_worker_reports_a_method_it_does_not_know_and_waits_for_the_next_run(tmp_path: Path) -> None:
    recipe = quick_recipe("train.epochs=1").to_toml()
    comparison = {"recipe": recipe, "data": None, "options": {"threads": 1}}
    tasks = [{"method": name, "seed": 0, "folder": str(tmp_path / name)} for name in ("magic", "plain")]
    done = subprocess.run(
        [sys.executable, "-m", "labelemb.lab.comparison.worker"],
        input="".join(json.dumps(message) + "\n" for message in (comparison, *tasks)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
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
