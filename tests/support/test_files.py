"""Files are whole whoever writes them, and a killed writer leaves nothing behind for long."""

import errno
import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from labelemb.lab.runs.checkpoint import save_checkpoint
from labelemb.support import files
from labelemb.support.errors import UserError

KILLED_WRITER = """
import os, signal, sys
from pathlib import Path
from labelemb.support import files

moment = sys.argv[2]
def die(*arguments, **keywords):
    os.kill(os.getpid(), signal.SIGKILL)

if moment == "renaming":
    Path.replace = die
if moment == "flushing":
    os.fsync = die
with files.replacing(sys.argv[1]) as file:
    file.write(b"half")
    if moment == "writing":
        die()
"""


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.skipif(os.name != "posix", reason="kills a process")
@pytest.mark.parametrize("moment", ["writing", "flushing", "renaming"])
def test_what_a_killed_process_was_writing_is_removed_by_the_next_write_in_the_folder(
    moment: str, tmp_path: Path
) -> None:
    path = tmp_path / "labels.safetensors"
    path.write_bytes(b"old")
    killed = subprocess.run([sys.executable, "-c", KILLED_WRITER, str(path), moment], check=False, timeout=120)
    assert killed.returncode == -signal.SIGKILL
    assert path.read_bytes() == b"old"
    assert len(names(tmp_path)) == 2, "the process was killed before it had left anything"
    files.write_bytes(tmp_path / "other.json", b"{}")
    assert names(tmp_path) == ["labels.safetensors", "other.json"]


def test_a_file_that_a_living_process_writes_is_no_leftover(tmp_path: Path) -> None:
    with files.replacing(tmp_path / "slow") as file:
        file.write(b"whole")
        process = multiprocessing.get_context("spawn").Process(target=files.write_bytes, args=(tmp_path / "fast", b"1"))
        process.start()
        process.join(120)
        assert process.exitcode == 0
    assert (tmp_path / "slow").read_bytes() == b"whole"
    assert names(tmp_path) == ["fast", "slow"]


def test_files_of_others_that_look_temporary_stay(tmp_path: Path) -> None:
    for name in ("thesis.tmp", ".thesis.tmp", ".labelemb-notes"):
        (tmp_path / name).touch()
    files.write_bytes(tmp_path / "a", b"")
    assert names(tmp_path) == [".labelemb-notes", ".thesis.tmp", "a", "thesis.tmp"]


def test_a_file_taken_for_a_leftover_before_its_lock_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, removed = files.fcntl.flock, []

    def too_late(file: Any, operation: int) -> None:
        if not removed:
            removed.append(file.name)
            Path(file.name).unlink()  # as another process does that finds it unlocked
        lock(file, operation)

    monkeypatch.setattr(files.fcntl, "flock", too_late)
    files.write_bytes(tmp_path / "a", b"whole")
    assert removed
    assert (tmp_path / "a").read_bytes() == b"whole"
    assert names(tmp_path) == ["a"]


def test_two_processes_may_write_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    with files.replacing(path) as file:
        file.write(b"whole")
        files.write_bytes(path, b"of another process")
    assert path.read_bytes() == b"whole"
    assert names(tmp_path) == ["summary.json"]


def test_the_file_before_can_be_kept_under_another_name(tmp_path: Path) -> None:
    path, previous = tmp_path / "checkpoint", tmp_path / "checkpoint.previous"
    for number in range(3):
        files.write_bytes(path, b"%d" % number, previous=previous)
    assert (path.read_bytes(), previous.read_bytes()) == (b"2", b"1")


def test_an_exception_in_the_block_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")

    def interrupted() -> None:
        with files.replacing(path) as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["a"]


@pytest.mark.parametrize("name", ["", "a" * 300, "missing/a", "loop"])
def test_a_path_that_cannot_be_written_is_one_error_and_leaves_nothing(name: str, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(UserError, match=r"cannot write .*: \w"):
        files.write_bytes(tmp_path / name, b"")
    assert names(tmp_path) == ["loop"]


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


def test_a_pipe_or_a_device_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        files.write_text(pipe, "through")
        assert os.read(reader, 100) == b"through"
    finally:
        os.close(reader)
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]


def test_a_pipe_that_a_link_of_the_system_stands_for_is_written_to() -> None:
    reader, writer = os.pipe()
    try:
        files.write_text(Path(f"/dev/fd/{writer}"), "through")  # its link says pipe:[1234], which is no path
        assert os.read(reader, 100) == b"through"
    finally:
        os.close(reader)
        os.close(writer)


def test_a_pipe_that_nobody_reads_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="no program reads this pipe; start the reader first"):
        files.write_text(tmp_path / "pipe", "through")


def test_a_folder_in_too_many_others_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="too many folders inside each other"):
        files.make_folder(tmp_path.joinpath(*["a"] * 1500))
    assert not list(tmp_path.iterdir())


def test_a_record_is_a_regular_file_of_a_limited_size(tmp_path: Path) -> None:
    large, endless, pipe = tmp_path / "large.json", tmp_path / "endless.json", tmp_path / "pipe"
    large.write_bytes(b"{}")
    os.truncate(large, files.LARGEST_RECORD + 1)  # a hole: takes no disk
    with pytest.raises(UserError, match=r"large.json: it has 268,435,457 bytes, at most 268,435,456 are read"):
        files.read_json(large)
    endless.symlink_to("/dev/zero")
    os.mkfifo(pipe)
    for special in (endless, pipe):
        with pytest.raises(UserError, match=f"cannot read {special}: not a regular file"):
            files.read_json(special)


def test_a_file_that_does_not_fit_the_memory_is_an_os_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path) -> bytes:
        raise MemoryError

    file = tmp_path / "data.csv"
    file.write_bytes(b"text,label\n")
    monkeypatch.setattr(Path, "read_bytes", fail)
    with pytest.raises(OSError, match="not enough memory for its 11 bytes"):
        files.read_whole(file)
