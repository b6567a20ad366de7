"""Reads the results of a folder, and summarises them: mean and spread over seeds, paired tests against plain."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import torch

from labelemb.lab.runs.folder import RunFolder, find_runs
from labelemb.lab.tasks import task_of_facts, task_of_result
from labelemb.lab.tasks.records import CurvePoint, RunResult, to_json
from labelemb.lab.tasks.task import MainScore, Task
from labelemb.support.errors import UserError

BASELINE = "plain"
LEARNS = "label-embedding"
REUSES = "reused-labels"
FEWEST_SEEDS = 3
"""With fewer no difference is called clear."""


class Spread(msgspec.Struct, frozen=True):
    """Mean, sample standard deviation, count and minimum of values over seeds; a missing value is in none of them."""

    mean: float | None
    std: float | None
    n: int
    min: float | None
    values: list[float | None]


class PairedDifference(msgspec.Struct, frozen=True):
    """Mean difference of paired values with its 95 % confidence interval and two-sided p-value.

    Interval and p-value are None where all differences are equal: their spread is not known then, but not zero.
    """

    mean: float
    low: float | None
    high: float | None
    p: float | None
    n: int

    @property
    def is_clear(self) -> bool:
        """Whether the interval, of at least three seeds, leaves out 0."""
        return self.n >= FEWEST_SEEDS and self.low is not None and self.high is not None and self.low * self.high > 0


@dataclass(frozen=True)
class MethodSummary:
    """The runs of one method."""

    seeds: list[int]
    scores: dict[str, Spread]
    """By name, as `test_error`; also `epochs_to_plain` and `fluctuation`."""
    against: dict[str, PairedDifference | None]
    """Paired tests of the main score against every other method, over the seeds in common."""
    error_reduction: float | None = None
    """By how many percent of plain's mean error it is lower; None without plain."""
    has_baseline: bool = False

    @property
    def against_plain(self) -> PairedDifference | None:
        return self.against.get(BASELINE)

    def to_json(self) -> dict[str, Any]:
        against = {other: None if test is None else to_json(test) for other, test in self.against.items()}
        values: dict[str, Any] = {"seeds": self.seeds}
        values |= {name: to_json(score) for name, score in self.scores.items()}
        if self.has_baseline:
            values |= {"error_reduction": self.error_reduction, "against_plain": against[BASELINE]}
        return values | {"against": against}


@dataclass(frozen=True)
class Summary:
    """summary.json: all methods of a comparison, and what was compared."""

    about: dict[str, Any]
    """Recipe, fingerprint, version, and the facts of the task."""
    methods: dict[str, MethodSummary]
    notes: list[str]

    @property
    def task(self) -> Task:
        return task_of_facts(self.about)

    def to_json(self) -> dict[str, Any]:
        methods = {method: summary.to_json() for method, summary in self.methods.items()}
        return {**self.about, "methods": methods, "notes": self.notes}


@dataclass(frozen=True)
class FolderResults:
    """The runs of a comparison's folder, or the one run in its own folder, and the results of those finished."""

    folder: Path
    runs: list[RunFolder]
    """Those that have begun."""
    finished: dict[str, dict[RunFolder, RunResult]]
    """By method, the baseline first and then the best mean main score first; of a method by seed."""

    @property
    def results(self) -> dict[str, list[RunResult]]:
        return {method: list(runs.values()) for method, runs in self.finished.items()}

    @cached_property
    def summary(self) -> Summary | None:
        """None without a finished run."""
        return summarise(self.results) if self.finished else None


def read_results(folder: Path) -> FolderResults:
    """Read the results of all finished runs in a folder."""
    alone = RunFolder(folder)
    runs = [alone] if alone.has_begun else [run for run in find_runs(folder) if run.has_begun]
    pairs = [(run, result) for run in runs if (result := run.result()) is not None]
    if len(bins := {len(result.reliability) for _, result in pairs if result.reliability}) > 1:
        raise UserError(f"{folder}: the reliability of its runs has {min(bins)} to {max(bins)} bins: one is damaged")
    pairs.sort(key=lambda pair: (pair[1].method, pair[1].seed))
    finished: dict[str, dict[RunFolder, RunResult]] = {}
    for run, result in pairs:
        finished.setdefault(result.method, {})[run] = result
    return FolderResults(folder, runs, _in_order(finished))


def _in_order(finished: dict[str, dict[RunFolder, RunResult]]) -> dict[str, dict[RunFolder, RunResult]]:
    """The order of methods in all tables, charts and cards: the baseline, then the others, the best first."""

    def place(method: str) -> tuple[bool, float]:
        results = list(finished[method].values())
        main = task_of_result(results[0]).main
        mean = statistics.fmean(getattr(result, main.test_field) for result in results)
        return method != BASELINE, -mean if main.higher_is_better else mean

    return {method: finished[method] for method in sorted(finished, key=place)}


def labels_first(methods: Sequence[str]) -> list[str]:
    """Methods by name, those that learn labels before all others."""
    return sorted(methods, key=lambda method: (not method.startswith(LEARNS), method))


