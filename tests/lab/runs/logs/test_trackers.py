"""Evaluations at MLflow and Weights & Biases: all of them, once for each run, also after a resume.

Stand-ins take the place of both packages; where these are installed, slow tests use MLflow's stores and wandb offline.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from labelemb.lab.runs.messages import RunOptions
from labelemb.support.errors import UserError
from labelemb.support.interrupts import Interrupted
from tests.helpers.command import Capture, error_line
from tests.helpers.quick_runs import StopAt, quick_recipe, quick_run, read_records

STEPS = [10, 20, 30]


class MlflowException(Exception):
    """What MLflow raises."""


class Store:
    """MLflow's client and its store, as far as the tracker uses them."""

    def __init__(self) -> None:
        self.experiments: dict[str, str] = {}
        self.runs: dict[str, SimpleNamespace] = {}
        self.full = False
        self.in_between = ""
        """An experiment that another process makes after it was looked for."""

    def get_experiment_by_name(self, name: str) -> SimpleNamespace | None:
        return SimpleNamespace(experiment_id=self.experiments[name]) if name in self.experiments else None

    def create_experiment(self, name: str) -> str:
        if name == self.in_between:
            self.experiments[name] = "of another process"
            raise MlflowException(f"there is an experiment {name} already")
        self.experiments[name] = str(len(self.experiments))
        return self.experiments[name]

    def create_run(self, experiment: str, tags: dict[str, str]) -> SimpleNamespace:
        number = f"run{len(self.runs)}"
        self.runs[number] = SimpleNamespace(
            experiment=experiment, title=tags["mlflow.runName"], params={}, metrics=[], ended=False
        )
        return SimpleNamespace(info=SimpleNamespace(run_id=number))

    def get_run(self, number: str) -> SimpleNamespace:
        if number not in self.runs:
            raise MlflowException(f"there is no run {number}")
        return self.runs[number]

    def log_batch(self, number: str, metrics: Any = (), params: Any = ()) -> None:
        if self.full and metrics:
            raise MlflowException("the server is away\nand more of it")
        self.runs[number].metrics += metrics
        self.runs[number].params |= dict(params)

    def set_terminated(self, number: str) -> None:
        self.runs[number].ended = True


@pytest.fixture
def mlflow(monkeypatch: pytest.MonkeyPatch) -> Store:
    store, module = Store(), ModuleType("mlflow")
    entities = SimpleNamespace(Metric=lambda *values: values, Param=lambda *values: values)
    module.__dict__.update(
        MlflowClient=lambda: store, entities=entities, exceptions=SimpleNamespace(MlflowException=MlflowException)
    )
    monkeypatch.setitem(sys.modules, "mlflow", module)
    return store


def test_mlflow_gets_settings_and_every_evaluation_of_a_run(tmp_path: Path, mlflow: Store) -> None:
    quick_run(tmp_path, options=RunOptions(trackers=("mlflow",)))
    (run,) = mlflow.runs.values()
    assert (run.title, run.ended, list(mlflow.experiments)) == ("label-embedding seed 0", True, ["digits"])
    assert run.params["train.lr"] == "0.01"
    assert (run.params["method"], run.params["seed"]) == ("label-embedding", "0")
    errors = [(value, step) for name, value, _, step in run.metrics if name == "dev_error"]
    assert errors == [(record["dev_error"], record["step"]) for record in read_records(tmp_path)]
    assert {"loss", "terms/hard", "terms/embedding"} <= {name for name, *_ in run.metrics}


def test_a_resumed_run_goes_on_in_its_run_of_mlflow(tmp_path: Path, mlflow: Store) -> None:
    options, stop = RunOptions(trackers=("mlflow",), checkpoint_seconds=0.0), StopAt(20)
    with pytest.raises(Interrupted):
        quick_run(tmp_path, options=options, report=stop.hear, stop=stop)
    quick_run(tmp_path, options=options)
    (run,) = mlflow.runs.values()
    assert [step for name, _, _, step in run.metrics if name == "dev_error"] == STEPS


def test_runs_that_begin_at_once_share_their_experiment(tmp_path: Path, mlflow: Store) -> None:
    mlflow.in_between = "digits"
    quick_run(tmp_path, quick_recipe("train.epochs=1"), options=RunOptions(trackers=("mlflow",)))
    assert [run.experiment for run in mlflow.runs.values()] == [mlflow.experiments["digits"]]


def test_a_run_that_mlflow_has_lost_is_begun_anew(tmp_path: Path, mlflow: Store) -> None:
    (tmp_path / "mlflow-run.txt").write_text("deleted\n")
    quick_run(tmp_path, quick_recipe("train.epochs=1"), options=RunOptions(trackers=("mlflow",)))
    assert list(mlflow.runs) == ["run0"]
    assert (tmp_path / "mlflow-run.txt").read_text() == "run0\n"


