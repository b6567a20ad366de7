"""`Task`: the interface of a task: its scores and records, table columns, evaluation and predictions.

Everything else in the lab asks the task and never which task it is.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, NoReturn

import torch
from torch import Tensor

from labelemb.lab.data import Examples, InputForm, InputPlace
from labelemb.lab.recipes.recipe import Recipe
from labelemb.lab.tasks.beam import TextGenerator
from labelemb.lab.tasks.model import Classifier
from labelemb.lab.tasks.records import Confusion, CurvePoint, Evaluation, RunResult
from labelemb.lab.tasks.worst import WorstExample
from labelemb.support.errors import UserError

Predict = Callable[[Examples], Tensor]
"""Logits (rows, labels) of examples, on the CPU."""
Form = Literal["mean", "spread", "min", "runs", "reached", "reduction", "difference", "p"]
Better = Literal["lower", "higher"]


class NotFinitePredictions(Exception):
    """A model's predictions are not finite, which ends its run."""


@dataclass(frozen=True)
class MainScore:
    """The score that selects the reported evaluation and stands first in tables.

    `evaluated` is its name in the evaluations of a training, `reported` in a result, both after dev_ or test_.
    """

    title: str
    evaluated: str
    reported: str
    higher_is_better: bool
    unit: str = ""

    def at_least_as_good(self, value: float, other: float) -> bool:
        return value >= other if self.higher_is_better else value <= other

    @property
    def dev_field(self) -> str:
        """The field of an evaluation that selects."""
        return f"dev_{self.evaluated}"

    @property
    def curve_field(self) -> str:
        """The field of a curve's points that is drawn."""
        return f"test_{self.evaluated}"

    @property
    def test_field(self) -> str:
        """The field of a result that is reported."""
        return f"test_{self.reported}"

    @property
    def axis(self) -> str:
        """The title of an axis of reported test scores."""
        return f"test {self.title}" + (f" ({self.unit.strip()})" if self.unit else "")

    @property
    def curve_axis(self) -> str:
        """The title of an axis of test scores during a training."""
        return self.axis if self.evaluated == self.reported else f"{self.axis}, greedy"

    def evaluated_title(self, part: str) -> str:
        """The score of an evaluation during a training, on the set `part`, in words."""
        return f"{part} {self.title}" + ("" if self.evaluated == self.reported else " (greedy)")

    def show(self, value: float) -> str:
        return f"{self.title} {value:.2f}{self.unit}"


@dataclass(frozen=True)
class Column:
    """A column of a comparison's table: which number of a method's summary it shows, and in which form."""

    title: str
    field: str = ""
    digits: int = 2
    form: Form = "mean"
    better: Better | None = None
    """Which values are better, so that the best can stand out; None for numbers that are neither."""


@dataclass(frozen=True)
class EvaluatedModel:
    """A model to evaluate or to ask: the network with its inputs and labels, its sets, and a function that predicts."""

    recipe: Recipe
    classifier: Classifier
    inputs: InputForm
    label_names: list[str]
    predict: Predict
    origin: str
    """What errors call it: the folder of its run."""
    dev: Examples | None = None
    test: Examples | None = None

    @property
    def device(self) -> torch.device:
        return next(self.classifier.parameters()).device

    def sets(self) -> dict[str, Examples]:
        """The sets that there are, dev and test."""
        return {name: part for name, part in (("dev", self.dev), ("test", self.test)) if part is not None}


@dataclass(frozen=True)
class Prediction:
    """The most likely labels of one input, the best first, with their probabilities at the head's temperature."""

    place: InputPlace
    labels: list[str]
    probabilities: list[float]

    @property
    def name(self) -> str:
        """The place in one line."""
        return str(self.place)

    def fields(self) -> dict[str, Any]:
        """The prediction as JSON has it."""
        ranked = [
            {"label": label, "probability": probability}
            for label, probability in zip(self.labels, self.probabilities, strict=True)
        ]
        place = {"file": self.place.file, "line": self.place.line, "text": self.place.text}
        return {**place, **ranked[0], "alternatives": ranked[1:]}


@dataclass(frozen=True)
class FinalScores:
    """The scores of a finished run as fields of its result, and the files to keep beside it, by name."""

    fields: dict[str, Any]
    files: dict[str, Any] = field(default_factory=dict)


