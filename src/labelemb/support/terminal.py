"""Escapes everything that is printed to a terminal."""

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

from labelemb.support.wording import escape_lines


class EscapingStream(io.TextIOBase):
    """A stream that escapes what could steer a terminal; line ends and tabs pass."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        self.stream.write(escape_lines(text))
        return len(text)

    def flush(self) -> None:
        self.stream.flush()

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return self.stream.fileno()

    @property
    def encoding(self) -> Any:  # type: ignore[override]  # of the terminal
        return self.stream.encoding


@contextmanager
def escaped_output() -> Iterator[None]:
    """While active, standard output is escaped if it is a terminal. Files and pipes get everything as it is."""
    before = sys.stdout
    if before.isatty():
        sys.stdout = cast(TextIO, EscapingStream(before))
    try:
        yield
    finally:
        sys.stdout = before
