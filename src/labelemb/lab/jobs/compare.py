"""`compare`: trains methods x seeds in parallel processes, resumable, then summarises all finished runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from labelemb import LabelSpace, __version__
from labelemb.lab.bodies import make_body
from labelemb.lab.comparison.curves import plot_curves, plot_heatmap
from labelemb.lab.comparison.make import make_pool
from labelemb.lab.comparison.plan import Comparison, Plan, check_labels, expected_digest, make_plan
from labelemb.lab.comparison.protocol import Failed, WorkerSetup
from labelemb.lab.comparison.ray import Cluster
from labelemb.lab.comparison.run_order import RunEvent, RunOrder
from labelemb.lab.comparison.seeds import check_seeds
from labelemb.lab.comparison.summary import FolderResults, Summary, labels_first, read_results
from labelemb.lab.comparison.tables import render
from labelemb.lab.data import Dataset, load_data, load_data_if_any
from labelemb.lab.jobs.progress import ComparisonProgress, print_line
from labelemb.lab.jobs.workers import watch
from labelemb.lab.methods.method import Method, parse_method
from labelemb.lab.recipes.recipe import Recipe
from labelemb.lab.report import write_page
from labelemb.lab.runs.engine import check_device
from labelemb.lab.runs.folder import RunFolder, find_runs, keep_recipe
from labelemb.lab.runs.labels import LabelSource, load_space
from labelemb.lab.runs.logs.trackers import require_trackers
from labelemb.lab.runs.messages import RunOptions
from labelemb.lab.runs.start import start_digest
from labelemb.lab.tasks.model import out_features
from labelemb.lab.tasks.records import RunIdentity
from labelemb.support.errors import UserError
from labelemb.support.files import write_json, write_text
from labelemb.support.folders import MadeFolder

METHODS = ("plain", "label-embedding")


@dataclass(frozen=True)
class Failure:
    """A run of a comparison that failed."""

    run: str
    message: str
    user_error: bool


@dataclass(frozen=True)
class Outcome:
    """What came of a comparison: the summary of everything finished in its folder, and the runs that failed."""

    summary: Summary | None
    failures: list[Failure]


def compare(
    recipe: Recipe,
    methods: Sequence[str | Method] = METHODS,
    seeds: int | Sequence[int] = 5,
    *,
    out: Path | str,
    data: Path | str | None = None,
    jobs: int | None = None,
    labels: LabelSource | None = None,
    options: RunOptions = RunOptions(threads=1),  # noqa: B008  frozen
    cluster: Cluster | None = None,
) -> Outcome:
    """Train methods with several seeds each, in parallel processes, and write summary, tables, pictures and report.

    Finished runs in the folder are kept, unfinished ones go on from their checkpoints.

    Args:
        recipe: data, body and training; made by `load_recipe`.
        methods: names, with options as `label-embedding@tau=1`.
        seeds: how many, for seeds 0 to `seeds` - 1; or which ones, as `[3, 7]`.
        out: the folder of the comparison.
        data: the data; None looks in the usual places.
        jobs: how many runs at once; None is one for each processor core, or all that the cluster has room for.
        labels: for methods that reuse labels; without it each seed reuses what label embedding's same seed learned.
        options: how to run.
        cluster: a Ray cluster whose machines share the folder; None trains in processes of this machine.
    """
    parsed = [parse_method(method) if isinstance(method, str) else method for method in methods]
    path = None if data is None else Path(data)
    return run_comparison(
        Comparison(recipe, parsed, check_seeds(seeds), path, Path(out), jobs, options, labels, cluster)
    )


def run_comparison(comparison: Comparison) -> Outcome:
    """Train what is missing, then summarise."""
    check_labels(comparison)
    made = MadeFolder.make(comparison.out)
    try:
        return _run_in_folder(comparison)
    finally:
        made.undo(worthless=("recipe.toml",))  # nothing but the recipe came into it: no run has begun


def _run_in_folder(comparison: Comparison) -> Outcome:
    check_folder(comparison)
    plan = make_plan(comparison)
    read = load_data if plan.missing else load_data_if_any
    data = read(comparison.recipe, comparison.data, comparison.seeds[0])
    check_folder(comparison, data)
    failures = []
    if data is not None and plan.missing:
        check_feasible(comparison, data)
        keep_recipe(comparison.out / "recipe.toml", comparison.recipe)
        failures = train_missing(comparison, plan)
    return Outcome(write_summary(comparison.out), failures)


def check_folder(comparison: Comparison, data: Dataset | None = None) -> None:
    """Refuse a folder with runs of another recipe, version, labels or data: their numbers cannot stand in one table."""
    recipe = comparison.recipe
    if RunFolder(comparison.out).has_begun:
        raise UserError(
            f"{comparison.out} holds a single run, which a comparison would overwrite: choose another --out"
        )
    start = start_digest(recipe)
    for run in find_runs(comparison.out):
        method, seed = run.path.parent.name, int(run.path.name.removeprefix("seed-"))
        digest = expected_digest(comparison, method, seed)
        identity = RunIdentity(
            recipe=recipe.name,
            fingerprint=recipe.fingerprint(),
            method=method,
            seed=seed,
            version=__version__,
            labels=digest,
            start=start,
            data_digest=None if data is None else data.digest,
        )
        run.check(identity, recipe)
        if run.result_file.exists():
            run.tidy()


def check_feasible(comparison: Comparison, data: Dataset) -> None:
    """Check the device and make every head once, so that an error is reported once, before any training."""
    if comparison.cluster is None:
        check_device(comparison.recipe.train)
    elif comparison.recipe.train.device == "cuda" and not comparison.cluster.gpus_per_run:
        raise UserError("train.device is cuda, but a run reserves no GPU of the cluster: pass --gpus-per-run 1")
    require_trackers(comparison.options.trackers)
    features = out_features(make_body(comparison.recipe.body, data.inputs, len(data.label_names)))
    space = _space_to_reuse(comparison, data.label_names)
    rows = data.train.rows
    for method in comparison.methods:
        method.make_head(comparison.recipe, features, len(data.label_names), rows_per_epoch=rows, space=space)


def _space_to_reuse(comparison: Comparison, names: list[str]) -> LabelSpace:
    """The labels of --labels; a stand-in, each label like itself alone, for those that the runs will learn."""
    if comparison.labels is not None:
        return comparison.labels.matched(names, warn=lambda message: print_line(f"labelemb: {message}")).space
    return LabelSpace.from_top_k([[index] for index in range(len(names))], [[1.0]] * len(names), names)


def train_missing(comparison: Comparison, plan: Plan, title: str = "compare") -> list[Failure]:
    """Train the missing runs; those that failed. `title` stands before the bar."""
    data = None if comparison.data is None else str(comparison.data)
    setup = WorkerSetup(comparison.recipe.to_toml(), data, comparison.options)
    order, most = RunOrder(plan.missing), len(plan.missing)
    pool = make_pool(order, comparison.jobs, setup, comparison.cluster, most)
    progress = ComparisonProgress(most, plan.finished, pool.slots, title)
    failures = []

    def show(event: RunEvent) -> None:
        progress.show(event)
        if isinstance(event.event, Failed):
            failures.append(Failure(event.run.title, event.event.message, event.event.user_error))

    try:
        watch(pool, show, lambda: comparison.deadline)
    finally:
        progress.close()
    return failures


def write_summary(out: Path) -> Summary | None:
    """Write summary.json, table.md, pictures and report.html from all finished runs of a folder; None without any."""
    found = read_results(out)
    if found.summary is None:
        return None
    write_tables(found, out)
    _write_heatmap(found, out)
    write_page(found, out / "report.html")
    return found.summary


def write_tables(found: FolderResults, out: Path) -> None:
    """Write summary.json, table.md and curves.png."""
    assert found.summary is not None
    write_json(out / "summary.json", found.summary.to_json())
    write_text(out / "table.md", render(found.summary) + "\n")
    plot_curves(found.results, out / "curves.png")


def _write_heatmap(found: FolderResults, out: Path) -> None:
    """Draw the label space of the first run that has one, label embedding's before others."""
    for method in labels_first(list(found.finished)):
        for run, result in found.finished[method].items():
            if run.labels_file.exists():
                space = load_space(run.labels_file)
                plot_heatmap(space, out / "heatmap.png", title=f"{method}, seed {result.seed}")
                return