def test_a_tracker_that_cannot_write_is_one_line(tmp_path: Path, mlflow: Store) -> None:
    mlflow.full = True
    with pytest.raises(UserError, match=r"^--log mlflow cannot write \(the server is away\): run the command again"):
        quick_run(tmp_path, options=RunOptions(trackers=("mlflow",)))


def test_wandb_gets_settings_and_every_evaluation_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, logged, ended = [], [], []
    run = SimpleNamespace(
        log=lambda values, step: logged.append((step, values["dev_error"])), finish=lambda: ended.append(True)
    )
    module = ModuleType("wandb")
    module.__dict__["init"] = lambda **options: begun.append(options) or run
    monkeypatch.setitem(sys.modules, "wandb", module)
    options, stop = RunOptions(trackers=("wandb",), checkpoint_seconds=0.0), StopAt(20)
    with pytest.raises(Interrupted):
        quick_run(tmp_path, options=options, report=stop.hear, stop=stop)
    quick_run(tmp_path, options=options)
    assert logged == [(record["step"], record["dev_error"]) for record in read_records(tmp_path)]
    assert (ended, len(begun)) == ([True], 2)
    assert begun[0] == begun[1], "a resumed run goes on under its name"
    assert (begun[0]["project"], begun[0]["name"]) == ("digits", "label-embedding seed 0")
    assert begun[0]["config"]["train.epochs"] == 3


@pytest.mark.parametrize("tracker", ["mlflow", "wandb"])
def test_a_missing_tracker_is_said_before_any_run(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tracker: str
) -> None:
    monkeypatch.setitem(sys.modules, tracker, None)
    message = error_line(capsys, "compare", "digits", "--out", str(tmp_path), "--log", tracker)
    assert message == f"labelemb: --log {tracker} needs the package {tracker}: pip install 'labelemb[{tracker}]'"
    assert not (tmp_path / "plain").exists()


# with the packages themselves, where they are installed


def stopped_and_resumed(out: Path, tracker: str) -> list[tuple[int, float]]:
    """A run that is interrupted and goes on, with a tracker; its evaluations."""
    options, stop = RunOptions(trackers=(tracker,), checkpoint_seconds=0.0), StopAt(20)
    with pytest.raises(Interrupted):
        quick_run(out, options=options, report=stop.hear, stop=stop)
    quick_run(out, options=options)
    return [(record["step"], record["dev_error"]) for record in read_records(out)]


@pytest.mark.slow
@pytest.mark.parametrize("store", ["file", "sqlite"])
def test_the_stores_of_mlflow_have_every_evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: str
) -> None:
    real: Any = pytest.importorskip("mlflow", exc_type=ImportError, reason="needs the extra [mlflow]")
    address = f"{store}://{'/' if store == 'sqlite' else ''}{tmp_path / 'store'}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    evaluations = stopped_and_resumed(tmp_path / "run", "mlflow")
    client = real.MlflowClient(address)
    begun = client.get_run((tmp_path / "run" / "mlflow-run.txt").read_text().strip())
    assert (begun.data.params["train.lr"], begun.info.status) == ("0.01", "FINISHED")
    assert begun.data.tags["mlflow.runName"] == "label-embedding seed 0"
    history = client.get_metric_history(begun.info.run_id, "dev_error")
    assert [(entry.step, entry.value) for entry in history] == evaluations
    assert len(client.search_runs([begun.info.experiment_id])) == 1


@pytest.mark.slow
def test_wandb_writes_every_evaluation_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", exc_type=ImportError, reason="needs the extra [wandb]")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    evaluations = stopped_and_resumed(tmp_path, "wandb")
    files = sorted(tmp_path.glob("wandb/offline-run-*/*.wandb"))
    assert {file.name for file in files} == {f"run-{(tmp_path / 'wandb-run.txt').read_text().strip()}.wandb"}
    assert [found for file in files for found in logged_offline(file)] == evaluations


def logged_offline(file: Path) -> Iterator[tuple[int, float]]:
    """Steps and dev errors in wandb's file: after 7 bytes, records with a checksum, a length and a type before them."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, start = file.read_bytes(), 7
    assert len(data) < 2**15, "longer files are cut into blocks"
    while start + 7 <= len(data):
        _, length, _ = struct.unpack_from("<IHB", data, start)
        record = Record.FromString(data[start + 7 : start + 7 + length])
        start += 7 + length
        values = {item.key or item.nested_key[0]: item.value_json for item in record.history.item}
        if "dev_error" in values:
            yield int(record.history.step.num), float(values["dev_error"])
