"""The data of the page about the runs of a folder."""

import base64
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from labelemb import __version__
from labelemb.lab.comparison.summary import FolderResults, read_results
from labelemb.lab.comparison.tables import legend, tables
from labelemb.lab.recipes.recipe import Recipe
from labelemb.lab.recipes.settings import ImageFolderData, ParallelTextData, TextTableData
from labelemb.lab.report.cards import headline
from labelemb.lab.report.errors import gather_worst
from labelemb.lab.report.labels import gather_spaces
from labelemb.lab.runs.example_pictures import FILE, read_examples
from labelemb.lab.runs.folder import RunFolder
from labelemb.lab.tasks import make_task, task_of_result
from labelemb.lab.tasks.records import (
    Confusion,
    CurvePoint,
    Evaluation,
    ReliabilityBin,
    RunResult,
    read_record,
    to_json,
)
from labelemb.lab.tasks.task import MainScore, Task
from labelemb.support.errors import UserError

ABOUT = ("command", "epochs", "examples", "parameters", "machine", "versions")


def read_folder(folder: Path) -> FolderResults:
    """The run in the folder itself, or the runs of a comparison below it; none where a comparison has just begun."""
    if not folder.is_dir():
        raise UserError(f"there is no folder {folder}")
    found = read_results(folder)
    if not found.runs and not RunFolder(folder).recipe_file.exists():
        raise UserError(
            f"{folder} holds no run and no comparison (no run.json or result.json in it or in METHOD/seed-N)"
        )
    return found


def gather(found: FolderResults) -> dict[str, Any]:
    """The page's data for the folder of a run or of a comparison."""
    notes: list[str] = []
    example = next((result for results in found.results.values() for result in results), None)
    about = {} if example is None else to_json(example)
    task = _planned_task(found.runs) if example is None else task_of_result(example)
    main, summary = task.main, found.summary
    return {
        "version": __version__,
        "recipe": _recipe_name(found),
        **page_title(found),
        "about": {key: about[key] for key in ABOUT if key in about},
        "score": _score(main),
        "summary": None if summary is None else summary.to_json(),
        "headline": [] if summary is None else headline(summary),
        "tables": [] if summary is None else [table._asdict() for table in tables(summary)],
        "legend": [] if summary is None else _points(legend(summary)),
        "methods": [_method(method, runs, main, notes) for method, runs in found.finished.items()],
        "unfinished": [_unfinished(run, task) for run in found.runs if not run.result_file.exists()],
        "spaces": gather_spaces({method: list(runs) for method, runs in found.finished.items()}, notes),
        "worst": gather_worst({method: list(runs) for method, runs in found.finished.items()}, notes),
        "pictures": _pictures(found.runs, notes),
        "notes": notes,
    }


def page_title(found: FolderResults) -> dict[str, str]:
    """The name of the data (the file or folder of a user, or what a recipe reads) and the folder of the results."""
    parts = found.folder.resolve().parts[-3 if RunFolder(found.folder).has_begun else -2 :]
    return {"data": data_name(found), "folder": "/".join(part for part in parts if part != "/")}


def data_name(found: FolderResults) -> str:
    """The name of a user's data, or else that of the recipe."""
    for run in found.runs:
        try:
            path, settings = run.about().data, run.recipe().data
        except UserError:  # runs of other machines may be kept without these files
            continue
        # the folder of a published data set may have any name
        if path and isinstance(settings, ImageFolderData | TextTableData | ParallelTextData):
            return Path(path).name
        break
    return _recipe_name(found)


def _recipe_name(found: FolderResults) -> str:
    """The name of the recipe."""
    for results in found.results.values():
        return results[0].recipe
    return found.runs[0].about().recipe if found.runs else RunFolder(found.folder).recipe().name


def _planned_task(runs: Sequence[RunFolder]) -> Task:
    """The task of unfinished runs, by their recipe."""
    return make_task(next((run.recipe() for run in runs if run.recipe_file.exists()), Recipe()))


