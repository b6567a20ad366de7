"""Evaluations at MLflow and Weights & Biases: all of them, once for each run, also after a resume.

Stand-ins take the place of both packages; where MLflow is installed, a slow test uses its file store.
"""

from __future__ import annotations

import sys
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

    def get_experiment_by_name(self, name: str) -> SimpleNamespace | None:
        return SimpleNamespace(experiment_id=self.experiments[name]) if name in self.experiments else None

    def create_experiment(self, name: str) -> str:
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


@pytest.mark.slow
def test_the_file_store_of_mlflow_has_every_evaluation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow: Any = pytest.importorskip("mlflow", exc_type=ImportError, reason="needs the extra [mlflow]")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "store").as_uri())
    quick_run(tmp_path / "run", options=RunOptions(trackers=("mlflow",)))
    client = mlflow.MlflowClient()
    begun = (tmp_path / "run" / "mlflow-run.txt").read_text().strip()
    assert client.get_run(begun).data.params["train.lr"] == "0.01"
    history = client.get_metric_history(begun, "dev_error")
    expected = [(record["step"], record["dev_error"]) for record in read_records(tmp_path / "run")]
    assert [(entry.step, entry.value) for entry in history] == expected
