"""Many runs to one summary: mean and spread over seeds, and each method against plain."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from labelemb.lab.metrics import paired_difference
from labelemb.lab.runfolder import RunFolder

BASELINE = "plain"
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

Result = dict[str, Any]


def find_runs(folder: Path) -> list[RunFolder]:
    """The runs of a comparison, finished or not: METHOD/seed-N below the folder."""
    paths = sorted(path for path in folder.glob("*/seed-*") if path.is_dir())
    return [RunFolder(path) for path in paths if path.name.removeprefix("seed-").isdigit()]


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
    """`{"methods": {method: {"test_error": {mean, std, n, min, values}, ...}}}` and what was compared."""
    baseline = results.get(BASELINE, [])
    goal = statistics.fmean(run["curve"][-1]["test_error"] for run in baseline) if baseline else None
    methods = {method: _summarise_method(runs, baseline, goal) for method, runs in results.items()}
    example = next(run for runs in results.values() for run in runs)
    about = {key: example[key] for key in ("recipe", "fingerprint", "version")}
    return about | {"methods": methods, "notes": _notes(results)}


def _summarise_method(runs: Sequence[Result], baseline: Sequence[Result], goal: float | None) -> dict[str, Any]:
    summary: dict[str, Any] = {"seeds": [run["seed"] for run in runs]}
    for name in SCORES:
        summary[name] = spread([run.get(name) for run in runs])
    summary["epochs_to_plain"] = spread([epochs_to(run["curve"], goal) for run in runs])
    summary["fluctuation"] = spread([fluctuation(run["curve"]) for run in runs])
    if baseline and runs is not baseline:
        before = statistics.fmean(run["test_error"] for run in baseline)
        after = summary["test_error"]["mean"]
        summary["error_reduction"] = 100 * (before - after) / before if before else None
        summary["against_plain"] = compare_runs(runs, baseline)
    return summary


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


def epochs_to(curve: Sequence[dict[str, float]], goal: float | None) -> float | None:
    """The first epoch whose test error is down at the goal, None if there is none."""
    if goal is None:
        return None
    return next((point["epoch"] for point in curve if point["test_error"] <= goal), None)


def fluctuation(curve: Sequence[dict[str, float]]) -> float | None:
    """Standard deviation of the test error from epoch to epoch over the last third of the training."""
    last = [point["test_error"] for point in curve[-max(2, math.ceil(len(curve) / 3)) :]]
    return statistics.stdev(last) if len(last) > 1 else None


def compare_runs(runs: Sequence[Result], others: Sequence[Result]) -> dict[str, Any] | None:
    """Paired test of the test errors over the seeds that both have, None with fewer than two."""
    theirs = {run["seed"]: run["test_error"] for run in others}
    pairs = [(run["test_error"], theirs[run["seed"]]) for run in runs if run["seed"] in theirs]
    if len(pairs) < 2:
        return None
    difference = paired_difference(*zip(*pairs, strict=True))
    return asdict(difference) if difference else None


def _notes(results: dict[str, list[Result]]) -> list[str]:
    """Where label embedding is not ahead of a peer, in plain words."""
    ours = [method for method in results if method.startswith("label-embedding")]
    peers = [method for method in results if method not in ours]
    notes = []
    for method in ours:
        for peer in peers:
            seeds = {run["seed"] for run in results[method]} & {run["seed"] for run in results[peer]}
            if not seeds:
                continue
            mine, theirs = (
                statistics.fmean(run["test_error"] for run in results[name] if run["seed"] in seeds)
                for name in (method, peer)
            )
            if mine >= theirs:
                common = f"{len(seeds)} common seed{'s' if len(seeds) > 1 else ''}"
                notes.append(f"{method} ({mine:.2f}) does not beat {peer} ({theirs:.2f}) over {common}.")
    return notes
