"""The messages between a comparison and its worker processes: one JSON object a line, in both directions.

The first line to a worker is a `WorkerSetup`, each further one a `RunRequest`. Back come `Moved` and `Warned`, and for
each run one of `Done`, `Paused`, `Failed`, `Busy` (another comparison trains it) and `Stopped`.
"""

import msgspec

from labelemb.lab.data import Fold
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
    pause_epoch: int = 0
    """The epoch after which the worker saves the run and answers `Paused`, unless it is the last; 0 for none."""
    fold: Fold | None = None


class Started(msgspec.Struct, frozen=True, tag_field="event", tag="started"):
    """A run was handed to a worker."""

    machine: str = ""
    """The worker's machine, if it may be another one."""


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
    died: bool = False
    """Whether the worker's process ended without a word: the run itself may be right."""
    disk: bool = False
    """Whether the disk was the reason, as when it is full."""


class Paused(msgspec.Struct, frozen=True, tag_field="event", tag="paused"):
    """A run has reached its `pause_epoch` and is saved; the same request with a later one goes on with it."""


class Busy(msgspec.Struct, frozen=True, tag_field="event", tag="busy"):
    """Another process is training in the run's folder."""


class Lost(msgspec.Struct, frozen=True, tag_field="event", tag="lost"):
    """The machine or the process of a run is gone; the run starts again from its last checkpoint."""

    message: str


class Stopped(msgspec.Struct, frozen=True, tag_field="event", tag="stopped"):
    """The worker was asked to stop, has saved its run and ends."""


Event = Started | Moved | Warned | Done | Paused | Failed | Busy | Lost | Stopped
LAST_EVENTS = (Done, Paused, Failed, Busy, Stopped)
"""What ends an attempt at a run."""