def _score(main: MainScore) -> dict[str, Any]:
    """The main score, for the scripts of the page."""
    return {
        "title": main.title,
        "unit": main.unit,
        "higher": main.higher_is_better,
        "field": main.test_field,
        "axis": main.axis,
        "curve_axis": main.curve_axis,
    }


def _points(text: str) -> list[str]:
    """The points of a Markdown list, and lines before it; a point may go on in indented lines."""
    return [point.removeprefix("- ").replace("\n  ", " ") for point in re.split(r"\n(?! )", text)]


def _method(method: str, runs: dict[RunFolder, RunResult], main: MainScore, notes: list[str]) -> dict[str, Any]:
    return {
        "name": method,
        "runs": [
            {
                "seed": result.seed,
                **_curve(result.curve, main),
                "score": getattr(result, main.test_field),
                "seconds_per_epoch": result.seconds_per_epoch,
            }
            for result in runs.values()
        ],
        "reliability": _pooled([result.reliability for result in runs.values() if result.reliability]),
        "confusion": _confusion(list(runs), notes),
    }


def _curve(points: Sequence[CurvePoint] | Sequence[Evaluation], main: MainScore) -> dict[str, list[float]]:
    values = [(point.epoch, getattr(point, main.curve_field)) for point in points]
    known = [(epoch, score) for epoch, score in values if score is not None]
    return {"epochs": [epoch for epoch, _ in known], "scores": [round(score, 4) for _, score in known]}


def _unfinished(run: RunFolder, task: Task) -> dict[str, Any]:
    """How far a run has come, and its curve until there."""
    identity = run.about()
    try:
        records = run.records(task.evaluation_type) if run.metrics_file.exists() else []
    except UserError:  # its last line may be half written at this moment
        records = []
    return {
        "method": identity.method,
        "seed": identity.seed,
        "epoch": records[-1].epoch if records else 0,
        "of": run.recipe().train.epochs if run.recipe_file.exists() else None,
        **_curve([record for record in records if record.epoch.is_integer()], task.main),
    }


def _pooled(diagrams: Sequence[Sequence[ReliabilityBin]]) -> list[dict[str, float]]:
    """One reliability diagram of the examples of all runs; empty bins are left out."""
    pooled = []
    for bins in zip(*diagrams, strict=True):
        count = sum(bin.count for bin in bins)
        if count:
            confidence = sum(bin.count * bin.confidence for bin in bins) / count
            accuracy = sum(bin.count * bin.accuracy for bin in bins) / count
            pooled.append({"count": count, "confidence": confidence, "accuracy": accuracy})
    return pooled


def _confusion(runs: Sequence[RunFolder], notes: list[str]) -> dict[str, Any] | None:
    """Wrong predictions summed over the runs that kept them: label names, examples, [target, predicted, count]."""
    kept: list[Confusion] = []
    for file in (run.path / "confusion.json" for run in runs):
        try:
            if file.exists():
                kept.append(read_record(file, Confusion))
        except UserError as error:
            notes.append(f"The confusions of a run are left out: {error}")
    kept = [table for table in kept if table.labels == kept[0].labels]
    if not kept:
        return None
    wrong: dict[tuple[int, int], int] = {}
    for table in kept:
        for target, predicted, count in table.wrong:
            wrong[target, predicted] = wrong.get((target, predicted), 0) + count
    return {
        "runs": len(kept),
        "labels": kept[0].labels,
        "examples": [sum(column) for column in zip(*(table.examples for table in kept), strict=True)],
        "wrong": [[*cell, count] for cell, count in wrong.items()],
    }


def _pictures(runs: Sequence[RunFolder], notes: list[str]) -> dict[str, Any] | None:
    """The sheet of example pictures of the first run that kept one."""
    file = next((run.path / FILE for run in runs if (run.path / FILE).exists()), None)
    if file is None:
        return None
    try:
        sheet = read_examples(file)
    except UserError as error:
        notes.append(f"Example pictures are left out: {error}")
        return None
    return {**to_json(sheet.layout), "png": base64.b64encode(sheet.png).decode()}
