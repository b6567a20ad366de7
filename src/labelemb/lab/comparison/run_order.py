"""`RunOrder`: the runs that a pool trains, in their order, and the events that it sends back."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from labelemb.lab.comparison.protocol import Busy, Done, Event, RunRequest
from labelemb.lab.data import Fold
from labelemb.lab.runs.labels import LabelSource


@dataclass(frozen=True)
class PlannedRun:
    """One run of a comparison."""

    method: str
    seed: int
    folder: Path
    labels: LabelSource | None = None
    """Where it finds the labels that it reuses."""
    after: Path | None = None
    """The folder of another planned run that must be finished before this one starts."""
    pause_epoch: int = 0
    """The epoch after which it waits for whoever planned it; 0 for none."""
    fold: Fold | None = None
    """The examples that it holds out, as a fold of an audit."""

    @property
    def title(self) -> str:
        return f"{self.method} {f'seed {self.seed}' if self.fold is None else self.fold.title}"

    def to_request(self) -> RunRequest:
        labels = None if self.labels is None else self.labels.to_message()
        return RunRequest(self.method, self.seed, str(self.folder), labels, self.pause_epoch, self.fold)


@dataclass(frozen=True)
class RunEvent:
    """An event of a run, and the number of the worker that sent it."""

    slot: int
    run: PlannedRun
    event: Event


class RunSource(Protocol):
    """Where the threads of a pool get their runs from, and bring them back to."""

    def take(self) -> PlannedRun | None:
        """The next run; waits if there may be one later. None when there is nothing left."""

    def obstacle(self, run: PlannedRun) -> str:
        """The title of a failed run that this one needed; empty if there is none."""

    def end(self, run: PlannedRun, last: Event) -> None:
        """An attempt at a run that was taken has ended with this event."""

    def clear(self) -> None:
        """Give out no run any more, and wake those that wait for one."""


class RunOrder:
    """A list of runs, given out in their order, but none before the run whose labels it needs."""

    def __init__(self, runs: Sequence[PlannedRun]) -> None:
        self._waiting = list(runs)
        self._open = {run.folder for run in runs}  # waiting or in progress
        self._failed: dict[Path, str] = {}
        self._changed = threading.Condition()

    def take(self) -> PlannedRun | None:
        """The first run that need not wait for another; waits if all must. None when there is nothing left."""
        with self._changed:
            while self._waiting:
                for index, run in enumerate(self._waiting):
                    if run.after not in self._open:
                        return self._waiting.pop(index)
                self._changed.wait()
            return None

    def obstacle(self, run: PlannedRun) -> str:
        """The title of the failed run that this one needed; empty if there is none."""
        return "" if run.after is None else self._failed.get(run.after, "")

    def end(self, run: PlannedRun, last: Event) -> None:
        """A run that was taken has ended, well or not; one that another process is training comes back as the last."""
        with self._changed:
            if isinstance(last, Busy):
                self._waiting.append(run)
            else:
                self._open.discard(run.folder)
                if not isinstance(last, Done):
                    self._failed[run.folder] = run.title
            self._changed.notify_all()

    def clear(self) -> None:
        with self._changed:
            self._waiting.clear()
            self._changed.notify_all()
