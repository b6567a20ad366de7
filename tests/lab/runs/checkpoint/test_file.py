"""Checkpoints: an interruption or damage at any point leaves one to go on from."""

import errno
import hashlib
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

from labelemb.lab.runs.checkpoint.file import CURRENT, FORMAT, PREVIOUS, load_checkpoint, save_checkpoint
from labelemb.support.errors import UserError
from labelemb.support.files import remove_quietly


def load(folder: Path) -> dict[str, Any] | None:
    return load_checkpoint(folder, warn=pytest.fail).state


def save_twice(folder: Path) -> None:
    save_checkpoint(folder, {"step": 1})
    save_checkpoint(folder, {"step": 2})


def test_a_folder_without_checkpoint_gives_none(tmp_path: Path) -> None:
    assert load(tmp_path) is None


def test_tensors_and_plain_values_come_back_as_they_were(tmp_path: Path) -> None:
    state = {"weights": torch.randn(3, 4), "rng": torch.get_rng_state(), "records": [{"error": 0.1, "x": None}], "n": 7}
    save_checkpoint(tmp_path, state)
    loaded = load(tmp_path)
    assert loaded is not None
    assert torch.equal(loaded.pop("weights"), state.pop("weights"))  # type: ignore[arg-type]
    assert torch.equal(loaded.pop("rng"), state.pop("rng"))  # type: ignore[arg-type]
    assert loaded == state


def test_the_newest_checkpoint_is_loaded(tmp_path: Path) -> None:
    save_twice(tmp_path)
    assert load(tmp_path) == {"step": 2}


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:-1],
        lambda content: content[: len(content) // 2],
        lambda content: b"",
        lambda content: content[:200] + bytes([content[200] ^ 1]) + content[201:],
        lambda content: b"something else altogether",
    ],
    ids=["short", "half", "empty", "one bit", "foreign"],
)
def test_a_damaged_checkpoint_gives_way_to_the_one_before_and_says_so(tmp_path: Path, damage: Any) -> None:
    save_twice(tmp_path)
    current = tmp_path / CURRENT
    current.write_bytes(damage(current.read_bytes()))
    warnings: list[str] = []
    assert load_checkpoint(tmp_path, warnings.append) == ({"step": 1}, current)
    assert len(warnings) == 1
    assert str(current) in warnings[0]
    assert "corrupted" in warnings[0]


def test_an_intact_checkpoint_survives_damage_to_the_newer_and_death_in_the_next_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_twice(tmp_path)
    (tmp_path / CURRENT).write_bytes(b"x")
    state, corrupted = load_checkpoint(tmp_path, warn=lambda message: None)
    assert state == {"step": 1}
    assert corrupted == tmp_path / CURRENT
    remove_quietly(corrupted)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", lambda *paths: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            save_checkpoint(tmp_path, {"step": 3})
    assert load(tmp_path) == {"step": 1}


def test_two_damaged_checkpoints_are_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    save_twice(tmp_path)
    for name in (CURRENT, PREVIOUS):
        (tmp_path / name).write_bytes(b"x")
    with pytest.raises(UserError, match=r"delete .* to start the run again"):
        load(tmp_path)


def test_loading_executes_nothing(tmp_path: Path) -> None:
    class Attack:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.mkdir, (str(tmp_path / "attacked"),)

    payload = pickle.dumps(Attack(), protocol=2)
    (tmp_path / CURRENT).write_bytes(FORMAT + hashlib.sha256(payload).digest() + payload)
    with pytest.raises(UserError):
        load(tmp_path)
    assert not (tmp_path / "attacked").exists()


class Killed(BaseException):
    """Stands for the end of the process: nothing in the code under test may catch it."""


@pytest.mark.parametrize("operation", range(4))
def test_death_at_any_file_operation_leaves_a_whole_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: int
) -> None:
    save_twice(tmp_path)
    calls = iter(range(100))

    def dying(original: Any) -> Any:
        def call(*arguments: Any) -> Any:
            if next(calls) == operation:
                raise Killed
            return original(*arguments)

        return call

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", dying(os.fsync))  # of the file, then of the folder
        patch.setattr(Path, "replace", dying(Path.replace))  # current to previous, then new to current
        with pytest.raises(Killed):
            save_checkpoint(tmp_path, {"step": 3})
    assert load(tmp_path) in ({"step": 2}, {"step": 3})
    save_checkpoint(tmp_path, {"step": 4})
    assert load(tmp_path) == {"step": 4}


def test_a_full_disk_is_one_line_and_keeps_the_old_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_checkpoint(tmp_path, {"step": 1})

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(UserError, match=r"cannot write .*checkpoint: No space left on device"):
            save_checkpoint(tmp_path, {"step": 2})
    assert load(tmp_path) == {"step": 1}
    assert not list(tmp_path.glob(".*"))
