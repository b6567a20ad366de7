"""The command: what each verb prints, and one line and an exit code for what goes wrong."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from quick_runs import quick_run
from tiny_data import text_rows, write_csv

import labelemb
from labelemb import LabelSpace
from labelemb.lab import compare as compare_module
from labelemb.lab.checkpoint import CURRENT
from labelemb.lab.cli import main
from labelemb.lab.compare import Outcome
from labelemb.lab.interrupts import Interrupted
from labelemb.lab.messages import Progress
from labelemb.lab.recipe import recipe_names, recipe_text

SMALL = ("--set", "train.epochs=2", "--set", "body.hidden=[16]", "--set", "train.lr=0.01")

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run")
    quick_run(out)
    return out


def error_line(capsys: Capture, *arguments: str, code: int = 2) -> str:
    """Runs the command, which must fail with one line on standard error."""
    assert main(arguments) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.splitlines()
    assert len(lines) == 1, captured.err
    assert lines[0].startswith("labelemb: ")
    return lines[0]


def test_the_version_is_printed(capsys: Capture) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"labelemb {labelemb.__version__}\n"


@pytest.mark.parametrize(
    "verb",
    [(), *((verb,) for verb in ("compare", "train", "evaluate", "predict", "nearest", "heatmap", "recipes", "data"))],
)
def test_every_verb_has_help_with_examples(capsys: Capture, verb: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*verb, "--help"])
    assert ended.value.code == 0
    help_text = capsys.readouterr().out
    assert f"labelemb {' '.join(verb)}".strip() in help_text.partition("examples:")[2]


def test_train_prints_the_scores_and_where_the_run_is(tmp_path: Path, capsys: Capture) -> None:
    assert main(["train", "digits", "--method", "plain", "--out", str(tmp_path / "run"), *SMALL]) == 0
    printed = capsys.readouterr().out
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert printed.startswith(f"test error {result['test_error']:.2f} %, dev error {result['dev_error']:.2f} %")
    assert str(tmp_path / "run") in printed


def test_train_puts_runs_where_compare_looks_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", "digits", "--method", "label-smoothing@0.20", "--seed", "3", "--json", *SMALL]) == 0
    result = json.loads(capsys.readouterr().out)
    assert json.loads(Path("runs/digits/label-smoothing@0.2/seed-3/result.json").read_text()) == result


def test_flags_for_device_and_precision_change_the_recipe(tmp_path: Path) -> None:
    arguments = ("--device", "cpu", "--precision", "bf16-mixed", "--threads", "1")
    assert main(["train", "digits", "--out", str(tmp_path), *arguments, *SMALL]) == 0
    recipe = (tmp_path / "recipe.toml").read_text()
    assert 'device = "cpu"' in recipe
    assert 'precision = "bf16-mixed"' in recipe


def test_the_kept_command_names_no_folder_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["train", "digits", "--out", str(tmp_path / "here"), *SMALL]
    monkeypatch.setattr("sys.argv", ["/somewhere/bin/labelemb", *arguments])
    assert main(arguments) == 0
    result = json.loads((tmp_path / "here" / "result.json").read_text())
    assert result["command"].startswith("labelemb train digits --out here --set train.epochs=2")
    arguments[2:4] = [f"--out={tmp_path / 'there'}"]
    monkeypatch.setattr("sys.argv", ["/somewhere/bin/labelemb", *arguments])
    assert main(arguments) == 0
    result = json.loads((tmp_path / "there" / "result.json").read_text())
    assert result["command"].startswith("labelemb train digits --out=there --set train.epochs=2")


def test_evaluate_repeats_the_scores_of_the_run(run: Path, capsys: Capture) -> None:
    assert main(["evaluate", str(run), "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert scores["test"]["error"] == json.loads((run / "result.json").read_text())["test_error"]
    assert main(["evaluate", str(run)]) == 0
    assert "| test |" in capsys.readouterr().out


def test_predict_gives_labels_probabilities_and_runners_up(
    tmp_path: Path, capsys: Capture, tiny_data: Callable[[str], Path | None]
) -> None:
    table = write_csv(tmp_path / "texts.csv", text_rows(per_label=20, labels=("music", "weather", "sports")))
    arguments = ["--data", str(table), "--out", str(tmp_path / "run"), "--set", "train.epochs=20"]
    assert main(["train", "text-csv", *arguments]) == 0
    lines = tmp_path / "lines.txt"
    lines.write_text("something about music\nwhat about the weather\n")
    capsys.readouterr()
    assert main(["predict", str(tmp_path / "run"), str(lines), "--json"]) == 0
    music, weather = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (music["label"], weather["label"]) == ("music", "weather")
    assert "something about music" in music["input"]
    assert {other["label"] for other in music["runners_up"]} == {"weather", "sports"}
    assert music["probability"] + sum(other["probability"] for other in music["runners_up"]) == pytest.approx(1)
    assert main(["predict", str(tmp_path / "run"), str(lines), str(table), "-k", "1"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 2 + 60
    assert printed[0].split("\t")[1].startswith("music ")


def test_a_label_with_a_line_break_is_printed_in_one_line(tmp_path: Path, capsys: Capture) -> None:
    table = write_csv(tmp_path / "texts.csv", text_rows(labels=("music", "wet\nweather")))
    run = ("--out", str(tmp_path / "run"))
    assert main(["train", "text-csv", "--data", str(table), *run, "--set", "train.epochs=1"]) == 0
    (tmp_path / "lines.txt").write_text("something about music\n")
    capsys.readouterr()
    assert main(["predict", str(tmp_path / "run"), str(tmp_path / "lines.txt")]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert "wet weather" in line


def test_nearest_prints_neighbours_of_a_run_or_a_file(run: Path, capsys: Capture) -> None:
    assert main(["nearest", str(run), "8", "3", "-k", "2"]) == 0
    from_run = capsys.readouterr().out
    assert from_run.count("nearest to") == 2
    assert main(["nearest", str(run / "labels.safetensors"), "8", "3", "-k", "2"]) == 0
    assert capsys.readouterr().out == from_run
    assert main(["nearest", str(run), "8", "-k", "2", "--json"]) == 0
    assert [set(neighbor) for neighbor in json.loads(capsys.readouterr().out)["8"]] == [{"name", "similarity"}] * 2


def test_heatmap_writes_a_picture_of_all_or_some_labels(run: Path, tmp_path: Path, capsys: Capture) -> None:
    for more in ([], ["--labels", "3,8,9"]):
        assert main(["heatmap", str(run), "--out", str(tmp_path / "map.png"), *more]) == 0
        assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")
    assert "(3 of 10 labels)" in capsys.readouterr().out
    space = LabelSpace.from_matrix(torch.eye(3), ["wet, cold", "dry", "new\nline"])
    space.save(tmp_path / "space.safetensors")
    arguments = ["heatmap", str(tmp_path / "space.safetensors"), "--out", str(tmp_path / "map.png")]
    with warnings.catch_warnings(action="error"):
        assert main([*arguments, "--labels", '"wet, cold",dry']) == 0
    assert "(2 of 3 labels)" in capsys.readouterr().out


def test_recipes_are_listed_shown_and_copied(tmp_path: Path, capsys: Capture) -> None:
    assert main(["recipes"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == recipe_names()
    assert main(["recipes", "list", "--json"]) == 0
    assert [entry["name"] for entry in json.loads(capsys.readouterr().out)] == recipe_names()
    assert main(["recipes", "show", "mnist-mlp"]) == 0
    assert capsys.readouterr().out == recipe_text("mnist-mlp")
    copied = tmp_path / "mine.toml"
    assert main(["recipes", "copy", "mnist-mlp", str(copied)]) == 0
    assert copied.read_text() == recipe_text("mnist-mlp")
    capsys.readouterr()
    assert "is there already" in error_line(capsys, "recipes", "copy", "digits", str(copied))


def test_data_says_what_is_there_and_where(capsys: Capture, tiny_data: Callable[[str], Path | None]) -> None:
    mnist = tiny_data("mnist-mlp")
    assert mnist is not None
    assert main(["data", "where", "mnist", "--data", str(mnist.parent)]) == 0
    assert capsys.readouterr().out == f"{mnist}\n"
    assert main(["data"]) == 0
    assert "labelemb data fetch mnist" in capsys.readouterr().out
    assert main(["data", "list", "--json", "--data", str(mnist.parent)]) == 0
    assert json.loads(capsys.readouterr().out)["mnist"] == str(mnist)
    assert "did you mean 'mnist'" in error_line(capsys, "data", "where", "minst")
    assert "was not found" in error_line(capsys, "data", "where", "cifar10")
    assert "there is no file or folder nowhere" in error_line(capsys, "data", "list", "--data", "nowhere")
    assert "did you mean 'mnist'" in error_line(capsys, "data", "fetch", "mnits")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "the following arguments are required: VERB"),
        (("trian", "digits"), "invalid choice: 'trian'"),
        (("compare", "digts"), "unknown recipe 'digts'; did you mean 'digits'"),
        (("compare", "digits", "--methods", "plane"), "unknown method 'plane'; did you mean 'plain'"),
        (("compare", "digits", "--methods", "label-embedding@taw=1"), "unknown option 'taw=1'"),
        (("compare", "digits", "--jobs", "0"), "--jobs: '0' is not a whole number of at least 1"),
        (("compare", "digits", "--seeds", "-1"), "--seeds: '-1' is not a whole number of at least 1"),
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
        (("train", "digits", "--threads", "100000000000"), "100000000000 threads are too many: at most 1024"),
        (("train", "digits", "--checkpoint-seconds", "nan"), "'nan' is not a number of seconds, 0 or more"),
        (("train", "digits", "--checkpoint-seconds", "-1"), "'-1' is not a number of seconds, 0 or more"),
        (("recipes", "copy", "digits", "mine"), "mine does not end in .toml"),
        (("compare", "digits", "--precision", "16-mixed", "--device", "cpu"), "16-mixed is for CUDA devices"),
        (("evaluate", "no-such-run"), "there is no run folder no-such-run"),
        (("predict", "no-such-run", "x.png"), "there is no run folder no-such-run"),
        (("nearest", "no-such-run", "8"), "there is no run folder or file no-such-run"),
        (("recipes", "show", "minst-mlp"), "unknown recipe 'minst-mlp'; did you mean 'mnist-mlp'"),
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
    assert f"{name} is damaged (it has no " in error_line(capsys, "evaluate", str(copied))


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


def test_a_model_trained_on_another_device_is_used_on_this_one(tmp_path: Path, run: Path, capsys: Capture) -> None:
    copied = tmp_path / "run"
    shutil.copytree(run, copied)
    recipe = copied / "recipe.toml"
    text = recipe.read_text().replace('device = "auto"', 'device = "cuda"').replace('"32"', '"16-mixed"')
    assert '"cuda"' in text
    assert '"16-mixed"' in text
    recipe.write_text(text)
    assert main(["evaluate", str(copied), "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert scores["test"]["error"] == json.loads((run / "result.json").read_text())["test_error"]


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


def test_ctrl_c_saves_and_exits_with_130(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    def press(bar: object, progress: Progress) -> None:
        if progress.step == 10:
            signal.raise_signal(signal.SIGINT)

    arguments = ("train", "digits", "--out", str(tmp_path), "--checkpoint-seconds", "1000", *SMALL)
    with monkeypatch.context() as patch:
        patch.setattr("labelemb.lab.progress.RunBar.update", press)
        message = error_line(capsys, *arguments, code=130)
    assert "run the same command again to go on" in message
    assert (tmp_path / CURRENT).exists()
    assert main(arguments) == 0


def test_ctrl_c_before_the_training_exits_with_130(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    def press(*arguments: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(compare_module, "compare", press)
    assert error_line(capsys, "compare", "digits", code=130) == "labelemb: interrupted"


def test_another_ctrl_c_has_nothing_left_to_interrupt() -> None:
    pressed = """