class Task(ABC):
    """A kind of problem that models are trained for."""

    name: ClassVar[str]
    evaluation_type: ClassVar[type[Evaluation]]
    curve_type: ClassVar[type[CurvePoint]] = CurvePoint
    result_type: ClassVar[type[RunResult]]
    evaluate_columns: ClassVar[Mapping[str, str]]
    """Columns of `labelemb evaluate`: title and field of the scores."""
    raw_columns: ClassVar[Mapping[str, str] | None] = None
    """Those of `labelemb evaluate --raw`; None where a task has nothing to show there."""

    command: ClassVar[str] = "predict FILE"
    """How `labelemb` asks a model of this task; the run's folder goes after the verb."""
    limit: ClassVar[str] = ""
    """What a model of this task cannot know, in a sentence with {labels}; empty for nothing."""

    main: MainScore
    summarised: Sequence[str]
    """Fields of a result whose mean and spread over seeds a summary has."""
    goal_field: str
    """The field of a curve's points in which `epochs to plain` is counted."""

    @abstractmethod
    def evaluate(self, model: EvaluatedModel, name: str) -> dict[str, float]:
        """Scores on the set `name`, dev or test, during a training: fields of the evaluation.

        Raises `NotFinitePredictions` if the training has diverged.
        """

    @abstractmethod
    def finish(self, model: EvaluatedModel, reported: Evaluation) -> FinalScores:
        """Scores at the end of a training, of the model at the `reported` evaluation; sets the head's temperature."""

    @abstractmethod
    def score(self, model: EvaluatedModel, examples: Examples, temperature: float | None) -> Any:
        """All scores on one set, as a dataclass: what `labelemb evaluate` shows."""

    @abstractmethod
    def tables(self) -> Sequence[Sequence[Column]]:
        """The columns of a comparison's tables, after the method: first what was reached, then how."""

    @abstractmethod
    def legend(self, about: Mapping[str, Any]) -> str:
        """What the columns mean. `about` are the facts of a summary."""

    @abstractmethod
    def goal(self, baseline: Sequence[RunResult]) -> float | None:
        """What the baseline reaches on average, in terms of `goal_field`; None if that is not known."""

    @abstractmethod
    def describe(self, result: RunResult) -> str:
        """A run's result in a line: the reported test score, and the dev score that selected it."""

    def facts(self, result: RunResult) -> dict[str, Any]:
        """Facts about the task for the summary: its name, main score and settings, where they are not the default."""
        return {}

    def hub_name(self, preprocessing: Mapping[str, Any]) -> str:
        """What model hubs call the task, for inputs of this form."""
        return self.name

    def evaluate_note(self, scores: Any) -> str:
        """A line below the table of `labelemb evaluate`; empty for none."""
        return ""

    def curve_point(self, record: Evaluation) -> CurvePoint:
        """The point of a curve for the evaluation at the end of an epoch."""
        names = self.curve_type.__struct_fields__
        values = {name: getattr(record, name) for name in names if name != "epoch"}
        return self.curve_type(epoch=round(record.epoch), **values)

    def predict(self, model: EvaluatedModel, files: Sequence[Path], k: int) -> Iterator[Prediction]:
        """The k most likely labels of every input in the files."""
        self._refuse(model)

    def errors(self, model: EvaluatedModel, count: int) -> tuple[list[WorstExample], Confusion]:
        """The most confident errors on the test set, and its confusions."""
        raise UserError(f"{model.origin} learned {self.name}, which has no list of wrong labels: leave out --worst")

    def generator(self, model: EvaluatedModel) -> TextGenerator:
        """What generates texts with the model."""
        self._refuse(model)

    @abstractmethod
    def check_export(self, model: EvaluatedModel) -> None:
        """Refuse a model that does not fit into one file."""

    @abstractmethod
    def _refuse(self, model: EvaluatedModel) -> NoReturn:
        """Raise the error for a model that is asked for an answer it does not give."""


def with_prefix(scores: Any, prefix: str, unprefixed: Sequence[str] = ()) -> dict[str, Any]:
    """The fields of a dataclass of scores as fields of an evaluation or a result: `error` becomes `test_error`."""
    return {name if name in unprefixed else prefix + name: value for name, value in vars(scores).items()}
