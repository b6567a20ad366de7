"""What goes wrong is one line and an exit code, and nothing is lost."""

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from labelemb.lab.cli import command, main
from labelemb.lab.jobs import compare as compare_module
from labelemb.lab.jobs.compare import Failure, Outcome
from tests.helpers.command import SMALL, Capture, error_line
from tests.helpers.quick_runs import quick_run
from tests.helpers.tiny_data import text_rows, write_csv


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "the following arguments are required: COMMAND"),
        (("trian", "digits"), "; did you mean 'train'?"),
        (("compare", "digts"), "unknown recipe 'digts'; did you mean 'digits'"),
        (("compare", "digits", "--methods", "plane"), "unknown method 'plane'; did you mean 'plain'"),
        (("compare", "digits", "--methods", "label-embedding@taw=1"), "unknown option 'taw=1'"),
        (("compare", "digits", "--jobs", "0"), "--jobs: '0' is not a whole number of at least 1"),
        (("compare", "digits", "--seeds=-1"), "--seeds: '-1' names no seeds: give a number of seeds (5), a range"),
        (("evaluate", ".", "--csv"), "--csv writes what --worst lists: add --worst 20"),
        (("evaluate", ".", "--worst", "2", "--csv", "--json"), "--json prints and --csv writes: leave out one"),
        (("heatmap", ".", "--labels", ""), "--labels names no label"),
        (("export", ".", "-o", "missing/model.pt2"), "there is no folder missing to write model.pt2 to"),
        (("export", ".", "-o", "."), ". is a folder: name a file after -o"),
        (("predict", ".", "a.txt", "-o", "a.xlsx"), "a.xlsx is neither a .csv nor a .jsonl file"),
        (("predict", ".", "a.txt", "-o", "a.csv", "--json"), "--json prints and -o writes: leave out one"),
        (("compare", "digits", "--seeds", "9-3"), "--seeds: the range 9-3 is empty: write 3-9"),
        (("compare", "digits", "--seeds", "3,3"), "--seeds: seed 3 is given twice"),
        (("compare", "digits", "--jbos", "2"), "unrecognized arguments: --jbos 2"),
        (("train", "digits", "--set", "train.epoch=3"), "unknown key 'train.epoch'; did you mean 'train.epochs'"),
        (("train", "digits", "--set", "train.epochs"), "is not an override"),
        (("train", "digits", "--set", "train.epochs=many"), "must be a whole number"),
        (("train", "mnist-mlp", "--data", "nowhere-at-all"), "there is no file or folder nowhere-at-all"),
        (("train", "digits", "--seed", "x"), "--seed: 'x' is not a whole number"),
        (("train", "digits", "--method", "label-embedding@tau=0"), "tau is 0.0, but must be above 0"),
        (("train", "digits", "--data", "nowhere-at-all"), "leave out --data nowhere-at-all"),
        (("train", "numbers-en-vi", "--data", "nowhere-at-all"), "leave out --data nowhere-at-all"),
        (("train", "digits", "--set", "train.batch_size=10000000000000"), "must be at most 2147483647"),
        (("train", "digits", "--set", "body.hidden=[2000000000]"), "there is no memory for so large a body"),
        (("train", "digits", "--method", "label-embedding@rank=1000000000000000"), "no memory for so large a head"),
        (("train", "digits", "--seed", "9" * 30), f"{'9' * 30} is too large a seed: at most 9223372036854775807"),
        (("compare", "digits", "--jobs", "100000000000"), "100000000000 jobs are too many: at most 1024"),
        (("choose", "digits", "--fresh-seeds", "100000000000"), "100000000000 seeds are too many: at most 10000"),
        (("choose", "digits", "--seed", str(2**63 - 1)), "9223372036854775808 is not a seed"),
        (("train", "digits", "--threads", "100000000000"), "100000000000 threads are too many: at most 1024"),
        (("train", "digits", "--checkpoint-seconds", "nan"), "'nan' is not a number of seconds, 0 or more"),
        (("train", "digits", "--checkpoint-seconds", "-1"), "'-1' is not a number of seconds, 0 or more"),
        (("recipes", "--json", "copy", "digits", "mine.toml"), "--json is for `labelemb recipes list` and `show`"),
        (("data", "--json", "fetch", "no-such"), "--json is for `labelemb data list` and `where`, not for `fetch`"),
        (("data", "--data", ".", "fetch", "no-such"), "--data is for `labelemb data list` and `where`; `fetch` has"),
        (("recipes", "copy", "digits", "mine"), "mine does not end in .toml"),
        (("compare", "digits", "--precision", "16-mixed", "--device", "cpu"), "16-mixed is for CUDA devices"),
        (("evaluate", "no-such-run"), "there is no run folder no-such-run"),
        (("predict", "no-such-run", "x.png"), "there is no run folder no-such-run"),
        (("nearest", "no-such-run", "8"), "there is no run folder or file no-such-run"),
        (("recipes", "show", "minst-mlp"), "'minst-mlp'; did you mean 'mnist-mlp'? (see `labelemb recipes`)"),
        (("compare", "no-such"), "unknown recipe 'no-such' (see `labelemb recipes`, or give a .toml file)"),
        (("train", "digits", "--device", "gpu"), "(choose from auto, cpu, cuda) (see `labelemb train"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture, arguments: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert message in error_line(capsys, *arguments)
    assert not list(tmp_path.rglob("result.json"))


def test_labels_and_files_that_a_run_does_not_have_are_named(run: Path, tmp_path: Path, capsys: Capture) -> None:
    assert "unknown label 'cat'" in error_line(capsys, "nearest", str(run), "cat")
    assert "unknown label 'cat'" in error_line(capsys, "heatmap", str(run), "--labels", "1,cat")
    assert "no finished run" in error_line(capsys, "evaluate", str(tmp_path))
    assert "there is no file" in error_line(capsys, "predict", str(run), str(tmp_path / "missing.png"))
    foreign = tmp_path / "foreign.safetensors"
    foreign.write_bytes(b"not a label space")
    assert str(foreign) in error_line(capsys, "nearest", str(foreign), "8")


def test_a_run_without_a_label_space_says_why(tmp_path: Path, capsys: Capture) -> None:
    quick_run(tmp_path, method="plain")
    assert "the method plain learns none" in error_line(capsys, "nearest", str(tmp_path), "8")


def test_a_damaged_result_is_named(tmp_path: Path, capsys: Capture) -> None:
    for content in ('{"half":', "[]", '{"method": "plain"}'):
        (tmp_path / "result.json").write_text(content)
        for verb in ("evaluate", "report"):
            assert "result.json is damaged" in error_line(capsys, verb, str(tmp_path))


@pytest.mark.parametrize("name", ["run.json", "model.json"])
def test_a_run_whose_files_lack_something_is_named(tmp_path: Path, run: Path, capsys: Capture, name: str) -> None:
    copied = shutil.copytree(run, tmp_path / "run")
    (copied / name).write_text("{}")
    assert f"{name} is damaged (Object missing required field " in error_line(capsys, "evaluate", str(copied))


def test_finished_runs_are_not_taken_for_those_of_other_data(tmp_path: Path, capsys: Capture) -> None:
    table, rows = tmp_path / "texts.csv", text_rows()
    arguments = ("text-csv", "--data", str(write_csv(table, rows)), "--set", "train.epochs=1")
    run, folder = ("--out", str(tmp_path / "all/plain/seed-0")), ("--out", str(tmp_path / "all"))
    assert main(["train", *arguments, "--method", "plain", *run]) == 0
    assert main(["compare", *arguments, "--methods", "plain", "--seeds", "1", *folder]) == 0
    capsys.readouterr()
    write_csv(table, [*rows, ["one more about music", "music"]])
    for verb, place in (("train", (*run, "--method", "plain")), ("compare", (*folder, "--methods", "plain"))):
        assert "holds a run of other data" in error_line(capsys, verb, *arguments, *place)
    table.unlink()
    assert "there is no file or folder" in error_line(capsys, "train", *arguments, "--method", "plain", *run)


def test_a_folder_of_another_recipe_is_refused(run: Path, capsys: Capture) -> None:
    message = error_line(capsys, "train", "digits", "--out", str(run))
    assert "holds a run of another recipe (" in message
    assert "train.epochs is 3 there and 30 here" in message


def test_a_comparison_leaves_a_single_run_in_its_folder_alone(run: Path, capsys: Capture) -> None:
    before = (run / "recipe.toml").read_text()
    message = error_line(capsys, "compare", "digits", "--methods", "plain", "--seeds", "1", "--out", str(run))
    assert "holds a single run" in message
    assert (run / "recipe.toml").read_text() == before


def test_an_output_that_cannot_be_written_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    # a superuser, as in a container, may write anywhere: the system's refusal is put in its place
    def refuse(path: Path, *arguments: Any, **keywords: Any) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "mkdir", refuse)
    for verb in ("compare", "train"):
        assert "Read-only file system" in error_line(capsys, verb, "digits", "--out", str(tmp_path / "x" / "y"), *SMALL)


