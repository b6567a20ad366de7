"""What a run is told by those who start it, and what it tells them."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class RunOptions:
    """How to run, as opposed to what: on one machine none of it but the threads changes the result."""

    threads: int = 0
    """CPU threads; 0 leaves torch's choice. With another number sums are added up, and rounded, in another order."""
    checkpoint_seconds: float = 30.0
    tensorboard: bool = False
    command: str = ""


@dataclass(frozen=True)
class Progress:
    """Where a run is."""

    step: int
    total_steps: int
    epoch: int
    epochs: int
    error: float | None
    """The latest dev error, or test error without a dev set; of a translation, the score that selects."""
    score: str = "error"
    """What `error` is called."""
    unit: str = " %"


Report = Callable[[Progress], None]
Warn = Callable[[str], None]


def ignore(message: object) -> None:
    """For those who do not want to hear."""
