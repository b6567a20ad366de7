"""Files are whole whoever writes them."""

import errno
import itertools
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from labelemb.lab.runs.checkpoint import save_checkpoint
from labelemb.support import files
from labelemb.support.errors import UserError


def test_two_processes_may_write_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, write_aside = tmp_path / "summary.json", files.write_aside
    processes = itertools.count(1)
    monkeypatch.setattr(files.os, "getpid", lambda: next(processes))

    def overtaken(aside: Path, parts: Iterable[bytes | memoryview]) -> None:
        write_aside(aside, parts)
        monkeypatch.setattr(files, "write_aside", write_aside)
        files.write_bytes(path, b"of another process")

    monkeypatch.setattr(files, "write_aside", overtaken)
    files.write_bytes(path, b"whole")
    assert path.read_bytes() == b"whole"
    assert list(tmp_path.iterdir()) == [path]


def test_a_disk_that_refuses_everything_is_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, *arguments: Any, **keywords: Any) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "open", refuse)
    monkeypatch.setattr(Path, "unlink", refuse)
    for write in (
        lambda: files.write_bytes(tmp_path / "summary.json", b"{}"),
        lambda: save_checkpoint(tmp_path, {"step": 1}),
    ):
        with pytest.raises(UserError, match=r"cannot write .*: Read-only file system"):
            write()
