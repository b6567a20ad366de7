"""`train`: trains one method with one seed, with a progress bar."""

from pathlib import Path

from labelemb.lab.jobs.progress import RunBar, print_line
from labelemb.lab.methods.method import Method
from labelemb.lab.recipes.recipe import Recipe
from labelemb.lab.runs.labels import LabelSource
from labelemb.lab.runs.loop import train_run
from labelemb.lab.runs.messages import RunOptions
from labelemb.lab.tasks import task_of_result
from labelemb.lab.tasks.records import RunResult


def train(
    recipe: Recipe,
    method: Method,
    seed: int,
    *,
    out: Path,
    data: Path | None,
    labels: LabelSource | None,
    options: RunOptions,
) -> RunResult:
    """Train one run, or resume it, and show its progress and its warnings on standard error."""
    bar = RunBar(f"{method.name} seed {seed}")
    try:
        return train_run(
            recipe,
            method,
            seed,
            data,
            out,
            labels=labels,
            options=options,
            report=bar.update,
            warn=lambda message: print_line(f"labelemb: {message}"),
        )
    finally:
        bar.close()


def describe(result: RunResult) -> str:
    """The result of a run in a line."""
    return f"{task_of_result(result).describe(result)}, at epoch {result.best_epoch:g}"
