"""`audit`: trains k folds in parallel processes, resumable, then finds suspicious examples and labels."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from labelemb import LabelSpace, __version__
from labelemb import audit as audit_arrays
from labelemb.findings import Audit
from labelemb.lab.comparison.plan import Comparison, Plan, check_labels
from labelemb.lab.comparison.ray import Cluster
from labelemb.lab.comparison.run_order import PlannedRun
from labelemb.lab.data import PARTS, AuditedData, Fold, Part, load_data, read_audited
from labelemb.lab.jobs.compare import Failure, check_feasible, train_missing
from labelemb.lab.methods.method import Method, parse_method
from labelemb.lab.recipes.recipe import Recipe
from labelemb.lab.report.audit_files import AuditRecord, write_audit
from labelemb.lab.runs.folder import RunFolder, keep_recipe
from labelemb.lab.runs.held_out import FoldPredictions, join_folds, read_predictions
from labelemb.lab.runs.labels import load_space
from labelemb.lab.runs.messages import RunOptions
from labelemb.lab.runs.start import start_digest
from labelemb.lab.tasks.records import RunIdentity
from labelemb.support.errors import UserError
from labelemb.support.folders import MadeFolder

METHOD = "label-embedding"


@dataclass(frozen=True)
class AuditOutcome:
    """What came of an audit: the findings, None while folds are missing, and the folds that failed."""

    audit: Audit | None
    failures: list[Failure]


def audit(
    recipe: Recipe,
    *,
    out: Path | str,
    data: Path | str | None = None,
    method: str | Method = METHOD,
    folds: int = 3,
    parts: Sequence[Part] = ("train",),
    seed: int = 0,
    jobs: int | None = None,
    options: RunOptions = RunOptions(threads=1),  # noqa: B008  frozen
    cluster: Cluster | None = None,
) -> AuditOutcome:
    """Find labels that overlap and examples that carry the wrong label, by models that never saw the examples.

    Trains the recipe once for each fold, in parallel processes, and writes audit.csv, audit.json and audit.html.
    Finished folds in the folder are kept, unfinished ones go on from their checkpoints.

    Args:
        recipe: data, body and training; made by `load_recipe`.
        out: the folder of the audit.
        data: the data; None looks in the usual places.
        method: the method to train with, as `label-embedding@tau=1`; methods that learn a label space show how alike
            two labels are.
        folds: how many models are trained, each on all folds but one. 1 trains a single model on everything and ranks
            by the loss averaged over the epochs: cheaper, and it finds less.
        parts: parts of the data whose examples are judged; duplicates are found in all parts.
        seed: of the folds and of the trainings.
        jobs: how many folds at once; None is one for each processor core, or all that the cluster has room for.
        options: how to run.
        cluster: a Ray cluster whose machines share the folder; None trains in processes of this machine.
    """
    if folds < 1:
        raise UserError(f"{folds} folds: at least 1 (2 or more, so that no example is predicted by its own model)")
    parsed = parse_method(method) if isinstance(method, str) else method
    if parsed.reuses_labels:
        raise UserError(f"the method {parsed.name} needs labels learned before: audit with {METHOD} or plain")
    if folds == 1:  # the examples to choose an evaluation by would have to be held out
        recipe = msgspec.structs.replace(recipe, train=msgspec.structs.replace(recipe.train, dev=False))
    path, out = None if data is None else Path(data), Path(out)
    read = read_audited(recipe, path, folds, parts)
    ordered = tuple(part for part in PARTS if part in parts)
    runs = [
        PlannedRun(parsed.name, seed, out / parsed.name / f"fold-{number + 1}-of-{folds}", fold=fold)
        for number in range(folds)
        for fold in [Fold(number, folds, ordered, seed)]
    ]
    comparison = Comparison(recipe, [parsed], [seed], path, out, jobs, options, cluster=cluster)
    failures = _train_folds(comparison, runs, read)
    if failures:
        return AuditOutcome(None, failures)
    size = len(read.targets), len(read.label_names)
    found = judge(read, [read_predictions(run.folder, *size) for run in runs], _space(runs[0].folder))
    record = AuditRecord(
        recipe=recipe.name,
        method=parsed.name,
        folds=folds,
        seed=seed,
        parts=ordered,
        version=__version__,
        data_digest=read.digest,
        command=options.command,
        columns=read.columns,
    )
    write_audit(out, found, read, record)
    return AuditOutcome(found, [])


def judge(read: AuditedData, folds: Sequence[FoldPredictions], space: LabelSpace | None) -> Audit:
    """The findings from the predictions of all folds, in memory of rows x top-k numbers."""
    joined = join_folds(folds, read.targets)
    found = audit_arrays(
        (joined.labels, joined.values),
        read.targets,
        read.label_names,
        space=space,
        inputs=read.inputs,
        losses=joined.losses,
        splits=list(read.parts),
        top_k=joined.labels.shape[1],
        in_sample=len(folds) == 1,
    )
    if read.files is None:
        return found
    # an image is named by its file, which a person can open
    return dataclasses.replace(found, examples=found.examples.with_inputs(read.files))


def _train_folds(comparison: Comparison, runs: Sequence[PlannedRun], read: AuditedData) -> list[Failure]:
    """Train the folds that are missing; those that failed."""
    check_labels(comparison)
    if RunFolder(comparison.out).has_begun:
        raise UserError(f"{comparison.out} holds a single run: choose another --out for the audit")
    made = MadeFolder.make(comparison.out)
    try:
        return _train_in_folder(comparison, runs, read)
    finally:
        made.undo(worthless=("recipe.toml",))  # nothing but the recipe came into it: no fold has begun


def _train_in_folder(comparison: Comparison, runs: Sequence[PlannedRun], read: AuditedData) -> list[Failure]:
    for run in runs:
        _check_fold(comparison.recipe, run, read.digest)
        if RunFolder(run.folder).result_file.exists():
            RunFolder(run.folder).tidy()  # a kill may have come between its result and that
    missing = [run for run in runs if not RunFolder(run.folder).result_file.exists()]
    if not missing:
        return []
    fold = missing[0].fold
    check_feasible(comparison, load_data(comparison.recipe, comparison.data, comparison.seeds[0], fold))
    keep_recipe(comparison.out / "recipe.toml", comparison.recipe)
    return train_missing(comparison, Plan(missing, len(runs) - len(missing)), title="audit")


def _check_fold(recipe: Recipe, run: PlannedRun, data_digest: str) -> None:
    """Refuse the folder of a fold with another recipe, version or data."""
    assert run.fold is not None
    identity = RunIdentity(
        recipe=recipe.name,
        fingerprint=recipe.fingerprint(),
        method=run.method,
        seed=run.seed,
        version=__version__,
        start=start_digest(recipe),
        fold=run.fold.identity,
        data_digest=data_digest,
    )
    RunFolder(run.folder).check(identity, recipe)


def _space(folder: Path) -> LabelSpace | None:
    """What the first fold learned about its labels; None with a method that learns nothing about them."""
    file = RunFolder(folder).labels_file
    return load_space(file) if file.exists() else None
