"""Creates folders, and removes them again if their job fails before it has written anything useful."""

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from labelemb.support.files import file_error, make_folder, remove_quietly


@dataclass(frozen=True)
class MadeFolder:
    """A folder with its parents, and what there was of it before."""

    path: Path
    created: list[Path]
    """The folders that were made, the innermost first."""
    before: frozenset[str]
    """The names in the folder that were there already."""

    @classmethod
    def make(cls, path: Path) -> "MadeFolder":
        try:
            created = [folder for folder in (path, *path.parents) if not folder.exists()]
            make_folder(path)
            return cls(path, created, frozenset(entry.name for entry in path.iterdir()))
        except OSError as error:
            raise file_error("use the folder", path, error) from error

    def undo(self, worthless: Collection[str]) -> None:
        """Remove what is new, if that is only empty files and files with these names; folders only if they are empty.

        With anything else in it, the folder stays as it is.
        """
        with suppress(OSError):
            new = [entry for entry in self.path.iterdir() if entry.name not in self.before]
            if not all(entry.is_file() and (entry.name in worthless or not entry.stat().st_size) for entry in new):
                return
            for entry in new:
                remove_quietly(entry)
            for folder in self.created:
                folder.rmdir()
