"""Files that are either whole or untouched: written aside in the same folder, synchronised, renamed."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from labelemb.support.errors import UserError


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file for writing whose bytes appear at `path` only when the block ends without an exception.

    A link is followed, so that it keeps pointing at the file. Trouble with the disk becomes a `UserError`.
    """
    target = Path(path).resolve()
    aside = target.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        try:
            with aside.open("xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            aside.replace(target)
        finally:
            aside.unlink(missing_ok=True)
    except OSError as error:
        raise UserError(f"{os.fspath(path)}: cannot be written: {error.strerror or error}") from error
