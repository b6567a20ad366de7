"""Label spaces in files, and learned labels that a new training reuses, matched to its data by name.

A label space is in a run's folder, in a file that `LabelSpace.save` wrote, or in a table of similarities.
"""

import warnings
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from labelemb import LabelSpace, LabelSpaceError
from labelemb.lab.runs.finished import require_labels
from labelemb.lab.runs.folder import RunFolder
from labelemb.lab.runs.messages import LabelMessage, Warn, ignore
from labelemb.support.errors import UserError
from labelemb.support.files import file_digest
from labelemb.support.wording import quote_few

TABLES = (".csv", ".tsv", ".txt")
"""Endings of tables; any other file is read as what `LabelSpace.save` writes."""


def find_labels(path: Path) -> Path:
    """The file with the labels: the path itself, or that of a run's folder."""
    if path.is_dir():
        require_labels(path)
        run = RunFolder(path)
        if not run.labels_file.exists():
            method = run.require_result().method
            raise UserError(f"{path} has no label space: the method {method} learns none, or the file was not kept")
        return run.labels_file
    if not path.exists():
        raise UserError(f"there is no run folder or file {path}")
    return path


def load_space(path: Path, warn: Warn = ignore) -> LabelSpace:
    """The label space of a run's folder, or in a file; warnings about a table go to `warn`."""
    file = find_labels(path)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            space = LabelSpace.from_csv(file) if file.suffix.lower() in TABLES else LabelSpace.load(file)
    except (LabelSpaceError, OSError) as error:
        raise UserError(str(error)) from error
    for warning in caught:
        warn(str(warning.message))
    return space


@dataclass(frozen=True)
class ReusedLabels:
    """Labels to train with."""

    space: LabelSpace
    """Of the data's labels, in their order."""
    origin: str
    """Where they were learned, for people."""


@dataclass(frozen=True)
class LabelSource:
    """Where a training finds its labels: a run's folder, a label space file, or a table of similarities."""

    path: Path
    subset: bool = False
    """The data may have only some of the labels: the others are left out."""
    quiet: bool = False
    """Whether warnings about the labels have been given before."""

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the file: a run that was begun with these labels goes on with no others."""
        return file_digest(find_labels(self.path))

    @property
    def origin(self) -> str:
        """The run that learned the labels, or the file's name."""
        file = find_labels(self.path)
        run = RunFolder(file.parent)
        if file != run.labels_file:
            return file.name
        try:
            return run.title() or file.name
        except UserError:  # a result.json of another program
            return file.name

    def matched(self, names: list[str], warn: Warn = ignore) -> ReusedLabels:
        """The labels in the order of `names`; names that one side lacks are an error that lists them."""
        if self.quiet:
            warn = ignore
        space = load_space(self.path, warn)
        self._check_names(space, names)
        space = space.select(names)
        never = [] if space.counts is None else [space.names[i] for i in (space.counts == 0).nonzero()[:, 0].tolist()]
        if never:
            warn(
                f"{self.path}: {len(never)} of {len(names)} labels were never observed right, so their rows hold "
                f"initial values: {quote_few(never)}"
            )
        return ReusedLabels(space, self.origin)

    def _check_names(self, space: LabelSpace, names: list[str]) -> None:
        known, wanted = set(space.names), set(names)
        missing = [name for name in names if name not in known]
        extra = [] if self.subset else [name for name in space.names if name not in wanted]
        if not missing and not extra:
            return
        parts = []
        if missing:
            parts.append(f"it lacks {quote_few(missing)} of the data")
        if extra:
            parts.append(f"it has {quote_few(extra)}, which the data lacks")
        advice = "" if missing else "; --labels-subset leaves such labels out"
        raise UserError(f"{self.path} is of another label set: {'; '.join(parts)}{advice}")

    def to_message(self) -> LabelMessage:
        """For a worker process."""
        return LabelMessage(str(self.path), self.subset, self.quiet)

    @classmethod
    def from_message(cls, message: LabelMessage) -> "LabelSource":
        return cls(Path(message.path), message.subset, message.quiet)
