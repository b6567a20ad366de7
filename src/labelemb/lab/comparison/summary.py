"""Many runs to one summary: mean and spread over seeds, and each method against plain."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from labelemb.lab.runs.folder import RunFolder
from labelemb.lab.tasks.main_score import ERROR, MainScore, main_score_of
from labelemb.lab.tasks.scores.classification import paired_difference

BASELINE = "plain"
REUSED = "reused-labels"
SCORES = (
    "test_error",
    "dev_error",
    "test_nll",
    "test_ece",
    "test_nll_scaled",
    "test_ece_scaled",
    "final_error",
    "seconds_per_epoch",
)
"""What is taken from a run's result as it is."""
TEXT_SCORES = (
    *("bleu", "bleu_penalised", "bleu_greedy", "length_ratio", "length_ratio_penalised", "length_ratio_greedy"),
    *("bleu_calibrated", "length_ratio_calibrated", "rouge1_calibrated"),
    *("chrf", "rouge1", "rouge2", "rougeL", "rouge1_penalised", "rouge1_greedy", "exact", "exact_greedy"),
    *("perplexity", "perplexity_scaled"),
)
"""The same of a translation, on the test set."""

Result = dict[str, Any]


def find_runs(folder: Path) -> list[RunFolder]:
    """The runs of a comparison, finished or not: METHOD/seed-N below the folder."""
    paths = sorted(path for path in folder.glob("*/seed-*") if path.is_dir())
    return [RunFolder(path) for path in paths if path.name.removeprefix("seed-").isdecimal()]


def finished_results(folder: Path) -> dict[str, list[Result]]:
    """Results by method, each list by seed; the baseline first, then by name."""
    results: dict[str, list[Result]] = {}
    for run in find_runs(folder):
        result = run.result()
        if result is not None:
            results.setdefault(result["method"], []).append(result)
    order = sorted(results, key=lambda method: (method != BASELINE, method))
    return {method: sorted(results[method], key=lambda result: result["seed"]) for method in order}


def summarise(results: dict[str, list[Result]]) -> dict[str, Any]:
    """`{"methods": {method: {"test_error": {mean, std, n, min, values}, ...}}}` and what was compared.

    `against_plain` and `against[other]` of a method are paired tests over the seeds in common.
    """
    baseline = results.get(BASELINE, [])
    methods = {method: _summarise_method(runs, baseline) for method, runs in results.items()}
    for method, runs in results.items():
        score = f"test_{main_score_of(runs[0]).reported}"
        against = {other: compare_runs(runs, theirs, score) for other, theirs in results.items() if other != method}
        methods[method]["against"] = against
    example = next(run for runs in results.values() for run in runs)
    about = {key: example[key] for key in ("recipe", "fingerprint", "version")}
    about |= {key: example[key] for key in ("task", "main_score", "beam", "bleu_signature") if key in example}
    return about | {"methods": methods, "notes": _notes(results)}


def _summarise_method(runs: Sequence[Result], baseline: Sequence[Result]) -> dict[str, Any]:
    main = main_score_of(runs[0])
    text = main is not ERROR
    more = (f"dev_{main.evaluated}", *(f"test_{name}" for name in TEXT_SCORES)) if text else ()
    summary: dict[str, Any] = {"seeds": [run["seed"] for run in runs]}
    for name in (*SCORES, *more):
        summary[name] = spread([run.get(name) for run in runs])
    goal = _goal(baseline, main)
    score = f"dev_{main.evaluated}" if text else "test_error"
    summary["epochs_to_plain"] = spread([epochs_to(run["curve"], goal, score, main) for run in runs])
    summary["fluctuation"] = spread([fluctuation(run["curve"]) for run in runs])
    if baseline and runs is not baseline:
        summary["error_reduction"] = error_reduction(runs, baseline)
        summary["against_plain"] = compare_runs(runs, baseline, f"test_{main.reported}")
    return summary


def error_reduction(runs: Sequence[Result], baseline: Sequence[Result]) -> float | None:
    """By how many percent of plain's mean error a method's is lower, over the seeds in common."""
    common = {run["seed"] for run in runs} & {run["seed"] for run in baseline}
    after, before = (
        statistics.fmean([run["test_error"] for run in side if run["seed"] in common] or [0.0])
        for side in (runs, baseline)
    )
    return 100 * (before - after) / before if before else None


def _goal(baseline: Sequence[Result], main: MainScore) -> float | None:
    """What plain reaches on average: its last test error, or in a translation its best dev score."""
    if not baseline:
        return None
    if main is ERROR:
        return statistics.fmean(run["curve"][-1]["test_error"] for run in baseline)
    best = [run[f"dev_{main.evaluated}"] for run in baseline if f"dev_{main.evaluated}" in run]
    return statistics.fmean(best) if len(best) == len(baseline) else None


def spread(values: Sequence[float | None]) -> dict[str, Any]:
    """Mean, sample standard deviation, count, minimum, and all values; a missing value counts in none of them."""
    known = [value for value in values if value is not None]
    return {
        "mean": statistics.fmean(known) if known else None,
        "std": (statistics.stdev(known) if len(known) > 1 else 0.0) if known else None,
        "n": len(known),
        "min": min(known) if known else None,
        "values": list(values),
    }


def epochs_to(
    curve: Sequence[dict[str, float]], goal: float | None, score: str = "test_error", main: MainScore = ERROR
) -> float | None:
    """The first epoch whose score is at least as good as the goal, None if there is none."""
    if goal is None:
        return None
    return next((point["epoch"] for point in curve if main.at_least_as_good(point[score], goal)), None)


def fluctuation(curve: Sequence[dict[str, float]]) -> float | None:
    """Standard deviation of the test error from epoch to epoch over the last third of the training."""
    last = [point["test_error"] for point in curve[-max(2, math.ceil(len(curve) / 3)) :]]
    return statistics.stdev(last) if len(last) > 1 else None


def compare_runs(runs: Sequence[Result], others: Sequence[Result], score: str = "test_error") -> dict[str, Any] | None:
    """Paired test of the scores over the seeds that both have, None with fewer than two."""
    theirs = {run["seed"]: run[score] for run in others}
    pairs = [(run[score], theirs[run["seed"]]) for run in runs if run["seed"] in theirs]
    if len(pairs) < 2:
        return None
    difference = paired_difference(*zip(*pairs, strict=True))
    return asdict(difference) if difference else None


def _notes(results: dict[str, list[Result]]) -> list[str]:
    """Where label embedding is not ahead of a peer, and what runs say of themselves, in plain words."""
    ours = [method for method in results if method.startswith("label-embedding")]
    peers = [method for method in results if method not in ours and not method.startswith(REUSED)]
    remarks = {f"{method}: {run['note']}." for method, runs in results.items() for run in runs if "note" in run}
    notes = sorted(remarks)
    for method in ours:
        for peer in peers:
            seeds = {run["seed"] for run in results[method]} & {run["seed"] for run in results[peer]}
            if not seeds:
                continue
            main = main_score_of(results[method][0])
            mine, theirs = (
                statistics.fmean(run[f"test_{main.reported}"] for run in results[name] if run["seed"] in seeds)
                for name in (method, peer)
            )
            if main.at_least_as_good(theirs, mine):
                common = f"{len(seeds)} common seed{'s' if len(seeds) > 1 else ''}"
                notes.append(f"{method} ({mine:.2f}) does not beat {peer} ({theirs:.2f}) over {common}.")
    return notes
