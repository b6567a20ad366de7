"""The command: what each verb prints and writes."""

import csv
import json
import shutil
import tomllib
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import labelemb
from labelemb import LabelSpace
from labelemb.lab.cli import main
from labelemb.lab.recipes.recipe import recipe_names, recipe_text
from labelemb.lab.report.labels import describe
from tests.helpers.command import SMALL, Capture, error_line
from tests.helpers.tiny_data import text_rows, write_csv


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


def test_compare_prints_the_table_and_which_page_to_open(tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "all"
    assert main(["compare", "digits", "--methods", "plain", "--seeds", "1", "--out", str(out), *SMALL]) == 0
    *table, last = capsys.readouterr().out.splitlines()
    assert "| plain  |" in "\n".join(table)
    assert last.startswith(f"open {out / 'report.html'} ")
    assert (out / "report.html").exists()


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


def test_the_raw_scores_of_a_classifier_are_refused(run: Path, capsys: Capture) -> None:
    assert main(["evaluate", str(run), "--raw"]) == 2
    assert "--raw is about beam search, which classification does not need" in capsys.readouterr().err


def test_evaluate_lists_the_worst_examples_and_labels(run: Path, capsys: Capture) -> None:
    assert main(["evaluate", str(run), "--worst", "4", "--csv"]) == 0
    printed = capsys.readouterr().out
    assert "Most confident errors on the test set" in printed
    assert "Labels, the largest error first (4 of 10)" in printed
    assert all(len(line) <= 80 for line in printed.splitlines() if not line.startswith("wrote"))
    labels = list(csv.DictReader((run / "labels.csv").read_text(encoding="utf-8-sig").splitlines()))
    assert sorted(row["label"] for row in labels) == [str(digit) for digit in range(10)]
    confusion = json.loads((run / "confusion.json").read_text())
    wrong = sum(count for _, _, count in confusion["wrong"])
    found = sum(float(row["error"]) * int(row["examples"]) / 100 for row in labels)
    assert found == pytest.approx(wrong, abs=0.01)
    (run / "labels.csv").unlink()
    (run / "worst.csv").unlink()
    assert main(["evaluate", str(run), "--worst", "4", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    kept = json.loads((run / "worst.json").read_text())
    assert [example["number"] for example in found["examples"]] == [example["number"] for example in kept[:4]]


def test_predict_gives_labels_probabilities_and_alternatives(
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
    assert (music["file"], music["line"], music["text"]) == (str(lines), 1, "something about music")
    assert {other["label"] for other in music["alternatives"]} == {"weather", "sports"}
    assert music["probability"] + sum(other["probability"] for other in music["alternatives"]) == pytest.approx(1)
    assert main(["predict", str(tmp_path / "run"), str(lines), str(table), "-k", "1"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 2 + 60
    assert printed[0].split("\t")[1].startswith("music ")
    for name in ("out.csv", "out.jsonl"):
        assert main(["predict", str(tmp_path / "run"), str(lines), "-o", str(tmp_path / name)]) == 0
    first, *_ = csv.DictReader((tmp_path / "out.csv").read_text(encoding="utf-8-sig").splitlines())
    assert list(first) == ["file", "line", "text", "label", "probability", "alternatives"]
    assert (first["line"], first["text"], first["label"]) == ("1", "something about music", "music")
    assert first["alternatives"].count(";") == 1
    assert json.loads((tmp_path / "out.jsonl").read_text().splitlines()[0]) == music


@pytest.mark.parametrize(("dev_size", "said"), [("0", True), ("0.2", False)])
def test_predict_says_that_probabilities_without_a_dev_set_are_not_calibrated(
    tmp_path: Path, capsys: Capture, dev_size: str, said: bool
) -> None:
    table = write_csv(tmp_path / "texts.csv", text_rows(per_label=10, labels=("music", "weather")))
    run = ["--data", str(table), "--out", str(tmp_path / "run"), "--set", f"data.dev_size={dev_size}"]
    if said:
        run += ["--set", "train.dev=false"]
    assert main(["train", "text-csv", *run, "--set", "train.epochs=1"]) == 0
    capsys.readouterr()
    assert main(["predict", str(tmp_path / "run"), str(table), "--json"]) == 0
    printed = capsys.readouterr()
    assert ("not calibrated" in printed.err) == said
    assert len(printed.out.splitlines()) == 20


def test_a_label_with_a_line_break_is_printed_in_one_line(tmp_path: Path, capsys: Capture) -> None:
    table = write_csv(tmp_path / "texts.csv", text_rows(labels=("music", "wet\nweather")))
    run = ("--out", str(tmp_path / "run"))
    assert main(["train", "text-csv", "--data", str(table), *run, "--set", "train.epochs=1"]) == 0
    (tmp_path / "lines.txt").write_text("something about music\n")
    capsys.readouterr()
    assert main(["predict", str(tmp_path / "run"), str(tmp_path / "lines.txt")]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert "wet weather" in line


def test_nearest_lists_few_labels_and_names_a_run_of_a_comparison(run: Path, tmp_path: Path, capsys: Capture) -> None:
    assert main(["nearest", str(run)]) == 2
    assert "no label given: name some of '0', '1', '2'" in capsys.readouterr().err
    inside = tmp_path / "label-embedding" / "seed-0"
    inside.mkdir(parents=True)
    for name in ("run.json", "labels.safetensors"):
        shutil.copy(run / name, inside)
    assert main(["nearest", str(tmp_path), "8"]) == 2
    assert capsys.readouterr().err == f"labelemb: {tmp_path} holds a comparison: name one of its runs, as {inside}\n"


@pytest.mark.parametrize("verb", ["card", "evaluate", "export"])
def test_a_comparison_in_place_of_a_run_is_answered_with_one_of_its_runs(
    verb: str, run: Path, tmp_path: Path, capsys: Capture
) -> None:
    inside = shutil.copytree(run, tmp_path / "plain" / "seed-3")
    assert main([verb, str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"labelemb: {tmp_path} holds a comparison: name one of its runs, as {inside}\n"


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
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if not line.startswith(" ")] == recipe_names()
    assert max(map(len, lines)) <= 80
    for arguments in (["recipes", "list", "--json"], ["recipes", "--json", "list"], ["recipes", "--json"]):
        assert main(arguments) == 0
        assert [entry["name"] for entry in json.loads(capsys.readouterr().out)] == recipe_names()
    assert main(["recipes", "show", "mnist-mlp"]) == 0
    assert capsys.readouterr().out == recipe_text("mnist-mlp")
    assert main(["recipes", "show", "mnist-mlp", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == tomllib.loads(recipe_text("mnist-mlp"))
    copied = tmp_path / "mine.toml"
    assert main(["recipes", "copy", "mnist-mlp", str(copied)]) == 0
    assert copied.read_text() == recipe_text("mnist-mlp")
    capsys.readouterr()
    assert "already exists" in error_line(capsys, "recipes", "copy", "digits", str(copied))


def test_data_says_what_is_there_and_where(capsys: Capture, tiny_data: Callable[[str], Path | None]) -> None:
    mnist = tiny_data("mnist-mlp")
    assert mnist is not None
    assert main(["data", "where", "mnist", "--data", str(mnist.parent)]) == 0
    assert capsys.readouterr().out == f"{mnist}\n"
    assert main(["data"]) == 0
    assert "labelemb data fetch mnist" in capsys.readouterr().out
    assert main(["data", "list", "--json", "--data", str(mnist.parent)]) == 0
    listed = capsys.readouterr().out
    assert json.loads(listed)["mnist"] == str(mnist)
    assert main(["data", "--json", "--data", str(mnist.parent), "list"]) == 0
    assert capsys.readouterr().out == listed
    assert main(["data", "--json", "--data", str(mnist.parent), "where", "mnist"]) == 0
    assert json.loads(capsys.readouterr().out) == {"mnist": str(mnist)}
    assert "did you mean 'mnist'" in error_line(capsys, "data", "where", "minst")
    assert "was not found" in error_line(capsys, "data", "where", "cifar10")
    assert "there is no file or folder nowhere" in error_line(capsys, "data", "list", "--data", "nowhere")
    assert "did you mean 'mnist'" in error_line(capsys, "data", "fetch", "mnits")


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


@pytest.mark.parametrize("contrast", [1e-4, 3.0])
def test_nearest_says_where_too_little_was_learned(contrast: float, tmp_path: Path, capsys: Capture) -> None:
    logits = contrast * torch.randn(30, 30, generator=torch.Generator().manual_seed(0))
    LabelSpace.from_matrix(logits + logits.T, kind="logit").save(tmp_path / "space.safetensors")
    assert main(["nearest", str(tmp_path / "space.safetensors"), "8"]) == 0
    assert ("too little was learned" in capsys.readouterr().out) == (contrast < 1)


@pytest.mark.parametrize("preferred", [0.0, 1.0])
def test_labels_that_differ_only_in_what_they_keep_for_themselves_were_learned_too_little(
    preferred: float, tmp_path: Path, capsys: Capture
) -> None:
    logits = torch.diag(torch.linspace(0.3, 2.0, 8))
    logits[2, 5] = logits[5, 2] = preferred
    space = LabelSpace.from_matrix(logits, kind="logit")
    space.save(tmp_path / "space.safetensors")
    assert main(["nearest", str(tmp_path / "space.safetensors"), "2"]) == 0
    assert ("too little was learned" in capsys.readouterr().out) == (preferred == 0)
    assert (describe(space)["alike"] is None) == (preferred > 0)


def test_three_pairs_that_list_only_each_other_stand_out() -> None:
    rows = torch.tensor([[0.6, 0.4], [0.7, 0.3], [0.9, 0.1]]).repeat_interleave(2, dim=0)
    partners = torch.tensor([[0, 1], [1, 0], [2, 3], [3, 2], [4, 5], [5, 4]])
    matrix = torch.zeros(6, 6).scatter_(1, partners, rows)
    assert describe(LabelSpace.from_matrix(matrix, kind="probability"))["alike"] is None
