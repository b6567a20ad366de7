"""Sends evaluations to TensorBoard, MLflow or Weights & Biases (`--log`).

Each tracker is an `EvaluationLog`. A resumed run goes on with its record at the tracker; the record's name is kept in
the run's folder. Evaluations that are repeated after a kill are sent again, with the same step and the same values.
"""

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labelemb.lab.recipes.recipe import Recipe
from labelemb.lab.runs.folder import RunFolder, flat_settings
from labelemb.lab.runs.logs.metrics import EvaluationLog, EventFiles, require_tensorboard, scalars
from labelemb.lab.tasks.records import Evaluation
from labelemb.support.errors import UserError
from labelemb.support.files import write_text
from labelemb.support.optional import import_optional


@dataclass(frozen=True)
class TrackedRun:
    """What a tracker is told about a run."""

    folder: RunFolder
    recipe: Recipe
    method: str
    seed: int
    step: int
    """The update from which the run goes on; 0 at its start."""

    @property
    def title(self) -> str:
        return f"{self.method} seed {self.seed}"

    def settings(self) -> dict[str, Any]:
        """Method, seed and all keys of the recipe."""
        return {"method": self.method, "seed": self.seed} | flat_settings(self.recipe.to_dict())


class MlflowRun:
    """A run of MLflow, in the experiment that has the recipe's name, where `MLFLOW_TRACKING_URI` says."""

    def __init__(self, run: TrackedRun) -> None:
        self._mlflow = require_mlflow()
        with _sending("mlflow"):
            self._client = self._mlflow.MlflowClient()
            self._id = self._known(run.folder.path / "mlflow-run.txt") or self._create(run)

    def add(self, record: Evaluation) -> None:
        metric, now = self._mlflow.entities.Metric, int(1000 * time.time())
        values = [metric(name, value, now, record.step) for name, value in scalars(record).items()]
        with _sending("mlflow"):
            self._client.log_batch(self._id, metrics=values)

    def close(self) -> None:
        with _sending("mlflow"):
            self._client.set_terminated(self._id)

    def _known(self, file: Path) -> str:
        """The run that an earlier process of the same training began; empty if there is none."""
        if not file.exists():
            return ""
        begun = file.read_text(encoding="utf-8").strip()
        with suppress(self._mlflow.exceptions.MlflowException):  # it was deleted, or is on another server
            self._client.get_run(begun)
            return begun
        return ""

    def _create(self, run: TrackedRun) -> str:
        experiment = self._experiment(run.recipe.name)
        created: str = self._client.create_run(experiment, tags={"mlflow.runName": run.title}).info.run_id
        parameter = self._mlflow.entities.Param
        settings = [parameter(key, str(value)) for key, value in run.settings().items()]
        self._client.log_batch(created, params=settings)
        write_text(run.folder.path / "mlflow-run.txt", created + "\n")
        return created

    def _experiment(self, name: str) -> str:
        found = self._client.get_experiment_by_name(name)
        if found is None:
            with suppress(self._mlflow.exceptions.MlflowException):  # another run of the comparison was quicker
                return self._client.create_experiment(name)
            found = self._client.get_experiment_by_name(name)
        return found.experiment_id


class WandbRun:
    """A run of Weights & Biases, in the project that has the recipe's name; `WANDB_MODE=offline` needs no account."""

    def __init__(self, run: TrackedRun) -> None:
        file = run.folder.path / "wandb-run.txt"
        if not file.exists():
            write_text(file, secrets.token_hex(8) + "\n")
        with _sending("wandb"):
            self._run = require_wandb().init(
                project=run.recipe.name,
                name=run.title,
                id=file.read_text(encoding="utf-8").strip(),
                resume="allow",
                dir=str(run.folder.path),
                config=run.settings(),
                reinit="finish_previous",
            )

    def add(self, record: Evaluation) -> None:
        with _sending("wandb"):
            self._run.log(scalars(record), step=record.step)

    def close(self) -> None:
        with _sending("wandb"):
            self._run.finish()


def require_mlflow() -> Any:
    return import_optional("mlflow", "--log mlflow", "mlflow")


def require_wandb() -> Any:
    return import_optional("wandb", "--log wandb", "wandb")


REQUIRED: dict[str, Callable[[], Any]] = {
    "tensorboard": require_tensorboard,
    "mlflow": require_mlflow,
    "wandb": require_wandb,
}
"""Trackers by name, with the check that their package is there."""


def require_trackers(names: tuple[str, ...]) -> None:
    """A `UserError` where a package of these trackers is not installed."""
    for name in names:
        REQUIRED[name]()


def make_tracker(name: str, run: TrackedRun) -> EvaluationLog:
    """A tracker by name."""
    if name == "tensorboard":
        return EventFiles(run.folder.path / "tensorboard", after=run.step)
    return MlflowRun(run) if name == "mlflow" else WandbRun(run)


@contextmanager
def _sending(tracker: str) -> Iterator[None]:
    """Turns what a tracker raises (its server is away, its disk full) into one line."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # each has classes of its own
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        advice = "run the command again to go on from the last checkpoint, or leave --log out"
        raise UserError(f"--log {tracker} cannot write ({reason}): {advice}") from error