def test_a_file_in_the_place_of_the_output_folder_is_one_line(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "taken").write_text("")
    assert "cannot create the folder" in error_line(capsys, "compare", "digits", "--out", str(tmp_path / "taken"))


def test_a_disk_that_fills_up_at_any_file_is_one_line_and_the_run_goes_on_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    original = os.fsync

    def train(out: Path, full_at: int) -> int:
        """The exit code on a disk that is full at this write; 0 also where there were fewer."""
        writes = iter(range(1000))

        def fsync(descriptor: int) -> None:
            if next(writes) == full_at:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            original(descriptor)

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", fsync)
            return main(("train", "digits", "--out", str(out), *SMALL))

    full_at, code = 0, 2
    while code:
        code = train(tmp_path / str(full_at), full_at)
        captured = capsys.readouterr()
        if code:
            assert code == 2
            assert len(captured.err.splitlines()) == 1
            assert "No space left on device" in captured.err
            assert train(tmp_path / str(full_at), full_at=-1) == 0
        full_at += 1
    assert full_at > 10


@pytest.mark.parametrize(("user_error", "code"), [(True, 2), (False, 1)])
def test_failed_runs_make_the_exit_code_nonzero(
    monkeypatch: pytest.MonkeyPatch, user_error: bool, code: int, capsys: Capture
) -> None:
    failures = [Failure("plain seed 0", "", user_error)]
    monkeypatch.setattr(compare_module, "compare", lambda *arguments, **options: Outcome(None, failures))
    assert main(["compare", "digits"]) == code


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is one of Linux")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("train", "text-csv", "--data", "big.csv"), "cannot read big.csv: not enough memory for its 8,000,000,000"),
        (("nearest", "big.csv", "8"), "big.csv: not enough memory to read it"),
        (("train", "big.toml"), "cannot read the recipe big.toml: it has 8,000,000,000 bytes, at most"),
    ],
)
def test_a_file_larger_than_the_memory_is_one_line(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    for name in ("big.csv", "big.toml"):
        (tmp_path / name).touch()
        os.truncate(tmp_path / name, 8_000_000_000)  # a hole: takes no disk
    limited = (
        "import resource, sys; from labelemb.lab.cli import main; "
        "resource.setrlimit(resource.RLIMIT_AS, (5 * 10**9, resource.RLIM_INFINITY)); sys.exit(main(sys.argv[1:]))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", limited, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2, ended.stderr
    assert len(ended.stderr.splitlines()) == 1
    assert message in ended.stderr


def test_running_out_of_memory_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr(command, "execute", MagicMock(side_effect=MemoryError))
    assert "not enough memory" in error_line(capsys, "recipes")


def test_a_finished_run_with_damaged_weights_is_no_success(tmp_path: Path, capsys: Capture) -> None:
    arguments = ("train", "digits", *SMALL, "--out", str(tmp_path / "run"))
    assert main(arguments) == 0
    weights = tmp_path / "run" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + b"\0\1\2\3")
    capsys.readouterr()
    assert "model.safetensors is damaged (SHA-256 mismatch" in error_line(capsys, *arguments)
