"""The sheet of example pictures: every label's first test images, found again, and never large."""

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from labelemb.lab.data import Dataset, ImageExamples, TextExamples, TextInputs
from labelemb.lab.runs.example_pictures import FILE, LARGEST_SIDE, MOST_BYTES, PICTURES, draw_examples, read_examples
from labelemb.lab.tasks.records import to_json
from labelemb.support.errors import UserError
from tests.helpers.quick_runs import quick_run


def images_of(labels: int, shape: tuple[int, int, int], per_label: int = 5) -> Dataset:
    """Labels in turn; an image's pixels are the number of the image."""
    count = labels * per_label
    images = (torch.arange(count) % 256).to(torch.uint8).view(-1, 1, 1, 1).expand(-1, *shape).contiguous()
    examples = ImageExamples(images, torch.arange(count) % labels)
    return Dataset(examples, None, examples, [f"label {label}" for label in range(labels)], examples.form)


def sheet_of(data: Dataset, folder: Path) -> tuple[dict[str, object], np.ndarray]:
    content = draw_examples(data)
    assert content is not None
    (folder / FILE).write_bytes(content)
    kept = read_examples(folder / FILE)
    assert kept.png == content
    return to_json(kept.layout), np.asarray(Image.open(io.BytesIO(content)))


def picture(sheet: np.ndarray, cell: int, across: int, height: int, width: int) -> Tensor:
    top, left = cell // across * height, cell % across * width
    return torch.from_numpy(sheet[top : top + height, left : left + width].copy())


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 6, 10)])
@pytest.mark.parametrize("labels", [2, 7, 30])
def test_each_label_has_its_first_test_images(tmp_path: Path, labels: int, shape: tuple[int, int, int]) -> None:
    about, sheet = sheet_of(images_of(labels, shape), tmp_path)
    assert about["labels"] == [f"label {label}" for label in range(labels)]
    assert about["counts"] == [PICTURES] * labels
    assert about["size"] == shape[1:]
    for label in range(labels):
        for place in range(PICTURES):
            found = picture(sheet, PICTURES * label + place, about["across"], *shape[1:])  # type: ignore[arg-type]
            assert bool((found == (labels * place + label) % 256).all())


def test_a_label_with_few_test_images_says_so(tmp_path: Path) -> None:
    data = images_of(3, (1, 4, 4))
    data.test = data.test.select(torch.tensor([0, 1, 3, 6]))  # labels 0, 1, 0, 0
    about, _ = sheet_of(data, tmp_path)
    assert about["counts"] == [3, 1, 0]


def test_large_images_and_many_labels_make_small_pictures(tmp_path: Path) -> None:
    about, _ = sheet_of(images_of(4, (3, 96, 64), per_label=1), tmp_path)
    assert about["size"] == (LARGEST_SIDE, 32)
    _, sheet = sheet_of(images_of(500, (3, 64, 64), per_label=1), tmp_path)
    assert MOST_BYTES / 2 < sheet.size <= 1.1 * MOST_BYTES
    assert max(sheet.shape) < 3 * min(sheet.shape[:2])  # browsers reduce pictures that are very long


def test_without_images_or_with_too_many_labels_there_is_no_sheet() -> None:
    assert draw_examples(images_of(501, (1, 2, 2), per_label=1)) is None
    assert draw_examples(images_of(2, (2, 4, 4))) is None  # neither grey nor coloured
    texts = TextExamples(torch.zeros(0, dtype=torch.long), torch.zeros(3, dtype=torch.long), torch.zeros(2))
    assert draw_examples(Dataset(texts, None, texts, ["a", "b"], TextInputs(1, ["word"]))) is None


@pytest.mark.parametrize("content", [b"", b"no picture"])
def test_a_damaged_sheet_is_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(UserError, match="cannot be read"):
        read_examples(tmp_path / FILE)


def test_a_picture_that_is_no_sheet_is_one_line(tmp_path: Path) -> None:
    Image.new("L", (4, 4)).save(tmp_path / FILE)
    with pytest.raises(UserError, match="cannot be read"):
        read_examples(tmp_path / FILE)


def test_a_run_on_images_keeps_a_sheet(tmp_path: Path) -> None:
    quick_run(tmp_path / "run")
    assert read_examples(tmp_path / "run" / FILE).layout.labels == [str(digit) for digit in range(10)]
