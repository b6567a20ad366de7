"""A worker process of a comparison: trains the runs it is told on standard input, reports on standard output.

One JSON object a line in both directions. The first line in is the comparison (recipe, data, options), each further one
a run (method, seed, folder, labels to reuse); out come `progress`, `warning`, and for each run `done`, `failed`, `busy`
or `stopped`.
"""

import json
import signal
import sys
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from labelemb.lab.methods.method import parse_method
from labelemb.lab.recipes.recipe import Recipe, parse_recipe
from labelemb.lab.runs.folder import FolderBusy
from labelemb.lab.runs.labels import LabelSource
from labelemb.lab.runs.loop import train_run
from labelemb.lab.runs.messages import Progress, RunOptions
from labelemb.lab.tasks.main_score import describe_scores
from labelemb.support.errors import UserError
from labelemb.support.interrupts import Interrupted, StopRequests


class Reporter:
    """Writes events. When nobody listens any more, the comparison was killed: the worker then stops as well."""

    def __init__(self, stream: TextIO, stop: StopRequests) -> None:
        self.stream, self.stop = stream, stop

    def send(self, event: str, **values: Any) -> None:
        try:
            print(json.dumps({"event": event, **values}), file=self.stream, flush=True)
        except BrokenPipeError:
            self.stop.request(signal.SIGTERM)

    def progress(self, progress: Progress) -> None:
        self.send("progress", **asdict(progress))

    def warn(self, message: str) -> None:
        self.send("warning", message=message)


def main() -> int:
    stop = StopRequests()
    reporter = Reporter(sys.stdout, stop)
    sys.stdout = sys.stderr  # a library that prints must not end up among the events
    comparison = json.loads(sys.stdin.readline())
    recipe = parse_recipe(comparison["recipe"], where="the recipe of the comparison")
    data = Path(comparison["data"]) if comparison["data"] else None
    options = RunOptions(**comparison["options"])
    for line in sys.stdin:
        if not _train(json.loads(line), recipe, data, options, reporter, stop):
            return 1
    return 0


def _train(
    task: dict[str, Any], recipe: Recipe, data: Path | None, options: RunOptions, reporter: Reporter, stop: StopRequests
) -> bool:
    """One run; False if the worker is to stop."""
    folder = Path(task["folder"])
    try:
        result = train_run(
            recipe,
            parse_method(task["method"]),
            task["seed"],
            data,
            folder,
            labels=LabelSource.from_message(task.get("labels")),
            options=options,
            report=reporter.progress,
            warn=reporter.warn,
            stop=stop,
        )
    except Interrupted:
        reporter.send("stopped")
        return False
    except FolderBusy:
        reporter.send("busy")
    except UserError as error:
        reporter.send("failed", message=str(error), user_error=True)
    except Exception as error:
        trace = traceback.format_exc()
        reporter.send("failed", message=f"{type(error).__name__}: {error}", user_error=False, trace=trace)
    else:
        reporter.send("done", test_error=result["test_error"], scores=describe_scores(result))
    return True


if __name__ == "__main__":
    sys.exit(main())
