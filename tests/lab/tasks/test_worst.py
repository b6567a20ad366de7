"""What a classifier gets wrong: the most confident errors, and a row for every label."""

import base64
import csv
import io
from pathlib import Path

import pytest
import torch
from PIL import Image

from labelemb import LabelSpace
from labelemb.lab.data import ImageExamples, TextInputs
from labelemb.lab.tasks.label_rows import LabelRow, by_error, label_rows
from labelemb.lab.tasks.records import Confusion
from labelemb.lab.tasks.worst import worst_examples
from labelemb.lab.trained.error_tables import show_errors, write_errors
from labelemb.lab.trained.model import ModelErrors

NAMES = ["a", "b", "c"]
LOGITS = torch.tensor([[0.0, 2.0, 0.0], [3.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 4.0, 0.0]])
TARGETS = torch.tensor([0, 0, 1, 2])


def test_errors_come_by_confidence_with_their_texts() -> None:
    examples = TextInputs(1, ["one"]).encode(["one", "two", "three\nlines", "four"], TARGETS)
    examples.texts = ["one", "two", "three\nlines", "four"]
    found = worst_examples(examples, LOGITS, NAMES, 2)
    assert [(example.number, example.label, example.predicted, example.text) for example in found] == [
        (3, "c", "b", "four"),
        (0, "a", "b", "one"),
    ]
    assert found[0].probability == float(LOGITS[3].double().softmax(-1)[1])
    last = worst_examples(examples, LOGITS, NAMES, 9)[2]
    assert (last.text, last.shortened().text) == ("three\nlines", "three lines")


def test_the_csv_has_the_whole_text_as_it_was(tmp_path: Path) -> None:
    text = "many words, \x1b[31mred " * 50
    examples = TextInputs(1, ["one"]).encode([text] * 4, TARGETS)
    examples.texts = [text] * 4
    errors = ModelErrors(worst_examples(examples, LOGITS, NAMES, 2), [])
    file, _ = write_errors(errors, tmp_path)
    with file.open(encoding="utf-8-sig", newline="") as rows:
        assert [row["text"] for row in csv.DictReader(rows)] == [text] * 2
    printed = show_errors(errors, 2)
    assert max(map(len, printed.splitlines())) <= 80
    assert "\x1b" not in printed


def test_tables_of_different_places_have_different_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here := tmp_path / "here").mkdir()
    monkeypatch.chdir(here)
    for place, name in (
        ("new.csv", "new"),
        ("new.csv.gz", "new"),
        ("new.jsonl", "new.jsonl"),
        ("new.2024.csv", "new.2024"),
        ("new.2025.csv", "new.2025"),
        (".new.csv", ".new"),
        ("may/new.csv", "may-new"),
        ("june/new.csv", "june-new"),
        ("/elsewhere/new.csv", "elsewhere-new"),
        ("/", "root"),
    ):
        files = write_errors(ModelErrors([], []), tmp_path, Path(place))
        assert [file.name for file in files] == [f"worst-{name}.csv", f"labels-{name}.csv"]
    assert write_errors(ModelErrors([], []), tmp_path, Path())[0].name.endswith("-here.csv")
    assert write_errors(ModelErrors([], []), tmp_path, Path("ä" * 100, "b" * 200))[0].name == f"worst-{'b' * 200}.csv"


def test_errors_of_images_have_small_pictures() -> None:
    images = torch.full((4, 3, 96, 48), 200, dtype=torch.uint8)
    found = worst_examples(ImageExamples(images, TARGETS), LOGITS, NAMES, 1)[0]
    picture = Image.open(io.BytesIO(base64.b64decode(found.picture)))
    assert picture.size == (24, 48)
    assert picture.getpixel((0, 0)) == (200, 200, 200)
    assert found.text == ""


def test_a_model_without_errors_has_none() -> None:
    examples = ImageExamples(torch.zeros(4, 1, 2, 2, dtype=torch.uint8), LOGITS.argmax(-1))
    found = worst_examples(examples, LOGITS, NAMES, 5)
    assert found == []
    assert show_errors(ModelErrors(found, []), 5, "new.csv").splitlines()[0] == "No errors on new.csv"


def test_an_example_without_text_or_file_is_called_by_its_place() -> None:
    texts = TextInputs(1, ["one"]).encode(["", "", "", ""], TARGETS)
    texts.texts = [""] * 4
    images = ImageExamples(torch.zeros(4, 1, 2, 2, dtype=torch.uint8), TARGETS)
    for examples, name in ((texts, "example 3"), (images, "image 3")):
        first = show_errors(ModelErrors(worst_examples(examples, LOGITS, NAMES, 1), []), 1).splitlines()[2]
        assert first.endswith(f"  {name}")


def test_every_label_has_a_row_with_what_is_known() -> None:
    confusion = Confusion(NAMES, [4, 0, 2], [(0, 1, 1), (0, 2, 2)])
    counts = torch.tensor([3, 0, 1])
    logits = torch.tensor([[3.0, 1.0, 2.0], [0.0, 3.0, 1.0], [2.0, 1.0, 3.0]])
    space = LabelSpace.from_matrix(logits, NAMES, kind="logit", counts=counts)
    a, b, c = label_rows(confusion, space)
    assert (a.examples, a.error, a.confused_with, a.confused, a.nearest, a.observed) == (4, 75.0, "c", 2, "c", True)
    assert (b.examples, b.error, b.confused_with, b.observed) == (0, None, None, False)
    assert (b.nearest, b.similarity) == (None, None)  # never observed right: its neighbours mean nothing
    assert (c.error, c.confused, c.nearest) == (0.0, 0, "a")
    assert [row.label for row in by_error([b, c, a])] == ["a", "c", "b"]
    assert label_rows(confusion, None)[1] == LabelRow("b", 0, None, None, 0)
    assert [row.error for row in label_rows(None, space)] == [None] * 3
