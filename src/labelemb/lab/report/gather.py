"""What the page shows about the runs of a folder, as plain data."""

import base64
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from labelemb import __version__
from labelemb.lab.comparison.summary import BASELINE, find_runs, summarise
from labelemb.lab.comparison.tables import legend, tables
from labelemb.lab.report.cards import headline
from labelemb.lab.report.labels import gather_spaces
from labelemb.lab.runs.example_pictures import FILE, read_examples
from labelemb.lab.runs.folder import RunFolder
from labelemb.lab.tasks.main_score import ERROR, MainScore, main_score, main_score_of
from labelemb.support.errors import UserError
from labelemb.support.files import read_object

Result = dict[str, Any]
ABOUT = ("command", "epochs", "examples", "parameters", "machine", "versions")


def gather(folder: Path) -> dict[str, Any]:
    """The page's data for the folder of a run or of a comparison."""
    runs = _runs(folder)
    finished = _finished(runs)
    results = {method: list(found.values()) for method, found in finished.items()}
    notes: list[str] = []
    example = next((result for found in results.values() for result in found), None)
    about = example or _begun(folder, runs)
    main = main_score_of(example) if example else _planned_score(runs)
    summary = summarise(results) if results else None
    return {
        "version": __version__,
        "recipe": about["recipe"],
        "about": {key: about[key] for key in ABOUT if key in about},
        "score": _score(main),
        "summary": summary,
        "headline": headline(summary, main) if summary else [],
        "tables": [table._asdict() for table in tables(summary)] if summary else [],
        "legend": _points(legend(summary)) if summary else [],
        "methods": [_method(method, found, main, notes) for method, found in finished.items()],
        "unfinished": [_unfinished(run, main) for run in runs if not run.result_file.exists()],
        "spaces": gather_spaces({method: list(found) for method, found in finished.items()}, notes),
        "pictures": _pictures(runs, notes),
        "notes": notes,
    }


def _runs(folder: Path) -> list[RunFolder]:
    """The run in the folder itself, or the runs of a comparison below it; none where a comparison has just begun."""
    if not folder.is_dir():
        raise UserError(f"there is no folder {folder}")
    alone = RunFolder(folder)
    runs = [alone] if alone.has_begun else [run for run in find_runs(folder) if run.has_begun]
    if not runs and not alone.recipe_file.exists():
        raise UserError(
            f"{folder} holds no run and no comparison (no run.json or result.json in it or in METHOD/seed-N)"
        )
    return runs


def _begun(folder: Path, runs: Sequence[RunFolder]) -> dict[str, Any]:
    """What there is to say before a run is finished."""
    if runs:
        return runs[0].about()
    return {"recipe": RunFolder(folder).recipe().name}


def _planned_score(runs: Sequence[RunFolder]) -> MainScore:
    """The main score of unfinished runs, by their recipe."""
    recipe = next((run.recipe() for run in runs if run.recipe_file.exists()), None)
    return ERROR if recipe is None else main_score(recipe.task, recipe.decode.metric)


def _score(main: MainScore) -> dict[str, Any]:
    """What the page must know of the score that it draws."""
    return {
        "title": main.title,
        "unit": main.unit,
        "higher": main.higher_is_better,
        "field": f"test_{main.reported}",
        "axis": main.axis,
        "curve_axis": main.curve_axis,
    }


def _points(text: str) -> list[str]:
    """The points of a Markdown list, and lines before it; a point may go on in indented lines."""
    return [point.removeprefix("- ").replace("\n  ", " ") for point in re.split(r"\n(?! )", text)]


def _finished(runs: Sequence[RunFolder]) -> dict[str, dict[RunFolder, Result]]:
    """Finished runs and their results, by method and seed; the baseline first, as in all tables."""
    pairs = [(run, result) for run in runs if (result := run.result()) is not None]
    pairs.sort(key=lambda pair: (pair[1]["method"] != BASELINE, pair[1]["method"], pair[1]["seed"]))
    finished: dict[str, dict[RunFolder, Result]] = {}
    for run, result in pairs:
        finished.setdefault(result["method"], {})[run] = result
    return finished


def _method(method: str, runs: dict[RunFolder, Result], main: MainScore, notes: list[str]) -> dict[str, Any]:
    return {
        "name": method,
        "runs": [
            {
                "seed": result["seed"],
                **_curve(result["curve"], main),
                "score": result[f"test_{main.reported}"],
                "seconds_per_epoch": result["seconds_per_epoch"],
            }
            for result in runs.values()
        ],
        "reliability": _pooled([result["reliability"] for result in runs.values() if "reliability" in result]),
        "confusion": _confusion(list(runs), notes),
    }


def _curve(points: Sequence[dict[str, Any]], main: MainScore) -> dict[str, list[float]]:
    name = f"test_{main.evaluated}"
    points = [point for point in points if name in point]
    return {
        "epochs": [point["epoch"] for point in points],
        "scores": [round(point[name], 4) for point in points],
    }


def _unfinished(run: RunFolder, main: MainScore) -> dict[str, Any]:
    """How far a run has come, and its curve until there."""
    identity = run.about()
    try:
        records = run.records() if run.metrics_file.exists() else []
    except UserError:  # its last line may be half written at this moment
        records = []
    return {
        "method": identity["method"],
        "seed": identity["seed"],
        "epoch": records[-1]["epoch"] if records else 0,
        "of": run.recipe().train.epochs if run.recipe_file.exists() else None,
        **_curve([record for record in records if float(record["epoch"]).is_integer()], main),
    }


def _pooled(diagrams: Sequence[list[dict[str, float]]]) -> list[dict[str, float]]:
    """One reliability diagram of the examples of all runs; empty bins are left out."""
    pooled = []
    for bins in zip(*diagrams, strict=True):
        count = sum(bin["count"] for bin in bins)
        if count:
            means = {key: sum(bin["count"] * bin[key] for bin in bins) / count for key in ("confidence", "accuracy")}
            pooled.append({"count": count, **means})
    return pooled


def _confusion(runs: Sequence[RunFolder], notes: list[str]) -> dict[str, Any] | None:
    """Wrong predictions summed over the runs that kept them: label names, examples, [target, predicted, count]."""
    tables: list[dict[str, Any]] = []
    for file in (run.path / "confusion.json" for run in runs):
        try:
            if file.exists():
                tables.append(read_object(file, ("labels", "examples", "wrong")))
        except UserError as error:
            notes.append(f"The confusions of a run are left out: {error}")
    tables = [table for table in tables if table["labels"] == tables[0]["labels"]]
    if not tables:
        return None
    wrong: dict[tuple[int, int], int] = {}
    for table in tables:
        for target, predicted, count in table["wrong"]:
            wrong[target, predicted] = wrong.get((target, predicted), 0) + count
    return {
        "runs": len(tables),
        "labels": tables[0]["labels"],
        "examples": [sum(column) for column in zip(*(table["examples"] for table in tables), strict=True)],
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
    return {**sheet, "png": base64.b64encode(sheet["png"]).decode()}
