"""`Case`: one command of the fuzz."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Case:
    """A command to run, and what was done before."""

    kind: str
    arguments: list[str]
    about: str
    unchanged: Path | None = None
    """A run whose scores the command, if it gives any, must give as they were."""
