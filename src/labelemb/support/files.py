"""Reads and writes whole files. Writes are atomic: a reader sees either the old or the new content.

A file is written aside under a temporary name in the same folder, flushed to the disk and renamed. The writer holds a
lock on the temporary file, which ends with its process. So a temporary file without a lock was left behind by a
process that was killed, and the next write in that folder removes it.
"""

import errno
import hashlib
import json
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from labelemb.support.errors import FileError, UserError

try:
    import fcntl
except ImportError:  # Windows, where a file that is open cannot be removed anyway
    fcntl = None  # type: ignore[assignment]  # there is no such module

PREFIX, SUFFIX = ".labelemb-", ".tmp"
"""How the name of a temporary file begins and ends."""
LARGEST_RECORD = 2**28
"""Bytes of a JSON file: a model.json with millions of label names is smaller."""


def make_folder(path: Path) -> None:
    """Create a folder and its parents."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise file_error("create the folder", path, error) from error
    except RecursionError as error:
        raise UserError(f"cannot create the folder {path}: too many folders inside each other") from error


@contextmanager
def replacing(path: str | os.PathLike[str], previous: Path | None = None) -> Iterator[BinaryIO]:
    """A file to write to, whose bytes appear at `path` only when the block ends without an exception.

    A link is followed, so that it keeps pointing at the file; a device or a pipe is written to. With `previous`, the
    file that was at `path` is renamed to it just before. Of several processes that write the same file, the last wins.
    `UserError` where the disk fails.
    """
    try:
        if is_stream(Path(path)):
            with _open_stream(Path(path)) as stream:
                yield stream
            return
        target = _follow_links(Path(path))
        remove_leftovers(target.parent)
        file, aside = _create_aside(target.parent)
        try:
            with file:
                yield file
                file.flush()
                os.fsync(file.fileno())
                if fcntl is not None:  # the lock lasts until the file has its name
                    _rename(aside, target, previous)
            if fcntl is None:
                _rename(aside, target, previous)
        finally:
            remove_quietly(aside)
        _flush_folder(target.parent)
    except OSError as error:
        raise file_error("write", Path(path), error) from error


def is_stream(path: Path) -> bool:
    """Whether there is a pipe or a device, such as /dev/stdout or /dev/null: nothing that was written can be read."""
    return path.exists() and not path.is_file() and not path.is_dir()


def write_bytes(path: Path, *parts: bytes | memoryview, previous: Path | None = None) -> None:
    """Replace a file, as `replacing` does."""
    with replacing(path, previous) as file:
        for part in parts:
            file.write(part)


def write_text(path: Path, text: str) -> None:
    """Replace a file by text in UTF-8. A character that UTF-8 does not have is written as its escape."""
    write_bytes(path, text.encode(errors="backslashreplace"))


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def read_whole(path: Path, most: int | None = None) -> bytes:
    """The content of a file. With `most`, only of a regular file of at most so many bytes.

    A file that is too large for that or for the memory, or a device, which may have no end, is an `OSError`.
    """
    refuse_device(path, pipes=most is None)
    size = path.stat().st_size
    if most is not None and size > most:
        raise OSError(errno.EFBIG, f"it has {size:,} bytes, at most {most:,} are read", str(path))
    try:
        return path.read_bytes()
    except MemoryError as error:
        raise OSError(errno.ENOMEM, f"not enough memory for its {size:,} bytes", str(path)) from error


def refuse_device(path: Path, pipes: bool = True) -> None:
    """`OSError` for what is no file or pipe; a folder passes, which the system refuses to read in its own words."""
    mode = path.stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or (pipes and stat.S_ISFIFO(mode))):
        raise OSError(errno.EINVAL, "not a regular file", str(path))


def read_json(path: Path) -> Any:
    """The content of a JSON file; a file that cannot be read or is damaged is a user error."""
    try:
        return json.loads(read_whole(path, LARGEST_RECORD).decode())
    except OSError as error:
        raise file_error("read", path, error) from error
    except ValueError as error:
        raise _damaged(path, str(error)) from error


def read_object(path: Path, required: Iterable[str] = ()) -> dict[str, Any]:
    """The content of a JSON file that holds an object with at least the required keys."""
    content = read_json(path)
    if not isinstance(content, dict):
        raise _damaged(path, f"it holds a {type(content).__name__} and no object")
    if missing := [key for key in required if key not in content]:
        raise _damaged(path, f"it has no {missing[0]!r}")
    return content


def file_digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal digits."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise file_error("read", path, error) from error


def remove_quietly(path: Path) -> None:
    """Remove a file if it exists and the disk allows it."""
    with suppress(OSError):
        path.unlink()


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files that killed processes left in a folder."""
    for path in folder.glob(f"{PREFIX}*{SUFFIX}"):
        with suppress(OSError), path.open("rb") as file:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails while the writer lives
                path.unlink()
        if fcntl is None:
            remove_quietly(path)


def file_error(action: str, path: Path, error: OSError) -> FileError:
    """The user error for a failed system call: what was tried, where, and the system's reason."""
    return FileError(f"cannot {action} {path}: {error.strerror or error}")


def _open_stream(path: Path) -> BinaryIO:
    """A pipe or a device to write to. Opening a named pipe would wait for its reader, so one without is refused."""
    if not path.is_fifo():
        return path.open("wb")
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise UserError(f"cannot write {path}: no program reads this pipe; start the reader first") from error
        raise
    os.set_blocking(descriptor, True)
    return os.fdopen(descriptor, "wb")


def _create_aside(folder: Path) -> tuple[BinaryIO, Path]:
    """A new, locked temporary file and its path."""
    while True:
        path = folder / f"{PREFIX}{secrets.token_hex(8)}{SUFFIX}"
        file = path.open("xb")
        if fcntl is None:
            return file, path
        with suppress(OSError):  # a file system without locks, where no process takes the file for a leftover
            fcntl.flock(file, fcntl.LOCK_EX)
        if os.fstat(file.fileno()).st_nlink:
            return file, path
        file.close()  # another process took it for a leftover before it was locked


def _follow_links(path: Path) -> Path:
    try:
        return path.resolve()
    except RuntimeError as error:  # of Python before 3.13
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from error


def _rename(aside: Path, target: Path, previous: Path | None) -> None:
    if previous is not None and target.exists():
        target.replace(previous)
    aside.replace(target)


def _flush_folder(folder: Path) -> None:
    """Make renames in a folder durable, where the system can (Windows cannot open a folder)."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _damaged(path: Path, reason: str) -> UserError:
    beside = "" if path.name == "result.json" else " and result.json beside it"
    return UserError(f"{path} is damaged ({reason}): delete it{beside}, and train again")
