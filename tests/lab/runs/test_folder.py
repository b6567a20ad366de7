"""The folder of a run: what is kept in it, what is noticed, and what a failure leaves."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from labelemb.lab.cli import main
from labelemb.lab.runs.checkpoint.file import CURRENT, PREVIOUS
from labelemb.lab.runs.folder import RunFolder
from labelemb.lab.runs.messages import Progress, RunOptions
from labelemb.lab.tasks.records import Confusion, read_record
from labelemb.support.errors import UserError
from tests.helpers.command import SMALL, Capture, error_line
from tests.helpers.quick_runs import quick_recipe, quick_run, read_records


@pytest.fixture
def copied(run: Path, tmp_path: Path) -> Path:
    """A finished run, to damage."""
    return shutil.copytree(run, tmp_path / "run")


def test_flipped_bytes_in_the_weights_are_refused(copied: Path, capsys: Capture) -> None:
    model = copied / "model.safetensors"
    content = bytearray(model.read_bytes())
    content[-5] ^= 1
    model.write_bytes(content)
    for arguments in (("evaluate", str(copied)), ("export", str(copied))):
        assert "model.safetensors is damaged (SHA-256 mismatch: expected " in error_line(capsys, *arguments)


def test_label_names_that_were_changed_are_refused(copied: Path, capsys: Capture) -> None:
    about = copied / "model.json"
    about.write_text(about.read_text().replace('"7"', '"8"').replace('"3"', '"7"'))
    assert "model.json is damaged (SHA-256 mismatch" in error_line(capsys, "evaluate", str(copied))


def test_a_run_of_before_the_checksums_is_read(copied: Path) -> None:
    result = copied / "result.json"
    values = json.loads(result.read_text())
    del values["checksums"]
    result.write_text(json.dumps(values))
    tensors, about = RunFolder(copied).read_model()
    assert len(tensors["head.predictor.weight"]) == len(about.label_names)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999", "1e200", str(10**30), "[" * 100_000])
def test_numbers_that_no_run_writes_are_refused_in_every_record(tmp_path: Path, number: str) -> None:
    file = tmp_path / "confusion.json"
    file.write_text('{"labels": ["a"], "examples": [1], "wrong": [[0, 0, ' + number + "]]}")
    with pytest.raises(UserError, match=r"confusion\.json is damaged \("):
        read_record(file, Confusion)


@pytest.mark.parametrize("wrong", ["[[0, 1, 1]]", "[[-1, 0, 1]]", "[[0, 0]]", "5"])
def test_confusions_of_labels_that_are_not_there_are_refused(tmp_path: Path, wrong: str) -> None:
    file = tmp_path / "confusion.json"
    file.write_text('{"labels": ["a"], "examples": [1], "wrong": ' + wrong + "}")
    with pytest.raises(UserError, match="is damaged"):
        read_record(file, Confusion)


def test_a_finished_run_has_no_checkpoint(run: Path) -> None:
    assert not (run / CURRENT).exists()
    assert not (run / PREVIOUS).exists()


def test_a_finished_run_keeps_its_last_checkpoint_if_it_is_told_to(tmp_path: Path) -> None:
    keep = RunOptions(checkpoint_seconds=0.0, keep_checkpoints=True)
    quick_run(tmp_path, options=keep)
    quick_run(tmp_path, options=keep)
    assert (tmp_path / CURRENT).exists()
    assert not (tmp_path / PREVIOUS).exists()


def test_what_a_kill_left_after_the_result_is_removed_by_the_next_command(copied: Path) -> None:
    for name in (CURRENT, PREVIOUS, ".labelemb-0123.tmp"):
        (copied / name).write_bytes(b"x")
    before = (copied / "result.json").read_bytes()
    quick_run(copied)
    assert not {CURRENT, PREVIOUS, ".labelemb-0123.tmp"} & {file.name for file in copied.iterdir()}
    assert (copied / "result.json").read_bytes() == before


@pytest.mark.parametrize("damage", [Path.unlink, lambda file: file.write_text("")], ids=["removed", "emptied"])
def test_metrics_that_somebody_removes_from_a_running_training_are_written_anew(
    tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    file = tmp_path / "metrics.jsonl"
    warnings: list[str] = []

    def remove(progress: Progress) -> None:
        if progress.step == 20:
            damage(file)

    quick_run(tmp_path, report=remove, warn=warnings.append)
    assert [record["step"] for record in read_records(tmp_path)] == [10, 20, 30]
    assert warnings == [f"{file} was removed or changed during the training: writing it again"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("train", "mnist-mlp", "--data", "empty"),
        ("compare", "mnist-mlp", "--data", "empty"),
        ("train", "digits", "--set", "body.hidden=[2000000000]"),
        ("compare", "digits", "--set", "body.hidden=[2000000000]"),
        ("train", "digits", "--labels", "nowhere"),
    ],
)
def test_a_command_that_fails_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture, arguments: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    error_line(capsys, *arguments)
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]


def test_a_command_that_fails_leaves_what_was_there(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "notes.txt").write_text("mine")
    error_line(capsys, "train", "mnist-mlp", "--data", str(tmp_path), "--out", str(tmp_path / "runs"))
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["notes.txt"]


def test_the_command_keeps_checkpoints_if_it_is_told_to(tmp_path: Path) -> None:
    assert main(["train", "digits", *SMALL, "--keep-checkpoints", "--out", str(tmp_path)]) == 0
    assert (tmp_path / CURRENT).exists()
    assert main(["train", "digits", *SMALL, "--out", str(tmp_path)]) == 0
    assert (tmp_path / CURRENT).exists(), "a finished run keeps what it was trained to keep"


def test_a_finished_run_is_not_changed_by_a_refusal(copied: Path) -> None:
    (copied / CURRENT).write_bytes(b"x")
    with pytest.raises(UserError, match="holds a run of another recipe"):
        quick_run(copied, quick_recipe("train.lr=0.5"))
    assert (copied / CURRENT).exists()
