"""`RunOptions`: how to run; and the messages that a run sends to its caller."""

from collections.abc import Callable

import msgspec


class RunOptions(msgspec.Struct, frozen=True):
    """How to run, not what: on one machine only `threads` may change the result."""

    threads: int = 0
    """CPU threads; 0 leaves torch's choice. Another number adds up, and rounds, sums in another order."""
    checkpoint_seconds: float = 30.0
    """Seconds between two checkpoints."""
    trackers: tuple[str, ...] = ()
    """Where evaluations go beside metrics.jsonl: `tensorboard`, `mlflow`, `wandb`."""
    keep_checkpoints: bool = False
    """Whether a finished run keeps its last checkpoint."""
    command: str = ""
    """The command line, kept with the result."""


class Progress(msgspec.Struct, frozen=True):
    """The position of a run, and its latest score."""

    step: int
    total_steps: int
    epoch: int
    epochs: int
    score: float | None
    """The task's main score on the dev set, or on the test set without one; None before the first evaluation."""
    title: str = "dev error"
    """The set and the name of the score."""
    unit: str = " %"

    def __str__(self) -> str:
        score = "" if self.score is None else f", {self.title} {self.score:.2f}{self.unit}"
        return f"epoch {min(self.epoch + 1, self.epochs)}/{self.epochs}{score}"


class LabelMessage(msgspec.Struct, frozen=True):
    """Where a run in a worker process finds the labels that it reuses."""

    path: str
    subset: bool = False
    quiet: bool = False


Report = Callable[[Progress], None]
Warn = Callable[[str], None]


def ignore(message: object) -> None:
    """A `Report` or `Warn` that does nothing."""
