"""`TrialQueue`: gives the trials of a study to worker processes, and stops the worse half early."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from labelemb.lab.comparison.protocol import Busy, Done, Event, Failed, Paused
from labelemb.lab.comparison.run_order import PlannedRun
from labelemb.lab.runs.checkpoint import drop_checkpoints
from labelemb.lab.runs.folder import RunFolder, run_folder
from labelemb.lab.search.study import Study, Trial
from labelemb.lab.tasks.task import Task
from labelemb.support.errors import FileError

MOST_DEATHS = 3
"""How often a trial may lose its worker process before it counts as failed: its settings may be what kills it."""
WAIT_SECONDS = 1.0
"""Between two looks at what other processes do."""


class TrialQueue:
    """The trials of a study as runs for a pool: each trains its method with the search's one seed."""

    def __init__(self, study: Study, task: Task, folder: Path, limit: int | None) -> None:
        self.study, self.task, self.folder, self.limit = study, task, folder, limit
        self.ended: Callable[[Trial], None] = lambda trial: None
        """Called with every trial that has ended."""
        self.longest = 0.0
        """Seconds of the longest whole training so far."""
        self._numbers: dict[Path, int] = {}
        self._paused: list[PlannedRun] = []
        self._begun: dict[int, float] = {}
        self._seconds: dict[int, float] = {}
        self._deaths: dict[int, int] = {}
        self._cleared = False
        self._changed = threading.Condition()

    def take(self) -> PlannedRun | None:
        with self._changed:
            while not self._cleared:
                run = self._paused.pop(0) if self._paused else self._next()
                if run is not None:
                    self._begun[self._numbers[run.folder]] = time.monotonic()
                    return run
                if not self.study.others_running():
                    return None
                self._changed.wait(WAIT_SECONDS)  # for trials of a process that may die
            return None

    def obstacle(self, run: PlannedRun) -> str:
        return ""

    def end(self, run: PlannedRun, last: Event) -> None:
        with self._changed:
            number = self._numbers[run.folder]
            spent = time.monotonic() - self._begun.pop(number)
            self._seconds[number] = self._seconds.get(number, 0.0) + spent
            if isinstance(last, Done):
                self._finish(run, number)
            elif isinstance(last, Paused):
                self._compare(run, number)
            elif isinstance(last, Busy):
                self._paused.append(run)
            elif isinstance(last, Failed):
                self._fail(run, number, last)
            self._changed.notify_all()

    def clear(self) -> None:
        with self._changed:
            self._cleared = True
            self._changed.notify_all()

    def _next(self) -> PlannedRun | None:
        trial = self.study.take(self.limit)
        if trial is None:
            return None
        path = run_folder(self.folder, trial.method, self.study.seed)
        self._numbers[path] = trial.number
        # one that was put back may have died before it was compared with the others: it pauses there once more
        pause = trial.epochs or self.study.halving.next_rung(0)
        return PlannedRun(trial.method, self.study.seed, path, pause_epoch=pause)

    def _finish(self, run: PlannedRun, number: int) -> None:
        scores = best_scores(RunFolder(run.folder), self.task)
        self.study.report(number, scores)
        self.longest = max(self.longest, self._seconds[number])
        self._end(number, lambda: self.study.end(number, "complete", scores[max(scores)]))

    def _compare(self, run: PlannedRun, number: int) -> None:
        scores = best_scores(RunFolder(run.folder), self.task)
        self.study.report(number, {epoch: score for epoch, score in scores.items() if epoch <= run.pause_epoch})
        # also asked of those that every search trains to their end: what they reached is what others must reach
        if self.study.is_hopeless(number) and number >= len(self.study.space.starts):
            self._end(number, lambda: self.study.end(number, "pruned"))
            drop_checkpoints(run.folder)
        else:
            self._paused.append(replace(run, pause_epoch=self.study.halving.next_rung(run.pause_epoch)))

    def _fail(self, run: PlannedRun, number: int, failed: Failed) -> None:
        if failed.disk:  # no fault of the trial: it stays unfinished, and the next search goes on with it
            raise FileError(failed.message)
        self._deaths[number] = self._deaths.get(number, 0) + failed.died
        if failed.died and self._deaths[number] < MOST_DEATHS:
            self._paused.append(run)
        else:
            self._end(number, lambda: self.study.end(number, "failed", message=failed.message))

    def _end(self, number: int, tell: Callable[[], None]) -> None:
        tell()
        self.ended(next(trial for trial in self.study.trials() if trial.number == number))


def best_scores(run: RunFolder, task: Task) -> dict[int, float]:
    """For each epoch that a run has finished its best dev score until then."""
    best: float | None = None
    found: dict[int, float] = {}
    for record in run.records(task.evaluation_type):
        score = getattr(record, task.main.dev_field)
        if best is None or task.main.at_least_as_good(score, best):
            best = score
        if record.epoch == int(record.epoch):
            found[int(record.epoch)] = best
    return found
