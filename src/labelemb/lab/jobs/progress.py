"""Progress for people: bars in a terminal, a line for each finished run elsewhere."""

import os
import sys
from typing import Any

from tqdm import tqdm

from labelemb.lab.comparison.pool import Event, Task
from labelemb.lab.runs.messages import Progress


def say(message: str) -> None:
    """A line on standard error that does not break the bars."""
    tqdm.write(message, file=sys.stderr)


def _live() -> bool:
    """Whether somebody watches: a terminal, and of the processes of a run the first."""
    return sys.stderr.isatty() and os.environ.get("RANK", "0") == "0"


class RunBar:
    """The bar of a single run."""

    def __init__(self, title: str) -> None:
        self.bar: Any = tqdm(desc=title, unit="step", disable=not _live(), file=sys.stderr)

    def update(self, progress: Progress) -> None:
        self.bar.total = progress.total_steps
        if self.bar.n == 0:
            self.bar.initial = progress.step  # a resumed run: what was done before tells nothing of the speed
        self.bar.n = progress.step
        self.bar.set_postfix_str(state_of(**vars(progress)), refresh=False)
        self.bar.refresh()

    def close(self) -> None:
        self.bar.close()


class Board:
    """The state of a comparison: one bar over all runs, and a line for each run that is under way."""

    def __init__(self, tasks: int, finished: int, jobs: int) -> None:
        self.live = _live()
        self.tasks, self.finished, self.ended = tasks, finished, 0
        self.shares = [0.0] * jobs
        self.waiting: set[Task] = set()
        everything = "{l_bar}{bar}| {n:.1f}/{total} runs [{elapsed}<{remaining}]"
        self.overall: Any = tqdm(
            total=tasks + finished,
            initial=finished,
            desc="compare",
            bar_format=everything,
            smoothing=0,
            file=sys.stderr,
            disable=not self.live,
        )
        self.lines: list[Any] = [
            tqdm(total=0, position=slot + 1, bar_format="  {desc}", leave=False, file=sys.stderr, disable=not self.live)
            for slot in range(jobs)
        ]

    def show(self, event: Event) -> None:
        values, task = event.values, event.task
        if event.kind == "started":
            self._line(event.slot, f"{task.title}: starting")
        elif event.kind == "progress":
            self.shares[event.slot] = values["step"] / values["total_steps"]
            self._line(event.slot, f"{task.title}: {state_of(**values)}")
        elif event.kind == "busy":
            self._wait(event.slot, task)
        elif event.kind == "warning":
            say(f"{task.title}: {values['message']}")
        elif event.kind in ("done", "failed"):
            self._end(event, task)
        self.overall.n = self.finished + self.ended + sum(self.shares)
        self.overall.refresh()

    def _end(self, event: Event, task: Task) -> None:
        self.ended += 1
        self.shares[event.slot] = 0.0
        if event.kind == "failed":
            say(event.values.get("trace", "") + f"labelemb: {task.title} failed: {event.values['message']}")
        elif not self.live:
            say(f"[{self.ended}/{self.tasks}] {task.title}: {event.values['scores']}")

    def _wait(self, slot: int, task: Task) -> None:
        self._line(slot, f"{task.title}: another process is training it")
        if task not in self.waiting:
            self.waiting.add(task)
            say(f"labelemb: {task.title}: another process is training it; its result is waited for")

    def _line(self, slot: int, text: str) -> None:
        self.lines[slot].set_description_str(text)

    def close(self) -> None:
        for bar in (*self.lines, self.overall):
            bar.close()


def state_of(
    epoch: int, epochs: int, error: float | None, score: str = "error", unit: str = " %", **position: int
) -> str:
    return f"epoch {min(epoch + 1, epochs)}/{epochs}" + ("" if error is None else f", {score} {error:.2f}{unit}")