def summarise(results: dict[str, list[RunResult]]) -> Summary:
    """The summary of results by method."""
    example = next(run for runs in results.values() for run in runs)
    task = task_of_result(example)
    about = {"recipe": example.recipe, "fingerprint": example.fingerprint, "version": example.version}
    methods = {method: _summarise_method(task, method, results) for method in results}
    return Summary({**about, **task.facts(example)}, methods, _notes(task.main, results))


def _summarise_method(task: Task, method: str, results: dict[str, list[RunResult]]) -> MethodSummary:
    runs, baseline = results[method], results.get(BASELINE, [])
    goal = task.goal(baseline)
    scores = {name: spread([getattr(run, name) for run in runs]) for name in task.summarised}
    scores["epochs_to_plain"] = spread([epochs_to(run.curve, goal, task.goal_field, task.main) for run in runs])
    scores["fluctuation"] = spread([fluctuation(run.curve) for run in runs])
    score = task.main.test_field
    against = {other: compare_runs(runs, theirs, score) for other, theirs in results.items() if other != method}
    has_baseline = bool(baseline) and method != BASELINE
    reduction = error_reduction(runs, baseline) if has_baseline else None
    return MethodSummary([run.seed for run in runs], scores, against, reduction, has_baseline)


def error_reduction(runs: Sequence[RunResult], baseline: Sequence[RunResult]) -> float | None:
    """By how many percent of the baseline's mean error a method's is lower, over the seeds in common."""
    common = {run.seed for run in runs} & {run.seed for run in baseline}
    after, before = (
        statistics.fmean([run.test_error for run in side if run.seed in common] or [0.0]) for side in (runs, baseline)
    )
    return 100 * (before - after) / before if before else None


def spread(values: Sequence[float | None]) -> Spread:
    """The spread of values, some of which may be missing."""
    known = [value for value in values if value is not None]
    if not known:
        return Spread(None, None, 0, None, list(values))
    std = statistics.stdev(known) if len(known) > 1 else 0.0
    return Spread(statistics.fmean(known), std, len(known), min(known), list(values))


def epochs_to(curve: Sequence[CurvePoint], goal: float | None, field: str, main: MainScore) -> float | None:
    """The first epoch whose score is at least as good as the goal, None if there is none."""
    if goal is None:
        return None
    return next((point.epoch for point in curve if main.at_least_as_good(getattr(point, field), goal)), None)


def fluctuation(curve: Sequence[CurvePoint]) -> float | None:
    """Standard deviation of the test error from epoch to epoch over the last third of the training."""
    last = [point.test_error for point in curve[-max(2, math.ceil(len(curve) / 3)) :]]
    return statistics.stdev(last) if len(last) > 1 else None


def compare_runs(runs: Sequence[RunResult], others: Sequence[RunResult], score: str) -> PairedDifference | None:
    """Paired test of a score over the seeds that both have, None with fewer than two."""
    theirs = {run.seed: getattr(run, score) for run in others}
    pairs = [(getattr(run, score), theirs[run.seed]) for run in runs if run.seed in theirs]
    return paired_difference(*zip(*pairs, strict=True)) if len(pairs) >= 2 else None


def paired_difference(values: Sequence[float], reference: Sequence[float]) -> PairedDifference | None:
    """Paired t-test of `values` minus `reference`; None with fewer than two pairs."""
    from scipy import stats  # slow to import, and only summaries need it

    differences = torch.tensor(values, dtype=torch.float64) - torch.tensor(reference, dtype=torch.float64)
    n = len(differences)
    if n < 2:
        return None
    mean = float(differences.mean())
    standard_error = float(differences.std()) / math.sqrt(n)
    if standard_error <= 1e-12 * abs(mean):  # rounding may leave a trace of spread where there is none
        return PairedDifference(mean, None, None, None, n)
    half = float(stats.t.ppf(0.975, n - 1)) * standard_error
    p = 2 * float(stats.t.sf(abs(mean) / standard_error, n - 1))
    return PairedDifference(mean, mean - half, mean + half, p, n)


def _notes(main: MainScore, results: dict[str, list[RunResult]]) -> list[str]:
    """The notes of the runs, and where label embedding is not ahead of a peer, in sentences."""
    ours = [method for method in results if method.startswith(LEARNS)]
    peers = [method for method in results if method not in ours and not method.startswith(REUSES)]
    notes = sorted({f"{method}: {run.note}." for method, runs in results.items() for run in runs if run.note})
    for method in ours:
        for peer in peers:
            seeds = {run.seed for run in results[method]} & {run.seed for run in results[peer]}
            if not seeds:
                continue
            mine, theirs = (
                statistics.fmean(getattr(run, main.test_field) for run in results[name] if run.seed in seeds)
                for name in (method, peer)
            )
            if main.at_least_as_good(theirs, mine):
                common = f"{len(seeds)} common seed{'s' if len(seeds) > 1 else ''}"
                notes.append(f"{method} ({mine:.2f}) does not beat {peer} ({theirs:.2f}) over {common}.")
    return notes
