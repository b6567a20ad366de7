"""The messages between a comparison and its worker processes: one JSON object a line, in both directions.

The first line to a worker is a `WorkerSetup`, each further one a `RunRequest`. Back come `Moved` and `Warned`, and for
each run one of `Done`, `Failed`, `Busy` (another comparison trains it) and `Stopped`.
"""

import msgspec

from labelemb.lab.runs.messages import LabelMessage, Progress, RunOptions


class WorkerSetup(msgspec.Struct, frozen=True):
    """What all runs of a comparison share."""

    recipe: str
    """As TOML text."""
    data: str | None
    options: RunOptions


class RunRequest(msgspec.Struct, frozen=True):
    """One run to train."""

    method: str
    seed: int
    folder: str
    labels: LabelMessage | None = None


class Started(msgspec.Struct, frozen=True, tag_field="event", tag="started"):
    """A run was handed to a worker."""


class Moved(msgspec.Struct, frozen=True, tag_field="event", tag="progress"):
    """A run has come further."""

    progress: Progress


class Warned(msgspec.Struct, frozen=True, tag_field="event", tag="warning"):
    """The user should know something about a run."""

    message: str


class Done(msgspec.Struct, frozen=True, tag_field="event", tag="done"):
    """A run is finished; `scores` is its result in a line."""

    scores: str


class Failed(msgspec.Struct, frozen=True, tag_field="event", tag="failed"):
    """A run has failed, by an error of the user or of the program."""

    message: str
    user_error: bool = False
    trace: str = ""


class Busy(msgspec.Struct, frozen=True, tag_field="event", tag="busy"):
    """Another process is training in the run's folder."""


class Stopped(msgspec.Struct, frozen=True, tag_field="event", tag="stopped"):
    """The worker was asked to stop, has saved its run and ends."""


Event = Started | Moved | Warned | Done | Failed | Busy | Stopped
LAST_EVENTS = (Done, Failed, Busy, Stopped)
"""What ends an attempt at a run."""
