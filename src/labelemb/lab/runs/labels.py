"""Labels that were learned before, for a new training: found, checked against the data by name, and told apart."""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from labelemb import LabelSpace
from labelemb.lab.runs.label_files import find_labels, load_space
from labelemb.lab.runs.messages import Warn, ignore
from labelemb.support.errors import UserError
from labelemb.support.files import file_error, read_json
from labelemb.support.wording import quote_few


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
    """What is doubtful about the labels has been said before."""

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the file: a run that was begun with these labels goes on with no others."""
        file = find_labels(self.path)
        try:
            with file.open("rb") as content:
                return hashlib.file_digest(content, "sha256").hexdigest()
        except OSError as error:
            raise file_error("read", file, error) from error

    @property
    def origin(self) -> str:
        """The run that learned the labels, or the file's name."""
        file = find_labels(self.path)
        for about in (file.parent / "result.json", file.parent / "run.json"):
            run = read_json(about) if file.name == "labels.safetensors" and about.exists() else None
            if isinstance(run, dict) and {"recipe", "method", "seed"} <= run.keys():  # else it is of another program
                return f"{run['recipe']} {run['method']} seed {run['seed']}"
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

    def to_message(self) -> dict[str, Any]:
        """For a worker process."""
        return {"path": str(self.path), "subset": self.subset, "quiet": self.quiet}

    @classmethod
    def from_message(cls, message: dict[str, Any] | None) -> Self | None:
        return cls(Path(message["path"]), message["subset"], message["quiet"]) if message else None
