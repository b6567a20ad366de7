"""Which runs a comparison consists of, which of them are missing, and whose labels a run reuses."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from labelemb.lab.comparison.order import Task
from labelemb.lab.methods.method import LEARNS, Method
from labelemb.lab.recipes.recipe import Recipe
from labelemb.lab.runs.folder import RunFolder
from labelemb.lab.runs.labels import LabelSource
from labelemb.lab.runs.messages import RunOptions
from labelemb.support.errors import UserError

FEW = 3
"""Runs that an error names one by one."""


@dataclass(frozen=True)
class Comparison:
    """What to compare, and where."""

    recipe: Recipe
    methods: Sequence[Method]
    seeds: Sequence[int]
    data: Path | None
    out: Path
    jobs: int
    options: RunOptions
    labels: LabelSource | None = None
    """For all seeds of the methods that reuse labels; without it, each seed reuses what label embedding's learned."""


@dataclass(frozen=True)
class Plan:
    """What is to be done."""

    missing: list[Task]
    """Runs to train, seed by seed so that an unfinished comparison is fair already."""
    finished: int


def run_folder(out: Path, method: str, seed: int) -> Path:
    return out / method / f"seed-{seed}"


def make_plan(comparison: Comparison) -> Plan:
    """The runs that are missing; one whose labels cannot be had is an error that says what to do."""
    check_labels(comparison)
    tasks = [_task(comparison, method, seed) for seed in comparison.seeds for method in comparison.methods]
    missing = [task for task in tasks if not RunFolder(task.folder).result_file.exists()]
    _check_sources(missing)
    return Plan(missing, len(tasks) - len(missing))


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
    """What a run reuses; it may not be there yet."""
    if not method.reuses_labels:
        return None
    if comparison.labels is not None:
        return replace(comparison.labels, quiet=True)  # the comparison has said it once for all runs
    return LabelSource(_source(comparison, source_method(comparison), seed).labels_file, quiet=True)


def expected_digest(comparison: Comparison, method_name: str, seed: int) -> str | None:
    """The digest of the labels that a run in the folder must have been trained with; None if nobody can know."""
    method = next((method for method in comparison.methods if method.name == method_name), None)
    labels = None if method is None else labels_of(comparison, method, seed)
    if labels is None or (comparison.labels is None and not labels.path.exists()):
        return None
    return labels.digest


def _task(comparison: Comparison, method: Method, seed: int) -> Task:
    labels = labels_of(comparison, method, seed)
    after = None if labels is None or comparison.labels is not None else labels.path.parent
    return Task(method.name, seed, run_folder(comparison.out, method.name, seed), labels, after)


def _source(comparison: Comparison, method: str, seed: int) -> RunFolder:
    return RunFolder(run_folder(comparison.out, method, seed))


def _check_sources(missing: Sequence[Task]) -> None:
    """Every run whose labels are reused is finished and has kept them, or will be trained."""
    trained = {task.folder for task in missing}
    sources = {task.after for task in missing if task.after is not None} - trained
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
