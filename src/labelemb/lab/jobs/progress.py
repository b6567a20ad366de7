"""Progress on standard error: bars in a terminal, otherwise one line for each finished run."""

import os
import sys
from collections.abc import Callable
from typing import Any

from tqdm import tqdm

from labelemb.lab.comparison.protocol import Busy, Done, Failed, Lost, Moved, Paused, Started, Warned
from labelemb.lab.comparison.run_order import PlannedRun, RunEvent
from labelemb.lab.runs.messages import Progress
from labelemb.lab.search.study import Trial
from labelemb.support.wording import escape_lines


def print_line(message: str) -> None:
    """Print a line on standard error without breaking the bars."""
    tqdm.write(escape_lines(message), file=sys.stderr)


def _live() -> bool:
    """Whether to draw bars: in a terminal, and only in the first process of a run."""
    return sys.stderr.isatty() and os.environ.get("RANK", "0") == "0"


class RunBar:
    """The bar of a single run."""

    def __init__(self, title: str) -> None:
        self.bar: Any = tqdm(
            desc=title,
            total=1,
            # the score before the title: a line that is too long for the terminal loses its end
            bar_format="{percentage:3.0f}% [{elapsed}<{remaining}{postfix}] {desc} |{bar}|",
            disable=not _live(),
            file=sys.stderr,
        )

    def update(self, progress: Progress) -> None:
        self.bar.total = progress.total_steps
        if self.bar.n == 0:
            self.bar.initial = progress.step  # a resumed run: earlier steps say nothing about the speed
        self.bar.n = progress.step
        self.bar.set_postfix_str(str(progress), refresh=False)
        self.bar.refresh()

    def close(self) -> None:
        self.bar.close()


class ComparisonProgress:
    """The progress of a comparison: one bar over all runs, and a line for each run in progress."""

    def __init__(self, runs: int, finished: int, jobs: int, title: str = "compare") -> None:
        self.live = _live()
        self.runs, self.finished, self.ended = runs, finished, 0
        self.shares = [0.0] * jobs
        self.waiting: set[PlannedRun] = set()
        self.warnings: set[str] = set()
        self.overall: Any = tqdm(
            total=runs + finished,
            initial=finished,
            desc=title,
            bar_format="{l_bar}{bar}| {n:.1f}/{total} runs [{elapsed}<{remaining}]",
            smoothing=0,
            file=sys.stderr,
            disable=not self.live,
        )
        self.lines: list[Any] = [
            tqdm(total=0, position=slot + 1, bar_format="  {desc}", leave=False, file=sys.stderr, disable=not self.live)
            for slot in range(jobs)
        ]

    def show(self, sent: RunEvent) -> None:
        title, event = sent.run.title, sent.event
        if isinstance(event, Started):
            self._line(sent.slot, f"{title}: starting" + (f" on {event.machine}" if event.machine else ""))
        elif isinstance(event, Moved):
            self.shares[sent.slot] = event.progress.step / event.progress.total_steps
            self._line(sent.slot, f"{title}: {event.progress}")
        elif isinstance(event, Busy):
            self._wait(sent.slot, sent.run)
        elif isinstance(event, Lost):
            self.shares[sent.slot] = 0.0
            self._line(sent.slot, f"{title}: waiting")
            print_line(f"labelemb: {title}: {event.message}")
        elif isinstance(event, Warned):
            self._warn(title, event.message)
        elif isinstance(event, Done):
            self._end(sent.slot)
            if not self.live:
                print_line(f"[{self.ended}/{self.runs}] {title}: {event.scores}")
        elif isinstance(event, Failed):
            self._end(sent.slot)
            print_line(event.trace + f"labelemb: {title} failed: {event.message}")
        self.overall.n = self.finished + self.ended + sum(self.shares)
        self.overall.refresh()

    def _end(self, slot: int) -> None:
        self.ended += 1
        self.shares[slot] = 0.0

    def _wait(self, slot: int, run: PlannedRun) -> None:
        self._line(slot, f"{run.title}: another process is training it")
        if run not in self.waiting:
            self.waiting.add(run)
            print_line(f"labelemb: {run.title}: another process is training it; waiting for its result")

    def _warn(self, title: str, message: str) -> None:
        """Print a warning; what holds for all runs is printed once, with the first of them."""
        if message not in self.warnings:
            self.warnings.add(message)
            print_line(f"{title}: {message}")

    def _line(self, slot: int, text: str) -> None:
        self.lines[slot].set_description_str(text)

    def close(self) -> None:
        for bar in (*self.lines, self.overall):
            bar.close()


class SearchProgress(ComparisonProgress):
    """The progress of a search: a bar over its trials, of which `trials` is the largest number if that is known."""

    def __init__(self, trials: int | None, finished: int, jobs: int, score: Callable[[float], str]) -> None:
        super().__init__(max(0, (trials or 0) - finished), finished, jobs, title="search")
        self.trials, self.score = trials, score
        if trials is None:
            self.overall.total = None
            self.overall.bar_format = "{desc}: {n:.1f} trials [{elapsed}]"

    def show(self, sent: RunEvent) -> None:
        if isinstance(sent.event, Paused | Done):  # whether the trial has ended is for `end` to say
            self.shares[sent.slot] = 0.0
        elif isinstance(sent.event, Failed):
            self.shares[sent.slot] = 0.0
            print_line(sent.event.trace + f"labelemb: {sent.run.title} failed: {sent.event.message}")
        else:
            super().show(sent)

    def end(self, trial: Trial) -> None:
        """A trial has ended."""
        self.ended += 1
        self.overall.n = self.finished + self.ended
        count = f"{self.finished + self.ended}" + (f"/{self.trials}" if self.trials else "")
        score = "" if trial.score is None else f" at dev {self.score(trial.score)}"
        state = {"pruned": f"stopped after epoch {trial.epochs}", "complete": "trained"}.get(trial.state, trial.state)
        if not self.live:
            print_line(f"[{count}] {trial.method}: {state}{score}")
