"""idx files: read as written, and every kind of damage named."""

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch

from labelemb.lab.data import Dataset, load_data
from labelemb.lab.data.images.examples import ImageExamples
from labelemb.lab.data.images.idx import read_idx
from labelemb.lab.recipes.recipe import load_recipe
from labelemb.support.errors import UserError
from tests.helpers.tiny_data import IDX_FILES, write_idx, write_mnist


def load(path: Path | None, *overrides: str) -> Dataset:
    return load_data(load_recipe("mnist-mlp", ["data.dev_size=10", *overrides]), path, seed=1)


@pytest.mark.parametrize("packed", [True, False])
def test_images_and_labels_come_back_as_written(packed: bool, tmp_path: Path) -> None:
    dataset = load(write_mnist(tmp_path / "mnist", packed=packed))
    assert (len(dataset.train), len(dataset.test)) == (50, 20)
    assert dataset.dev is not None
    assert dataset.dev.targets.tolist() == list(range(10))  # the first training images
    (images,), targets = dataset.train.batch(torch.tensor([3, 0]))
    assert targets.tolist() == [3, 0]
    assert images.shape == (2, 1, 28, 28)
    assert (images[0, 0, 3 * 28 // 10] == 1).all()  # 255 becomes 1
    assert images.max() == 1
    assert images.min() >= 0


@pytest.mark.parametrize("place", [".", "mnist", "MNIST/raw"])
def test_the_folder_of_the_files_or_one_above_it_can_be_given(place: str, tmp_path: Path) -> None:
    write_mnist(tmp_path / place)
    assert len(load(tmp_path).test) == 20


def test_unpacked_files_of_mirrors_are_known_by_their_other_names(tmp_path: Path) -> None:
    folder = write_mnist(tmp_path, packed=False)
    for name in IDX_FILES:
        (folder / name).rename(folder / name.replace("-idx", ".idx"))
    assert len(load(folder).test) == 20


def test_without_a_path_the_environment_is_asked_then_the_folder_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_mnist(tmp_path / "data" / "mnist", test=30)
    assert len(load(None).test) == 30
    write_mnist(tmp_path / "elsewhere" / "mnist", test=40)
    monkeypatch.setenv("LABELEMB_DATA", str(tmp_path / "elsewhere"))
    assert len(load(None).test) == 40


def test_fashion_mnist_has_names(tmp_path: Path) -> None:
    assert load(write_mnist(tmp_path / "fashion-mnist")).label_names[7] == "sneaker"
    assert load(write_mnist(tmp_path / "mnist")).label_names[7] == "7"


@pytest.mark.parametrize("place", ["fashion-mnist", "FashionMNIST/raw"])
def test_fashion_mnist_is_found_where_it_is_pointed_at_and_nowhere_else(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_mnist(tmp_path / "data" / place)
    assert load(tmp_path / "data").label_names[7] == "sneaker"
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="no such data"):
        load(None)


def test_names_and_normalisation_can_be_set(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    names = ["data.label_names=['a','b','c','d','e','f','g','h','i','j']", "data.mean=[0.5]", "data.std=[0.25]"]
    dataset = load(tmp_path, *names)
    assert dataset.label_names[2] == "c"
    assert isinstance(dataset.train, ImageExamples)
    (images,), _ = dataset.train.batch(torch.arange(4))
    expected = (dataset.train.images[:4].double() / 255 - 0.5) / 0.25
    torch.testing.assert_close(images.double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content[:-1], "is truncated: 62735 bytes, expected 62736 for 80 x 28 x 28 values"),
        (lambda content: content + b"x", "is too long: 62737 bytes, expected 62736"),
        (lambda content: b"", "begins with nothing, expected 00 00 08 03"),
        (lambda content: content[:10], "is truncated: 10 bytes, its header alone has 16"),
        (lambda content: b"PK\x03\x04" + content, "is not an idx file of 3 dimension(s): it begins with 50 4b 03 04"),
    ],
)
def test_a_damaged_file_is_named_with_what_was_expected(change, message: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    folder = write_mnist(tmp_path, train=80, packed=False)
    file = folder / IDX_FILES[0]
    file.write_bytes(change(file.read_bytes()))
    with pytest.raises(UserError) as caught:
        load(folder)
    assert str(caught.value).startswith(str(file))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"not packed", "is not a gzip file"), (gzip.compress(bytes(1000), mtime=0)[:-9], "is truncated or damaged")],
    ids=["not packed", "cut"],
)
def test_a_damaged_gzip_file_is_named(content: bytes, message: str, tmp_path: Path) -> None:
    file = tmp_path / "train-images-idx3-ubyte.gz"
    file.write_bytes(content)
    with pytest.raises(UserError, match=message):
        read_idx(file, 3)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    folder = write_mnist(tmp_path)
    (folder / f"{IDX_FILES[3]}.gz").unlink()
    with pytest.raises(UserError, match="lacks t10k-labels-idx1-ubyte"):
        load(folder)


def test_labels_must_match_the_images_in_number_and_range(tmp_path: Path) -> None:
    folder = write_mnist(tmp_path)
    labels = folder / f"{IDX_FILES[1]}.gz"
    write_idx(labels, np.arange(59) % 10)
    with pytest.raises(UserError, match=r"has 60 images, .* has 59 labels"):
        load(folder)
    write_idx(labels, np.arange(60) % 11)
    with pytest.raises(UserError, match=r"has the label 10, data.num_labels = 10 allows 0 to 9"):
        load(folder)


def test_images_of_no_pixels_are_refused(tmp_path: Path) -> None:
    folder = write_mnist(tmp_path)
    write_idx(folder / f"{IDX_FILES[0]}.gz", np.zeros((60, 0, 28)))
    with pytest.raises(UserError, match=r"holds no images, or images of no pixels: \(60, 0, 28\)"):
        load(folder)


def test_training_and_test_images_must_have_one_size(tmp_path: Path) -> None:
    folder = write_mnist(tmp_path)
    write_idx(folder / f"{IDX_FILES[2]}.gz", np.zeros((20, 14, 14)))
    with pytest.raises(UserError, match=r"differ in size \(28x28 and 14x14\)"):
        load(folder)


def test_missing_data_says_where_it_was_looked_for_and_which_files_belong_there(tmp_path: Path) -> None:
    for path, message in (
        (tmp_path / "no", "there is no file or folder"),
        (tmp_path, "is empty"),
        (None, "or give --data, or set \\$LABELEMB_DATA"),
    ):
        with pytest.raises(UserError, match=message) as caught:
            load(path)
        assert "train-images-idx3-ubyte" in str(caught.value)
        assert "labelemb data fetch mnist" in str(caught.value)


def test_a_folder_or_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    for path in (tmp_path, tmp_path / "notes.txt"):
        with pytest.raises(UserError, match=r"no such data in .*; wanted: the idx files"):
            load(path)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("data.dev_size=60", "has 60 training examples, data.dev_size = 60 leaves none"),
        ("data.dev_size=0", "train.dev = true needs development examples"),
        ("data.label_names=['a']", "data.label_names has 1 different names, data.num_labels is 10"),
        ("data.num_labels=11", "label '10' has no training example"),
        ("data.mean=[0.1,0.2]", r"images have 1 channel\(s\), but data.mean = \[0.1, 0.2\]"),
    ],
)
def test_settings_that_do_not_fit_the_files_are_refused(override: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        load(write_mnist(tmp_path), override)


def test_a_path_that_the_system_refuses_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot read .*: File name too long"):
        load(tmp_path / ("x" * 300))
