"""Which run a worker takes next: in their order, but none before the run whose labels it needs."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from labelemb.lab.runs.labels import LabelSource


@dataclass(frozen=True)
class Task:
    """One run of a comparison."""

    method: str
    seed: int
    folder: Path
    labels: "LabelSource | None" = None
    """Where it finds the labels that it reuses."""
    after: Path | None = None
    """The folder of another task's run that must be done before this one starts."""

    @property
    def title(self) -> str:
        return f"{self.method} seed {self.seed}"

    def to_message(self) -> dict[str, Any]:
        """For a worker process."""
        labels = None if self.labels is None else self.labels.to_message()
        return {"method": self.method, "seed": self.seed, "folder": str(self.folder), "labels": labels}


class TaskOrder:
    """Hands out tasks to threads."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self._waiting = list(tasks)
        self._open = {task.folder for task in tasks}  # not ended: waiting, or under way
        self._failed: dict[Path, str] = {}
        self._changed = threading.Condition()

    def take(self) -> Task | None:
        """The first task that need not wait for another; waits if all must. None when there is nothing left."""
        with self._changed:
            while self._waiting:
                for place, task in enumerate(self._waiting):
                    if task.after not in self._open:
                        return self._waiting.pop(place)
                self._changed.wait()
            return None

    def obstacle(self, task: Task) -> str:
        """The title of the failed task that this one needed; empty if there is none."""
        return "" if task.after is None else self._failed.get(task.after, "")

    def end(self, task: Task, done: bool) -> None:
        """A task that was taken has ended, well or not."""
        with self._changed:
            self._open.discard(task.folder)
            if not done:
                self._failed[task.folder] = task.title
            self._changed.notify_all()

    def postpone(self, task: Task) -> None:
        """A task that was taken cannot be done now: it comes back after all others."""
        with self._changed:
            self._waiting.append(task)
            self._changed.notify_all()

    def clear(self) -> None:
        """Give out nothing more."""
        with self._changed:
            self._waiting.clear()
            self._changed.notify_all()
