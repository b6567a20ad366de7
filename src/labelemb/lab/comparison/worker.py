"""A worker process of a comparison: trains the runs that it receives, and sends their events back.

It reads from standard input and writes to standard output; `protocol.py` has the messages.
"""

import json
import signal
import sys
import traceback
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TextIO

from labelemb.lab.comparison.protocol import (
    Busy,
    Done,
    Event,
    Failed,
    Moved,
    Paused,
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
from labelemb.support.errors import FileError, UserError
from labelemb.support.interrupts import Interrupted, StopRequests


class Reporter(ABC):
    """Sends the events of a run to the comparison."""

    def __init__(self, stop: StopRequests) -> None:
        self.stop = stop
        self.pause_epoch = 0

    @abstractmethod
    def send(self, event: Event) -> None:
        """Send an event. If nobody reads it, the comparison was killed: the run is then asked to stop."""

    def progress(self, progress: Progress) -> None:
        self.send(Moved(progress))
        if self.pause_epoch and progress.step * progress.epochs >= self.pause_epoch * progress.total_steps:
            self.stop.request_pause()

    def warn(self, message: str) -> None:
        self.send(Warned(message))


class StreamReporter(Reporter):
    """Writes events as lines."""

    def __init__(self, stream: TextIO, stop: StopRequests) -> None:
        super().__init__(stop)
        self.stream = stream

    def send(self, event: Event) -> None:
        try:
            print(json.dumps(to_json(event)), file=self.stream, flush=True)
        except BrokenPipeError:
            self.stop.request(signal.SIGTERM)


def main() -> int:
    stop = StopRequests()
    reporter = StreamReporter(sys.stdout, stop)
    sys.stdout = sys.stderr  # a library that prints must not end up among the events
    setup = from_json(sys.stdin.readline(), WorkerSetup)
    for line in sys.stdin:
        last = train_request(setup, from_json(line, RunRequest), reporter)
        reporter.send(last)
        if isinstance(last, Stopped):
            return 1
    return 0


def train_request(setup: WorkerSetup, request: RunRequest, reporter: Reporter) -> Event:
    """Train one run; its last event."""
    reporter.pause_epoch = request.pause_epoch
    try:
        result = train_run(
            parse_recipe(setup.recipe, where="the recipe of the comparison"),
            request.method,
            request.seed,
            setup.data,
            Path(request.folder),
            labels=None if request.labels is None else LabelSource.from_message(request.labels),
            fold=request.fold,
            options=setup.options,
            report=reporter.progress,
            warn=reporter.warn,
            stop=reporter.stop,
        )
    except Interrupted:
        return Paused() if reporter.stop.take_pause() else Stopped()
    except FolderBusy:
        return Busy()
    except UserError as error:
        return Failed(str(error), user_error=True, disk=isinstance(error, FileError))
    except Exception as error:
        return Failed(f"{type(error).__name__}: {error}", trace=traceback.format_exc())
    return Done(task_of_result(result).describe(result))


if __name__ == "__main__":
    sys.exit(main())
