"""A worker process of a comparison: trains the runs that it is sent, and sends their events back.

It reads from standard input and writes to standard output; `protocol.py` has the messages.
"""

import json
import signal
import sys
import traceback
from pathlib import Path
from typing import TextIO

from labelemb.lab.comparison.protocol import (
    Busy,
    Done,
    Event,
    Failed,
    Moved,
    RunRequest,
    Stopped,
    Warned,
    WorkerSetup,
)
from labelemb.lab.recipes.recipe import parse_recipe
from labelemb.lab.runs.folder import FolderBusy
from labelemb.lab.runs.labels import LabelSource
from labelemb.lab.runs.loop import train_run
from labelemb.lab.runs.messages import Progress
from labelemb.lab.tasks import task_of_result
from labelemb.lab.tasks.records import from_json, to_json
from labelemb.support.errors import UserError
from labelemb.support.interrupts import Interrupted, StopRequests


class Reporter:
    """Writes events. If nobody reads them, the comparison was killed: the worker then stops too."""

    def __init__(self, stream: TextIO, stop: StopRequests) -> None:
        self.stream, self.stop = stream, stop

    def send(self, event: Event) -> None:
        try:
            print(json.dumps(to_json(event)), file=self.stream, flush=True)
        except BrokenPipeError:
            self.stop.request(signal.SIGTERM)

    def progress(self, progress: Progress) -> None:
        self.send(Moved(progress))

    def warn(self, message: str) -> None:
        self.send(Warned(message))


def main() -> int:
    stop = StopRequests()
    reporter = Reporter(sys.stdout, stop)
    sys.stdout = sys.stderr  # a library that prints must not end up among the events
    setup = from_json(sys.stdin.readline(), WorkerSetup)
    for line in sys.stdin:
        last = _train(setup, from_json(line, RunRequest), reporter, stop)
        reporter.send(last)
        if isinstance(last, Stopped):
            return 1
    return 0


def _train(setup: WorkerSetup, request: RunRequest, reporter: Reporter, stop: StopRequests) -> Event:
    """Train one run; its last event."""
    try:
        result = train_run(
            parse_recipe(setup.recipe, where="the recipe of the comparison"),
            request.method,
            request.seed,
            setup.data,
            Path(request.folder),
            labels=None if request.labels is None else LabelSource.from_message(request.labels),
            options=setup.options,
            report=reporter.progress,
            warn=reporter.warn,
            stop=stop,
        )
    except Interrupted:
        return Stopped()
    except FolderBusy:
        return Busy()
    except UserError as error:
        return Failed(str(error), user_error=True)
    except Exception as error:
        return Failed(f"{type(error).__name__}: {error}", trace=traceback.format_exc())
    return Done(task_of_result(result).describe(result))


if __name__ == "__main__":
    sys.exit(main())
