"""`Comparison`: the runs of a comparison, which are missing, and whose labels a run reuses."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from labelemb.lab.comparison.ray import Cluster
from labelemb.lab.comparison.run_order import PlannedRun
from labelemb.lab.methods.method import LEARNS, Method
from labelemb.lab.recipes.recipe import Recipe
from labelemb.lab.runs.folder import RunFolder, run_folder
from labelemb.lab.runs.labels import LabelSource
from labelemb.lab.runs.messages import RunOptions
from labelemb.support.errors import UserError

FEW = 3
"""Runs that an error names one by one."""


@dataclass(frozen=True)
class Comparison:
    """What to compare, and the folder of its runs."""

    recipe: Recipe
    methods: Sequence[Method]
    seeds: Sequence[int]
    data: Path | None
    out: Path
    jobs: int | None
    """How many runs at once; None for one on each processor core, or for all that the cluster has room for."""
    options: RunOptions
    labels: LabelSource | None = None
    """Labels for all runs that reuse some; without it, each seed reuses what label embedding's same seed learned."""
    cluster: Cluster | None = None
    """Where the runs are trained; None is this machine."""
    deadline: float = math.inf
    """The time of `time.monotonic` at which runs are stopped, with a checkpoint."""


@dataclass(frozen=True)
class Plan:
    """The runs that a comparison still has to train."""

    missing: list[PlannedRun]
    """Runs to train, seed by seed so that an unfinished comparison is fair already."""
    finished: int


def make_plan(comparison: Comparison) -> Plan:
    """The runs that are missing. A run whose labels are not available is a `UserError`."""
    check_labels(comparison)
    runs = [_planned_run(comparison, method, seed) for seed in comparison.seeds for method in comparison.methods]
    missing = [run for run in runs if not RunFolder(run.folder).result_file.exists()]
    _check_sources(missing)
    return Plan(missing, len(runs) - len(missing))


def check_labels(comparison: Comparison) -> None:
    """Refuse labels that no method reuses, and methods without labels to reuse."""
    reusing = [method.name for method in comparison.methods if method.reuses_labels]
    if comparison.labels is not None and not reusing:
        raise UserError("--labels is for the method reused-labels, which is not compared: add it to --methods")
    if comparison.labels is None and reusing:
        source_method(comparison)


def source_method(comparison: Comparison) -> str:
    """The method whose labels are reused seed by seed: plain label embedding, or the only form of it compared."""
    learning = [method.name for method in comparison.methods if method.kind == LEARNS]
    finished_before = any(_source(comparison, LEARNS, seed).result_file.exists() for seed in comparison.seeds)
    if LEARNS in learning or (not learning and finished_before):
        return LEARNS
    if len(learning) == 1:
        return learning[0]
    found = f", for it could mean those of {' or '.join(learning)}" if learning else ""
    raise UserError(
        f"reused-labels does not know whose labels{found}: add {LEARNS} to --methods, or pass --labels FILE"
    )


def labels_of(comparison: Comparison, method: Method, seed: int) -> LabelSource | None:
    """The labels that a run reuses; the file may not exist yet."""
    if not method.reuses_labels:
        return None
    if comparison.labels is not None:
        return replace(comparison.labels, quiet=True)  # the comparison warns once for all runs
    return LabelSource(_source(comparison, source_method(comparison), seed).labels_file, quiet=True)


def expected_digest(comparison: Comparison, method_name: str, seed: int) -> str | None:
    """The digest of the labels that a run in the folder must have been trained with; None if that is not known."""
    method = next((method for method in comparison.methods if method.name == method_name), None)
    labels = None if method is None else labels_of(comparison, method, seed)
    if labels is None or (comparison.labels is None and not labels.path.exists()):
        return None
    return labels.digest


def _planned_run(comparison: Comparison, method: Method, seed: int) -> PlannedRun:
    labels = labels_of(comparison, method, seed)
    after = None if labels is None or comparison.labels is not None else labels.path.parent
    return PlannedRun(method.name, seed, run_folder(comparison.out, method.name, seed), labels, after)


def _source(comparison: Comparison, method: str, seed: int) -> RunFolder:
    return RunFolder(run_folder(comparison.out, method, seed))


def _check_sources(missing: Sequence[PlannedRun]) -> None:
    """Every run whose labels are reused is finished and has kept them, or will be trained."""
    trained = {run.folder for run in missing}
    sources = {run.after for run in missing if run.after is not None} - trained
    lacking = sorted(folder for folder in sources if not RunFolder(folder).labels_file.exists())
    if not lacking:
        return
    if lost := [folder for folder in lacking if RunFolder(folder).result_file.exists()]:
        advice = "delete it to train it again" if len(lost) == 1 else "delete them to train them again"
        raise UserError(
            f"reused-labels needs the labels that were learned in {_name_few(lost)}, but labels.safetensors was not "
            f"kept there: bring it back, {advice} (with {lost[0].parent.name} in --methods), or pass --labels FILE"
        )
    raise UserError(
        f"reused-labels needs the labels of {_name_few(lacking)}, which no run has learned: add "
        f"{lacking[0].parent.name} to --methods, or pass --labels FILE"
    )


def _name_few(folders: Sequence[Path]) -> str:
    return ", ".join(map(str, folders[:FEW])) + (f" and {len(folders) - FEW} more" if len(folders) > FEW else "")
