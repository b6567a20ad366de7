"""The main job: methods x seeds in parallel processes, resumable, then the summary of all finished runs."""

import dataclasses
import signal
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from labelemb import LabelSpace, __version__
from labelemb.lab.bodies import make_body
from labelemb.lab.comparison.plan import Comparison, Plan, check_labels, expected_digest, make_plan, run_folder
from labelemb.lab.comparison.pool import WorkerPool
from labelemb.lab.comparison.summary import find_runs, finished_results, summarise
from labelemb.lab.comparison.tables import render
from labelemb.lab.data import Dataset, load_data, load_data_if_any
from labelemb.lab.jobs.progress import Board, say
from labelemb.lab.runs.engine import check_device
from labelemb.lab.runs.folder import RunFolder, RunIdentity, keep_recipe
from labelemb.lab.runs.label_files import load_space
from labelemb.lab.runs.start import start_digest
from labelemb.lab.runs.tensorboard import require_tensorboard
from labelemb.lab.tasks.model import out_features
from labelemb.support.errors import UserError
from labelemb.support.files import make_folder, write_json, write_text
from labelemb.support.interrupts import Interrupted


@dataclass(frozen=True)
class Outcome:
    """What came of a comparison: the summary of everything finished in its folder, and what failed."""

    summary: dict[str, Any] | None
    failures: list[dict[str, Any]]


def compare(comparison: Comparison) -> Outcome:
    """Train what is missing, then summarise. Finished runs are kept, unfinished ones go on from their checkpoints."""
    check_labels(comparison)
    make_folder(comparison.out)
    check_folder(comparison)
    plan = make_plan(comparison)
    read = load_data if plan.missing else load_data_if_any
    data = read(comparison.recipe, comparison.data, comparison.seeds[0])
    check_folder(comparison, data)
    failures = []
    if data is not None and plan.missing:
        check_feasible(comparison, data)
        keep_recipe(comparison.out / "recipe.toml", comparison.recipe)
        failures = _train(comparison, plan)
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
        identity = RunIdentity(recipe.name, recipe.fingerprint(), method, seed, __version__, digest, start)
        run.check(dataclasses.replace(identity, data_digest=data.digest if data else None), recipe)


def check_feasible(comparison: Comparison, data: Dataset) -> None:
    """Look at the device and make every head once, so that what is wrong with them is said at once, and once."""
    check_device(comparison.recipe.train)
    if comparison.options.tensorboard:
        require_tensorboard()
    features = out_features(make_body(comparison.recipe.body, data.inputs, len(data.label_names)))
    space = _space_to_reuse(comparison, data.label_names)
    rows = data.train.rows
    for method in comparison.methods:
        method.make_head(comparison.recipe, features, len(data.label_names), rows_per_epoch=rows, space=space)


def _space_to_reuse(comparison: Comparison, names: list[str]) -> LabelSpace:
    """The labels of --labels; a stand-in, each label like itself alone, for those that the runs will learn."""
    if comparison.labels is not None:
        return comparison.labels.matched(names, warn=lambda message: say(f"labelemb: {message}")).space
    return LabelSpace.from_top_k([[index] for index in range(len(names))], [[1.0]] * len(names), names)


def _train(comparison: Comparison, plan: Plan) -> list[dict[str, Any]]:
    tasks = plan.missing
    jobs = min(comparison.jobs, len(tasks))
    message = {
        "recipe": comparison.recipe.to_toml(),
        "data": str(comparison.data) if comparison.data else None,
        "options": dataclasses.asdict(comparison.options),
    }
    pool = WorkerPool(tasks, jobs, message, comparison.options.threads)
    board = Board(len(tasks), plan.finished, jobs)
    failures = []
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        for event in pool.events():
            board.show(event)
            if event.kind == "failed":
                failures.append({"run": event.task.title, **event.values})
    except (KeyboardInterrupt, Interrupted) as stopped:
        pool.stop()
        raise stopped if isinstance(stopped, Interrupted) else Interrupted(signal.SIGINT) from None
    finally:
        board.close()
        signal.signal(signal.SIGTERM, before)
    return failures


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise Interrupted(number)


def write_summary(out: Path) -> dict[str, Any] | None:
    """summary.json, table.md, pictures and report.html from all finished runs of a folder; None without any."""
    from labelemb.lab.report import write_report  # slow to import, and the workers can start meanwhile

    results = finished_results(out)
    if not results:
        return None
    summary = write_tables(results, out)
    _write_heatmap(out, results)
    write_report(out)
    return summary


def write_tables(results: dict[str, list[dict[str, Any]]], out: Path) -> dict[str, Any]:
    """summary.json, table.md and curves.png."""
    from labelemb.lab.comparison.curves import plot_curves

    summary = summarise(results)
    write_json(out / "summary.json", summary)
    write_text(out / "table.md", render(summary) + "\n")
    plot_curves(results, out / "curves.png")
    return summary


def _write_heatmap(out: Path, results: dict[str, list[dict[str, Any]]]) -> None:
    """The label space of the first method that learned one: label embedding's, if it is there."""
    from labelemb.lab.comparison.curves import plot_heatmap

    methods = sorted(results, key=lambda method: (not method.startswith("label-embedding"), method))
    for method in methods:
        for result in results[method]:
            run = RunFolder(run_folder(out, method, result["seed"]))
            if run.labels_file.exists():
                space = load_space(run.labels_file)
                plot_heatmap(space, out / "heatmap.png", title=f"{method}, seed {result['seed']}")
                return
