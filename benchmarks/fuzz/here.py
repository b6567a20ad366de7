"""`RunsHere`: trains the runs of a comparison, an audit or a search in this process, where no error can hide."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from labelemb.lab.comparison import make
from labelemb.lab.comparison.protocol import Event, Failed, Started, WorkerSetup
from labelemb.lab.comparison.run_order import RunEvent, RunSource
from labelemb.lab.comparison.worker import Reporter, train_request
from labelemb.support.interrupts import StopRequests


class RunsHere:
    """Stands in for `WorkerPool`. An error that is not the user's is raised."""

    def __init__(self, order: RunSource, jobs: int, setup: WorkerSetup) -> None:
        self.order, self._setup = order, setup
        self.slots = 1

    def events(self) -> Iterator[RunEvent]:
        reporter = _Silent(StopRequests(enabled=False))
        while (run := self.order.take()) is not None:
            yield RunEvent(0, run, Started())
            last = train_request(self._setup, run.to_request(), reporter)
            if isinstance(last, Failed) and not last.user_error:
                raise RuntimeError(last.trace)
            self.order.end(run, last)
            yield RunEvent(0, run, last)

    def stop(self) -> None:
        self.order.clear()


class _Silent(Reporter):
    def send(self, event: Event) -> None:
        pass


@contextmanager
def training_here() -> Iterator[None]:
    """Let all jobs of this process train their runs in it."""
    with patch.object(make, "WorkerPool", RunsHere):
        yield
