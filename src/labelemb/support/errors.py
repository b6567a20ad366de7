"""Exceptions for errors that the user can correct."""

from collections.abc import Iterator
from contextlib import contextmanager

from labelemb.support.wording import one_line


class UserError(Exception):
    """A user error. Its text is one line that names the value, what is allowed, and what to do."""

    def __init__(self, text: str) -> None:
        super().__init__(one_line(text))


class FileError(UserError):
    """A user error of the disk: what was tried is right, and works once the disk lets it."""


@contextmanager
def enough_memory_to_read(path: object) -> Iterator[None]:
    """Turns a failed allocation while a file is read into a `UserError` that names the file."""
    try:
        yield
    except MemoryError as error:
        raise UserError(f"not enough memory to read {path}") from error


@contextmanager
def enough_memory(what: str, advice: str) -> Iterator[None]:
    """Turns a failed allocation, where the user's numbers decide its size, into a `UserError` with advice."""
    try:
        yield
    except RuntimeError as error:
        if "allocate" not in str(error):
            raise
        raise UserError(f"there is no memory for so large a {what} ({str(error).splitlines()[0]}): {advice}") from error
