"""Checkpoint files that survive a kill at any moment.

A checkpoint file is eight bytes that name the format, the SHA-256 of the rest, and what `torch.save` wrote. It is
written aside, flushed to the disk and renamed into place; the one before is kept. Loading never executes code: only
tensors and plain values are read (`weights_only=True`). A checkpoint whose checksum does not fit, or that the run
cannot use, is left out in favour of the one before.
"""

import hashlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

from labelemb.support.errors import UserError
from labelemb.support.files import file_error, read_whole, remove_quietly, write_bytes

FORMAT = b"lblemb01"
CURRENT = "checkpoint"
PREVIOUS = "checkpoint.previous"


class CorruptCheckpoint(Exception):
    """The bytes are not those that were written."""


def save_checkpoint(folder: Path, state: dict[str, Any]) -> None:
    """Write `state` (tensors and plain values) as the folder's checkpoint; the one before becomes the previous one."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    payload = buffer.getbuffer()
    # between two renames only the previous one exists: `load_checkpoint` takes it
    checksum = hashlib.sha256(payload).digest()
    write_bytes(folder / CURRENT, FORMAT, checksum, payload, previous=folder / PREVIOUS)


class Loaded(NamedTuple):
    """A checkpoint as it was read; `corrupted` is the path of a newer one that could not be used."""

    state: dict[str, Any] | None
    corrupted: Path | None = None


def load_checkpoint(
    folder: Path, warn: Callable[[str], None], use: Callable[[dict[str, Any]], None] = lambda state: None
) -> Loaded:
    """The newest intact checkpoint of a folder, if it has any; `warn` is called about a corrupted one.

    `use` takes the state, and raises `CorruptCheckpoint` where it cannot. The caller removes the corrupted one before
    the next save, which would otherwise keep it as the previous one.
    """
    corrupted: dict[Path, str] = {}
    for path in (folder / CURRENT, folder / PREVIOUS):
        if not path.exists():
            continue
        try:
            state = _read(path)
            use(state)
        except CorruptCheckpoint as error:
            corrupted[path] = f"{path} is corrupted ({error})"
            continue
        for problem in corrupted.values():
            warn(f"{problem}: resuming from the previous checkpoint")
        return Loaded(state, next(iter(corrupted), None))
    if corrupted:
        raise UserError(f"{'; '.join(corrupted.values())}: delete {folder} to start the run again")
    return Loaded(None)


def drop_checkpoints(folder: Path, keep_last: bool = False) -> None:
    """Remove the checkpoints of a finished run, or all but the last."""
    for name in (PREVIOUS,) if keep_last else (PREVIOUS, CURRENT):
        remove_quietly(folder / name)


def _read(path: Path) -> dict[str, Any]:
    try:
        content = read_whole(path)
    except OSError as error:
        raise file_error("read", path, error) from error
    start = len(FORMAT) + hashlib.sha256().digest_size
    if not content.startswith(FORMAT):
        raise CorruptCheckpoint("not a checkpoint of this version")
    payload = memoryview(content)[start:]
    if hashlib.sha256(payload).digest() != content[len(FORMAT) : start]:
        raise CorruptCheckpoint("its checksum does not fit")
    try:
        state: dict[str, Any] = torch.load(io.BytesIO(payload), weights_only=True, map_location="cpu")
    except Exception as error:  # bytes with the right checksum that no training wrote: the reader raises anything
        raise CorruptCheckpoint(f"{type(error).__name__} {str(error).partition(chr(10))[0]}".strip()) from error
    return state
