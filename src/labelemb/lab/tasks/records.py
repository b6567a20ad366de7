"""Typed records of the JSON files of a run; each task extends `Evaluation` and `RunResult`.

A field of a record is a key of its file. A file is checked once, when it is read: a missing key, a value of another
type, or one that no run writes is a `UserError`. Keys that a record does not have are ignored.
"""

import json
import math
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from labelemb.lab.pretrained.architecture import Architecture
from labelemb.support.errors import UserError
from labelemb.support.files import LARGEST_RECORD, file_error, read_whole

Record = TypeVar("Record")

LARGEST_WHOLE = 2**63 - 1
LARGEST_NUMBER = 1e150
"""The square of a larger one is infinite, which no score is."""

Count = Annotated[int, msgspec.Meta(ge=0)]
AtLeastOne = Annotated[int, msgspec.Meta(ge=1)]


class RunIdentity(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What makes two runs the same run."""

    recipe: str
    fingerprint: str
    method: str
    seed: Count
    version: str
    labels: str | None = None
    """SHA-256 of the file with the labels that the run reuses; None if it reuses none, or if it is not known."""
    start: str | None = None
    """SHA-256 of the model whose body the training starts from (`body.start`); None if it starts from none."""
    fold: str | None = None
    """Which examples a fold of an audit held out; None for a run on all of the training part."""
    data_digest: str | None = None
    """`Dataset.digest` of its data; None if the data is not available, or the run is older than this field."""

    @property
    def title(self) -> str:
        return f"{self.recipe} {self.method} seed {self.seed}"


class Machine(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a run ran on: processor, CPU threads, operating system, and the GPU if there is one."""

    cpu: str
    threads: int
    system: str
    gpu: str | None = None


class RunRecord(RunIdentity, frozen=True, kw_only=True, omit_defaults=True):
    """run.json: the identity of a run that has begun, and how it was started."""

    data: str | None
    """The path of --data."""
    command: str = ""
    machine: Machine | None = None
    threads: AtLeastOne | None = None
    labels_from: str | None = None
    keep_checkpoints: bool = False


class Evaluation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line of metrics.jsonl: the means over the updates since the last evaluation; a task adds its scores.

    Scores are named dev_ or test_ and the name of the score; they are None where the set was not evaluated.
    """

    step: Count
    epoch: float
    lr: float | None = None
    loss: float | None = None
    terms: dict[str, float] = {}
    train_error: float | None = None
    seconds: float = 0.0
    """Training time until this evaluation."""
    test_error: float | None = None


class CurvePoint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The scores of a run at the end of an epoch; a task adds those that its curves show."""

    epoch: Count
    test_error: float


class ReliabilityBin(msgspec.Struct, frozen=True):
    """One bin of a reliability diagram: its number of rows, their mean confidence and their accuracy."""

    count: Count
    confidence: float
    accuracy: float


class ExampleCounts(msgspec.Struct, frozen=True):
    """How many examples the sets of a run have, and how many labels there are."""

    train: Count
    dev: Count
    test: Count
    labels: Count


class ParameterCounts(msgspec.Struct, frozen=True):
    """How many parameters body and head have, and how many of all are needed to predict."""

    body: Count
    head: Count
    predicting: Count


class Seconds(msgspec.Struct, frozen=True):
    """How long a run has trained and evaluated."""

    training: float = 0.0
    evaluation: float = 0.0


class RunResult(RunIdentity, frozen=True, kw_only=True, omit_defaults=True):
    """result.json: what every finished run reports; a task adds its scores."""

    test_error: float
    final_error: float
    """The test error after the last epoch."""
    curve: tuple[CurvePoint, ...]
    """One point for each epoch."""
    epochs: Count
    steps: AtLeastOne
    seconds_per_epoch: float
    examples: ExampleCounts
    best_step: int
    best_epoch: float
    """Where the reported evaluation was: the best on the dev set, or the last."""
    seconds: Seconds
    parameters: ParameterCounts
    method_settings: dict[str, Any]
    command: str
    processes: int
    machine: Machine
    versions: dict[str, str]
    temperature: float | None
    """Fitted on the dev set; None without one."""
    reliability: tuple[ReliabilityBin, ...]
    note: str = ""
    """What a reader of the numbers should know."""
    labels_from: str | None = None
    checksums: dict[str, str] = {}
    """SHA-256 of the model's files by name; runs of earlier versions have none."""


class ModelRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """model.json: the names of the labels and how inputs are encoded."""

    label_names: list[str]
    preprocessing: dict[str, Any]
    label_counts: list[Count] | None = None
    """How often each label is a target in training, where the data knows it."""
    body: Architecture | None = None
    """The form of a body that was trained before."""

    def __post_init__(self) -> None:
        if self.label_counts is not None and len(self.label_counts) != len(self.label_names):
            raise ValueError(f"{len(self.label_counts)} label_counts for {len(self.label_names)} labels")


class Confusion(msgspec.Struct, frozen=True):
    """confusion.json: the wrong cells of the test set's confusion matrix, the most frequent first."""

    labels: list[str]
    examples: list[Count]
    """Test examples of each label."""
    wrong: list[tuple[Count, Count, Count]]
    """Target, predicted label, and how often."""

    def __post_init__(self) -> None:
        if len(self.examples) != len(self.labels):
            raise ValueError(f"{len(self.examples)} numbers of examples for {len(self.labels)} labels")
        for cell in self.wrong:
            if max(cell[:2]) >= len(self.labels):
                raise ValueError(f"label number {max(cell[:2])} of {len(self.labels)} labels")


def to_json(record: object) -> dict[str, Any]:
    """A record, or a dataclass of scores, as plain values for `json.dumps`."""
    values: dict[str, Any] = msgspec.to_builtins(record)
    return values


def from_json(text: str | bytes, kind: type[Record]) -> Record:
    """A record from JSON; text of another form, and a number that is not finite, raise `ValueError`.

    `json` reads names that are not UTF-8, as file names may be; msgspec's own reader refuses them.
    """
    try:
        values = json.loads(text, parse_constant=_number, parse_float=_number, parse_int=_whole)
    except RecursionError as error:
        raise ValueError("lists inside lists without an end") from error
    return msgspec.convert(values, kind)


def _number(text: str) -> float:
    value = float(text)
    if not math.fabs(value) <= LARGEST_NUMBER:
        raise ValueError(f"the number {text[:20]}")
    return value


def _whole(text: str) -> int:
    value = int(text)
    if abs(value) > LARGEST_WHOLE:
        raise ValueError(f"the number {text[:20]}")
    return value


def read_record(file: Path, kind: type[Record]) -> Record:
    """The record in a JSON file; a file of another form is a `UserError` that names it."""
    try:
        return from_json(read_whole(file, LARGEST_RECORD), kind)
    except OSError as error:
        raise file_error("read", file, error) from error
    except ValueError as error:
        raise damaged(file, str(error)) from error


def damaged(file: Path, reason: str) -> UserError:
    """The error for a file of a run that is not as the run wrote it."""
    beside = "" if file.name == "result.json" else " and result.json beside it"
    return UserError(f"{file} is damaged ({reason}): delete it{beside}, and train again to have it made anew")
