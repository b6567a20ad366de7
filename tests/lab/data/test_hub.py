"""Data sets of the library `datasets`, saved by the tests: columns, splits, names, images and mistakes."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from labelemb.lab.data import ImageExamples, lasting_path, load_data
from labelemb.lab.recipes.recipe import load_recipe
from labelemb.lab.runs.loop import train_run
from labelemb.lab.trained.model import TrainedModel
from labelemb.support.errors import UserError
from tests.helpers.tiny_data import text_rows

datasets = pytest.importorskip("datasets", reason="no datasets: pip install 'labelemb[datasets]'")

NAMES = ["weather", "music"]
"""Not sorted, so that the order of the data set can be told from ours."""


def texts(per_label: int = 10, column: str = "text", label: str = "label") -> "datasets.Dataset":
    _, *rows = text_rows(per_label)
    features = datasets.Features({column: datasets.Value("string"), label: datasets.ClassLabel(names=NAMES)})
    values = {column: [text for text, _ in rows], label: [NAMES.index(name) for _, name in rows]}
    return datasets.Dataset.from_dict(values, features=features)


def saved(folder: Path, data: object) -> Path:
    data.save_to_disk(folder)  # type: ignore[attr-defined]
    return Path(f"hf:{folder}")


def error_of(path: Path, recipe: str = "text-csv", *overrides: str) -> str:
    with pytest.raises(UserError) as caught:
        load_data(load_recipe(recipe, list(overrides)), path, 0)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_texts_are_trained_on_and_evaluated_with_the_names_and_splits_of_the_data_set(tmp_path: Path) -> None:
    splits = {"train": texts(20), "validation": texts(3), "test": texts(4), "unsupervised": texts(1)}
    path = saved(tmp_path / "intents", datasets.DatasetDict(splits))
    recipe = load_recipe("text-csv", ["train.epochs=1"])
    result = train_run(recipe, "plain", 0, path, tmp_path / "run")
    counts = result.examples
    assert (counts.train, counts.dev, counts.test, counts.labels) == (40, 6, 8, 2)
    model = TrainedModel(tmp_path / "run")
    assert model.label_names == NAMES
    assert model.evaluate()["test"].error == result.test_error, "found again without --data"


def test_a_data_set_without_splits_is_split_as_a_table_is(tmp_path: Path) -> None:
    data = load_data(load_recipe("text-csv"), saved(tmp_path / "intents", texts(20)), 0)
    assert data.dev is not None
    assert (len(data.train), len(data.dev), len(data.test)) == (32, 4, 4)


def test_columns_are_found_by_their_types_or_named(tmp_path: Path) -> None:
    path = saved(tmp_path / "other", texts(20, column="utterance", label="intent"))
    assert load_data(load_recipe("text-csv"), path, 0).label_names == NAMES
    named = ["data.text_column=utterance", "data.label_column=intent"]
    assert load_data(load_recipe("text-csv", named), path, 0).label_names == NAMES
    assert "no column 'words': set data.text_column to one of 'utterance', 'intent'" in error_of(
        path, "text-csv", "data.text_column=words"
    )
    twice = texts(20, column="title").add_column("body", ["x"] * 40)
    assert "no column 'text'" in error_of(saved(tmp_path / "twice", twice))


def test_labels_that_are_texts_or_numbers_are_sorted(tmp_path: Path) -> None:
    _, *rows = text_rows(10, labels=[str(number) for number in (10, 9, 1)])
    for name, kind in (("numbers", int), ("texts", str)):
        values = {"text": [text for text, _ in rows], "label": [kind(label) for _, label in rows]}
        path = saved(tmp_path / name, datasets.Dataset.from_dict(values))
        assert load_data(load_recipe("text-csv"), path, 0).label_names == ["1", "9", "10"]


def test_images_are_read_at_the_recipes_size(tmp_path: Path) -> None:
    colors = {"red": (200, 0, 0), "blue": (0, 0, 200)}
    pictures = [Image.new("RGB", (9 + number, 20), color) for color in colors.values() for number in range(10)]
    features = datasets.Features({"img": datasets.Image(), "fine": datasets.ClassLabel(names=list(colors))})
    values = {"img": pictures, "fine": [label for label in (0, 1) for _ in range(10)]}
    path = saved(tmp_path / "colors", datasets.Dataset.from_dict(values, features=features))
    data = load_data(load_recipe("image-folder", ["data.image_size=8"]), path, 0)
    assert isinstance(data.train, ImageExamples)
    assert data.label_names == ["red", "blue"]
    assert data.train.images.shape[1:] == (3, 8, 8)
    for image, target in zip(data.train.images, data.train.targets, strict=True):
        assert np.array_equal(image[:, 0, 0], colors[data.label_names[int(target)]])


def test_an_image_that_cannot_be_read_is_named_or_left_out(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8)).save(buffer, "PNG")
    files = [{"bytes": buffer.getvalue(), "path": None}] * 20 + [{"bytes": b"no image", "path": None}]
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=NAMES)})
    values = {"image": files, "label": [0, 1] * 10 + [0]}
    path = saved(tmp_path / "damaged", datasets.Dataset.from_dict(values, features=features))
    assert "train, row 20 cannot be read as an image" in error_of(path, "image-folder")
    data = load_data(load_recipe("image-folder", ["data.skip_corrupt=true"]), path, 0)
    assert data.dev is not None
    assert len(data.train) + len(data.dev) + len(data.test) == 20


def test_a_folder_of_files_is_read_without_save_to_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "csv").mkdir()
    lines = [",".join(row) for row in text_rows(20)]
    (tmp_path / "csv" / "train.csv").write_text("\n".join(lines))
    data = load_data(load_recipe("text-csv"), Path(f"hf:{tmp_path / 'csv'}"), 0)
    assert data.label_names == ["music", "weather"]


def test_mistakes_are_one_line(tmp_path: Path) -> None:
    assert "there is no folder ./nowhere" in error_of(Path("hf:./nowhere"))
    only_test = saved(tmp_path / "test-only", datasets.DatasetDict({"test": texts()}))
    assert "no training rows: its splits are 'test'" in error_of(only_test)
    unknown = texts().map(lambda row: {"label": -1})
    assert "row 0: -1 is no label (column 'label')" in error_of(saved(tmp_path / "unknown", unknown))
    empty = datasets.Dataset.from_dict({"text": [None, "b"], "label": ["x", "y"]})
    assert "row 0: nothing in column 'text'" in error_of(saved(tmp_path / "empty", empty))
    (tmp_path / "script").mkdir()
    (tmp_path / "script" / "script.py").write_text("raise SystemExit('executed')")
    assert "cannot be read" in error_of(Path(f"hf:{tmp_path / 'script'}"))


def test_a_name_of_the_hub_without_network_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(name: str) -> None:
        raise ConnectionError(f"Couldn't reach {name!r}\non the Hub")

    monkeypatch.setattr(datasets, "load_dataset", unreachable)
    assert "hf:banking77: there is no such folder, and the Hugging Face hub cannot be reached" in error_of(
        Path("hf:banking77")
    )


def test_a_run_remembers_a_folder_whatever_the_current_one_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "intents").mkdir()
    assert lasting_path(Path("hf:./intents")) == f"hf:{tmp_path / 'intents'}"
    assert lasting_path(Path("hf:banking77")) == "hf:banking77"
