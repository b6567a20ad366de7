"""`labelemb evaluate --on`: a trained model is scored on examples that its run never named."""

import json
import shutil
from pathlib import Path

import pytest

from labelemb.lab.cli import main
from labelemb.lab.data.images.examples import ImageInputs
from labelemb.lab.methods.method import parse_method
from labelemb.lab.recipes.recipe import load_recipe
from labelemb.lab.runs.loop import train_run
from labelemb.lab.trained.model import TrainedModel
from labelemb.support.errors import UserError
from tests.helpers.text_models import color_run, write_colors
from tests.helpers.tiny_data import color_pairs, text_rows, write_csv, write_image, write_image_folder, write_pairs

Capture = pytest.CaptureFixture[str]
LABELS = ("music", "sports", "weather")


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on texts with three files, and its data beside it."""
    folder = tmp_path_factory.mktemp("texts")
    header, *rows = text_rows(per_label=12, labels=LABELS)
    for part, start in (("train", 0), ("dev", 1), ("test", 2)):
        write_csv(_made(folder / "data") / f"{part}.csv", [header, *rows[start::3]])
    recipe = load_recipe("text-csv", ["train.epochs=2", "train.dev=true"])
    train_run(recipe, parse_method("label-embedding"), 0, folder / "data", folder / "run")
    return folder


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on images in a train and a test folder, and its data beside it."""
    folder = tmp_path_factory.mktemp("images")
    for part in ("train", "test"):
        write_image_folder(folder / "data" / part)
    recipe = load_recipe("image-folder", ["train.epochs=2", "data.dev_size=0", "train.dev=false", "data.image_size=16"])
    train_run(recipe, parse_method("plain"), 0, folder / "data", folder / "run")
    return folder


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on twenty phrases, and its data beside it."""
    folder = tmp_path_factory.mktemp("pairs")
    color_run(folder / "run", write_colors(folder / "data"), "train.epochs=25")
    return folder


def _made(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    return folder


def refused(capsys: Capture, *arguments: object) -> str:
    assert main(["evaluate", *map(str, arguments)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1
    return captured.err


def test_the_test_set_by_its_place_has_the_scores_of_the_run(texts: Path, images: Path, pairs: Path) -> None:
    for folder, place in ((texts, "test.csv"), (images, "test"), (pairs, "all")):
        model, test = TrainedModel(folder / "run"), folder / "data" / place
        assert model.evaluate_on([test]) == {str(test): model.evaluate()["test"]}
        assert (model.evaluate()["test"].temperature is None) == (folder is images)  # the one without a dev set


def test_the_data_of_the_training_is_not_needed(texts: Path, tmp_path: Path, capsys: Capture) -> None:
    kept = shutil.copytree(texts, tmp_path / "copy")
    table = shutil.move(kept / "data" / "test.csv", tmp_path)
    shutil.rmtree(kept / "data")
    assert main(["evaluate", str(kept / "run"), "--on", str(table), "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert scores[str(table)]["error"] == json.loads((kept / "run" / "result.json").read_text())["test_error"]


def test_labels_keep_their_numbers_where_some_are_missing(texts: Path, tmp_path: Path) -> None:
    """A set of the last label alone: all right, or all wrong with that label turned into the first."""
    model = TrainedModel(texts / "run")
    table = write_csv(tmp_path / "some.csv", text_rows(labels=("weather",)))
    right = [prediction.labels[0] == "weather" for prediction in model.predict([table])]
    found = model.evaluate_on([table])[str(table)]
    assert found.error == pytest.approx(100 * (1 - sum(right) / len(right)))
    assert [row.label for row in model.errors(3, on=table).labels if row.examples] == ["weather"]


def test_several_places_have_a_row_each(texts: Path, capsys: Capture) -> None:
    places = [str(texts / "data" / f"{part}.csv") for part in ("train", "test")]
    assert main(["evaluate", str(texts / "run"), "--on", *places]) == 0
    printed = capsys.readouterr().out
    assert all(place in printed.replace("\n", "") or Path(place).name in printed for place in places)


def test_errors_on_images_name_their_files(images: Path, tmp_path: Path, capsys: Capture) -> None:
    swapped = tmp_path / "swapped"
    write_image(swapped / "red" / "really-blue.png", (0, 0, 200))
    write_image(swapped / "blue" / "really-red.png", (200, 0, 0))
    model = TrainedModel(images / "run")
    wrong = {example.file for example in model.errors(5, on=swapped).examples}
    right = {
        place.relative_to(swapped).as_posix()
        for place in sorted(swapped.rglob("*.png"))
        if next(iter(model.predict([place]))).labels[0] == place.parent.name
    }
    assert wrong | right == {"red/really-blue.png", "blue/really-red.png"}
    assert not wrong & right
    assert wrong, "a model that calls a blue image red and a red one blue has learned nothing"
    assert main(["evaluate", str(images / "run"), "--on", str(swapped), "--worst", "5"]) == 0
    printed = capsys.readouterr().out
    assert f"Most confident errors on {swapped}" in printed
    assert all(file in printed for file in wrong)


def test_a_label_with_a_slash_is_a_folder_in_a_folder(tmp_path: Path) -> None:
    names = ["bag", "T-shirt/top"]
    inputs = ImageInputs(3, [8, 8], [], [])
    for number, folder in enumerate(("bag", "T-shirt/top", "T-shirt/top/more")):
        write_image(tmp_path / folder / f"{number}.png", (0, 0, 0))
    found = inputs.read_labelled(tmp_path, load_recipe("image-folder").data, names)
    assert found.files == ["bag/0.png", "T-shirt/top/1.png", "T-shirt/top/more/2.png"]
    assert found.targets.tolist() == [0, 1, 1]
    write_image(tmp_path / "T-shirt" / "old" / "3.png", (0, 0, 0))
    with pytest.raises(UserError, match="the model has no label 'T-shirt/old'; it has 2, as bag, T-shirt/top"):
        inputs.read_labelled(tmp_path, load_recipe("image-folder").data, names)


def test_tables_of_errors_elsewhere_leave_those_of_the_test_set_alone(
    texts: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(texts / "data")
    run, table = texts / "run", texts / "data" / "train.csv"
    assert main(["evaluate", str(run), "--worst", "2", "--csv"]) == 0
    before = {name: (run / name).read_bytes() for name in ("worst.csv", "labels.csv")}
    assert main(["evaluate", str(run), "--on", str(table), "--worst", "2", "--csv"]) == 0
    assert before == {name: (run / name).read_bytes() for name in before}
    assert "worst-train.csv" in capsys.readouterr().out
    counts = (run / "labels-train.csv").read_text(encoding="utf-8-sig").splitlines()[1:]
    assert len(counts) == len(LABELS)


def test_a_file_of_a_pair_stands_for_both(pairs: Path, tmp_path: Path) -> None:
    model = TrainedModel(pairs / "run")
    write_pairs(tmp_path, ["new"], ("en", "de"), color_pairs()[:7])
    scores = [model.evaluate_on([tmp_path / name]) for name in ("new", "new.en", "new.de.gz")]
    found = [next(iter(score.values())) for score in scores]
    assert found[0] == found[1] == found[2]
    assert found[0].bleu == pytest.approx(100.0)


def test_what_cannot_be_scored_is_refused_in_a_line(
    texts: Path, images: Path, pairs: Path, tmp_path: Path, capsys: Capture
) -> None:
    unknown = write_csv(tmp_path / "unknown.csv", [["text", "label"], ["play a song", "music"], ["sell", "finance"]])
    assert "unknown.csv, line 3: the model has no label 'finance'; it has 3, as music, sports, weather" in refused(
        capsys, texts / "run", "--on", unknown
    )
    unlabelled = write_csv(tmp_path / "unlabelled.csv", [["text"], ["play a song"]])
    assert "no column 'label' (columns there: text); call it as in the table that the run was trained on" in refused(
        capsys, texts / "run", "--on", unlabelled
    )
    assert "data is a folder: name a table in it" in refused(capsys, texts / "run", "--on", texts / "data")
    lines = tmp_path / "lines.txt"
    lines.write_text("play a song\n")
    assert "a table of one part must be .csv, .tsv or .jsonl" in refused(capsys, texts / "run", "--on", lines)
    assert "there is no table" in refused(capsys, texts / "run", "--on", tmp_path / "nothing.csv")
    assert "there is no folder" in refused(capsys, images / "run", "--on", lines)
    assert "holds no images" in refused(capsys, images / "run", "--on", _made(tmp_path / "empty"))
    write_image(tmp_path / "colors" / "green" / "0.png", (0, 200, 0))
    assert "colors: the model has no label 'green'" in refused(capsys, images / "run", "--on", tmp_path / "colors")
    assert "lacks the file all.en" in refused(capsys, pairs / "run", "--on", tmp_path / "all")


def test_predict_does_not_name_settings_that_only_a_training_has(texts: Path, tmp_path: Path, capsys: Capture) -> None:
    table = write_csv(tmp_path / "new.csv", [["question"], ["play a song"]])
    assert main(["predict", str(texts / "run"), str(table)]) == 2
    line = capsys.readouterr().err
    assert "no column 'text' (columns there: question); call it as in the table that the run was trained on" in line


def test_options_that_contradict_each_other_are_refused(texts: Path, capsys: Capture) -> None:
    run, table = texts / "run", texts / "data" / "test.csv"
    assert "leave out one of them" in refused(capsys, run, "--on", table, "--data", texts / "data")
    assert "--on names 2: name one of them" in refused(capsys, run, "--on", table, table, "--worst", "3")
