"""Files are whole whoever writes them."""

import itertools
from collections.abc import Iterable
from pathlib import Path

import pytest

from labelemb.lab import files


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
