"""New inputs for a trained run: encoded as the training data was."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from labelemb.lab.data import Dataset, TextExamples, TextInputs, input_form, load_data, read_inputs
from labelemb.lab.recipes.recipe import Recipe, load_recipe
from labelemb.support.errors import UserError
from tests.helpers.tiny_data import text_rows, write_csv, write_image

TinyData = Callable[[str], Path | None]


@pytest.fixture
def text_run(tiny_data: TinyData) -> tuple[Recipe, Dataset]:
    recipe = load_recipe("text-csv")
    return recipe, load_data(recipe, tiny_data("text-csv"), seed=1)


@pytest.fixture
def image_run(tiny_data: TinyData) -> tuple[Recipe, Dataset]:
    recipe = load_recipe("image-folder")
    return recipe, load_data(recipe, tiny_data("image-folder"), seed=1)


def test_the_form_of_inputs_survives_json(text_run: tuple[Recipe, Dataset], image_run: tuple[Recipe, Dataset]) -> None:
    for _, dataset in (text_run, image_run):
        assert input_form(json.loads(json.dumps(dataset.inputs.to_dict()))) == dataset.inputs
    with pytest.raises(UserError, match=r"the saved form of the inputs cannot be read: .*'sound'"):
        input_form({"kind": "sound"})


def test_texts_of_the_training_data_are_encoded_as_in_training(text_run: tuple[Recipe, Dataset]) -> None:
    _, dataset = text_run
    texts = [row[0] for row in text_rows()[1:]]
    assert isinstance(dataset.inputs, TextInputs)
    encoded = dataset.inputs.encode(texts)
    assert isinstance(encoded, TextExamples)
    assert isinstance(dataset.test, TextExamples)

    def bags(examples: TextExamples) -> set[tuple[int, ...]]:
        every = (examples.batch(torch.tensor([number]))[0][0] for number in range(len(examples)))
        return {tuple(bag.tolist()) for bag in every}

    assert bags(dataset.test) <= bags(encoded)
    assert encoded.targets.tolist() == [-1] * len(texts)


def test_text_lines_and_table_rows_are_read_with_their_places(text_run: tuple[Recipe, Dataset], tmp_path: Path) -> None:
    recipe, dataset = text_run
    lines = tmp_path / "lines.txt"
    lines.write_text("about music\n\nabout weather\n")
    table = write_csv(tmp_path / "new.csv", [["id", "text"], ["1", "about weather"]])
    names, examples = read_inputs(dataset.inputs, recipe.data, [lines, table])
    assert [str(name) for name in names] == [
        f"{lines}, line 1: about music",
        f"{lines}, line 3: about weather",
        f"{table}, line 2: about weather",
    ]
    assert [(name.file, name.line, name.text) for name in names[1:]] == [
        (str(lines), 3, "about weather"),
        (str(table), 2, "about weather"),
    ]
    bags = [examples.batch(torch.tensor([number]))[0][0].tolist() for number in range(3)]
    assert bags[1] == bags[2] != bags[0]


def test_only_line_breaks_end_a_line_and_a_name_has_no_tabs(text_run: tuple[Recipe, Dataset], tmp_path: Path) -> None:
    recipe, dataset = text_run
    lines = tmp_path / "lines.txt"
    lines.write_text("about\x0cmusic\u2028and\x85more\r\nabout\tweather\n", newline="", encoding="utf-8")
    names, _ = read_inputs(dataset.inputs, recipe.data, [lines])
    assert [str(name) for name in names] == [
        f"{lines}, line 1: about music and more",
        f"{lines}, line 2: about weather",
    ]


def test_tables_of_every_kind_that_trains_are_read_and_each_name_is_one_line(
    text_run: tuple[Recipe, Dataset], tmp_path: Path
) -> None:
    recipe, dataset = text_run
    parts = tmp_path / "parts.json"
    parts.write_text('{"train": [["about\\nmusic", "music"]], "test": [["about weather", "weather"]]}')
    names, examples = read_inputs(dataset.inputs, recipe.data, [parts])
    assert [str(name) for name in names] == [
        f"{parts}, train entry 1: about music",
        f"{parts}, test entry 1: about weather",
    ]
    assert len(examples) == 2


def test_images_and_folders_of_images_are_read(image_run: tuple[Recipe, Dataset], tmp_path: Path) -> None:
    recipe, dataset = image_run
    write_image(tmp_path / "new" / "b.png", (200, 0, 0), size=(50, 60))
    write_image(tmp_path / "new" / "a.png", (0, 0, 200))
    names, examples = read_inputs(dataset.inputs, recipe.data, [tmp_path / "new", tmp_path / "new" / "b.png"])
    assert [Path(name.file).name for name in names] == ["a.png", "b.png", "b.png"]
    (images,), _ = examples.batch(torch.arange(3))
    assert images.shape == (3, 3, 32, 32)
    red = (200 / 255 - 0.5) / 0.25
    assert images[1, 0, 0, 0].item() == pytest.approx(red, abs=1e-5)


def test_files_that_cannot_be_predicted_are_refused(
    text_run: tuple[Recipe, Dataset], image_run: tuple[Recipe, Dataset], tmp_path: Path
) -> None:
    empty = tmp_path / "empty.txt"
    empty.write_text("\n")
    for (recipe, dataset), file, message in (
        (text_run, tmp_path / "missing.txt", r"there is no file .*missing.txt"),
        (text_run, empty, r"nothing to predict in .*empty.txt"),
        (image_run, empty, r"empty.txt is not an image"),
    ):
        with pytest.raises(UserError, match=message):
            read_inputs(dataset.inputs, recipe.data, [file])