import signal, sys
import labelemb.lab.compare
import labelemb_command

class Pressed:
    def write(self, text):  # standard error, at whose line the hand presses once more
        sys.__stderr__.write(text)
        if text == "\\n":
            signal.raise_signal(signal.SIGINT)

    def flush(self):
        pass

def press(*arguments):
    raise KeyboardInterrupt

sys.modules["labelemb.lab.compare"].compare = press
sys.argv, sys.stderr = ["labelemb", "compare", "digits"], Pressed()
code = labelemb_command.main()
signal.raise_signal(signal.SIGINT)
sys.exit(code)
"""
    ended = subprocess.run([sys.executable, "-c", pressed], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (130, "labelemb: interrupted\n")


def test_ctrl_c_while_the_command_is_imported_exits_with_130() -> None:
    pressed = """
import signal, sys
import labelemb_command

class Press:
    def find_spec(self, name, *rest):
        if name == "labelemb":
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Press())
sys.exit(labelemb_command.main())
"""
    ended = subprocess.run([sys.executable, "-c", pressed], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (130, "labelemb: interrupted\n")


def test_sigterm_exits_as_shells_expect(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    def stop(*arguments: Any) -> None:
        raise Interrupted(signal.SIGTERM)

    monkeypatch.setattr(compare_module, "compare", stop)
    error_line(capsys, "compare", "digits", code=143)


@pytest.mark.parametrize(("user_error", "code"), [(True, 2), (False, 1)])
def test_failed_runs_make_the_exit_code_nonzero(
    monkeypatch: pytest.MonkeyPatch, user_error: bool, code: int, capsys: Capture
) -> None:
    failures = [{"run": "plain seed 0", "message": "", "user_error": user_error}]
    monkeypatch.setattr(compare_module, "compare", lambda comparison: Outcome(None, failures))
    assert main(["compare", "digits"]) == code
