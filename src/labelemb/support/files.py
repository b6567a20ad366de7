"""Writing files so that a reader finds the old content or the new, and never half of it."""

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from labelemb.support.errors import UserError


def make_folder(path: Path) -> None:
    """Create a folder and its parents."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot("create the folder", path, error) from error


def write_bytes(path: Path, *parts: bytes | memoryview) -> None:
    """Replace a file: written aside, flushed to the disk, renamed. A failure leaves the old file as it was.

    Of several processes that write the same file, the last wins.
    """
    aside = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        write_aside(aside, parts)
        aside.replace(path)
        flush_folder(path.parent)
    except OSError as error:
        discard(aside)
        raise cannot("write", path, error) from error


def discard(aside: Path) -> None:
    """Remove what could not be put in its place, where the disk lets us."""
    with suppress(OSError):
        aside.unlink()


def write_aside(aside: Path, parts: Iterable[bytes | memoryview]) -> None:
    """Write a file and wait until it is on the disk."""
    with aside.open("wb") as file:
        for part in parts:
            file.write(part)
        file.flush()
        os.fsync(file.fileno())


def flush_folder(folder: Path) -> None:
    """Make renames in a folder durable, where the system can (Windows cannot open a folder)."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_text(path: Path, text: str) -> None:
    """In UTF-8. A byte of a file's name that is not UTF-8 is written as the escape that JSON has for it."""
    write_bytes(path, text.encode(errors="backslashreplace"))


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    """The content of a JSON file; a file that cannot be read or is damaged is a user error."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise cannot("read", path, error) from error
    except ValueError as error:
        raise _damaged(path, str(error)) from error


def read_object(path: Path, required: Iterable[str] = ()) -> dict[str, Any]:
    """The same of a file that the lab has written, which holds an object with at least the required keys."""
    found = read_json(path)
    if not isinstance(found, dict):
        raise _damaged(path, f"it holds a {type(found).__name__} and no object")
    if missing := [key for key in required if key not in found]:
        raise _damaged(path, f"it has no {missing[0]!r}")
    return found


def _damaged(path: Path, reason: str) -> UserError:
    beside = "" if path.name == "result.json" else " and result.json beside it"
    return UserError(f"{path} is damaged ({reason}): delete it{beside}, and train again to have it made anew")


def cannot(do: str, path: Path, error: OSError) -> UserError:
    """The user's error for a failed system call: what was tried, where, and the system's reason."""
    return UserError(f"cannot {do} {path}: {error.strerror or error}")
