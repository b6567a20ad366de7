"""Tasks by name: for a recipe, a result, or files of results."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from labelemb.lab.recipes.recipe import Recipe
from labelemb.lab.tasks.classification import Classification
from labelemb.lab.tasks.records import RunResult, damaged, read_record
from labelemb.lab.tasks.task import Task
from labelemb.lab.tasks.translation import MAIN_SCORES, Translation, TranslationResult

TASKS: tuple[type[Task], ...] = (Classification, Translation)


class _Kind(msgspec.Struct):
    """The task and main score in a file; classification results of earlier versions have neither."""

    task: str = Classification.name
    main_score: str = "bleu"


def make_task(recipe: Recipe) -> Task:
    """The task of a recipe."""
    return _task(recipe.task, recipe.decode.metric)


def task_of_result(result: RunResult) -> Task:
    """The task of a run that has this result."""
    metric = result.main_score if isinstance(result, TranslationResult) else ""
    return _task(Translation.name if metric else Classification.name, metric)


def task_of_facts(about: Mapping[str, Any]) -> Task:
    """The task that the facts of a summary name."""
    kind = msgspec.convert(dict(about), _Kind)
    return _task(kind.task, kind.main_score)


def read_result(file: Path) -> RunResult:
    """The result in a file, with the type of its task."""
    kind = read_record(file, _Kind)
    known = {task.name: task for task in TASKS}
    if kind.task not in known:
        raise damaged(file, f"the task {kind.task!r} is none of {', '.join(known)}")
    if kind.main_score not in MAIN_SCORES:
        raise damaged(file, f"the main score {kind.main_score!r} is none of {', '.join(MAIN_SCORES)}")
    result = read_record(file, known[kind.task].result_type)
    if not result.curve:
        raise damaged(file, "its curve has no point")
    return result


def _task(name: str, metric: str) -> Task:
    return Translation(metric) if name == Translation.name else Classification()
