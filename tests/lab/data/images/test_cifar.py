"""CIFAR's binary version: folder or archive, fine labels with their groups, damage named."""

import gzip
import tarfile
from pathlib import Path

import pytest
import torch

from labelemb.lab.data import Dataset, load_data
from labelemb.lab.data.images.examples import ImageExamples
from labelemb.lab.recipes.recipe import load_recipe
from labelemb.lab.recipes.settings import PublishedImages
from labelemb.support.errors import UserError
from tests.helpers.tiny_data import cifar_records, pack_folder, write_cifar10, write_cifar100


def load(recipe: str, path: Path) -> Dataset:
    return load_data(load_recipe(recipe), path, seed=1)


def test_the_records_come_back_as_written(tmp_path: Path) -> None:
    dataset = load("cifar10-small", write_cifar10(tmp_path / "cifar-10-batches-bin"))
    assert (len(dataset.train), dataset.dev, len(dataset.test)) == (100, None, 20)
    assert dataset.label_names == [f"name{label}" for label in range(10)]
    assert dataset.groups is None
    record = cifar_records(20, 10)[3073 * 12 :][:3073]
    assert isinstance(dataset.test, ImageExamples)
    assert dataset.test.targets[12] == record[0]
    assert bytes(dataset.test.images[12].flatten().tolist()) == record[1:]
    (images,), _ = dataset.test.batch(torch.tensor([12]))
    red = (record[1] / 255 - 0.4914) / 0.2023
    assert images[0, 0, 0, 0].item() == pytest.approx(red, abs=1e-5)


def test_cifar100_has_fine_labels_grouped_under_the_coarse_ones(tmp_path: Path) -> None:
    dataset = load("cifar100-resnet18", write_cifar100(tmp_path))
    assert len(dataset.label_names) == 100
    assert dataset.train.targets[:3].tolist() == [0, 1, 2]
    assert dataset.groups is not None
    assert dataset.groups["coarse1"] == ["fine5", "fine6", "fine7", "fine8", "fine9"]
    assert sum(map(len, dataset.groups.values())) == 100


@pytest.mark.parametrize(
    ("recipe", "folder", "archive"),
    [
        ("cifar10-small", "cifar-10-batches-bin", "cifar-10-binary.tar.gz"),
        ("cifar100-resnet18", "cifar-100-binary", "cifar-100-binary.tar.gz"),
    ],
)
def test_folder_archive_and_the_folder_above_them_give_the_same(
    recipe: str, folder: str, archive: str, tmp_path: Path
) -> None:
    write = write_cifar10 if recipe == "cifar10-small" else write_cifar100
    write(tmp_path / "a" / folder)
    (tmp_path / "b").mkdir()
    pack_folder(tmp_path / "a" / folder, tmp_path / "b" / archive)
    places = [tmp_path / "a" / folder, tmp_path / "a", tmp_path / "b" / archive, tmp_path / "b"]
    first, *others = [load(recipe, place) for place in places]
    for other in others:
        assert isinstance(first.train, ImageExamples)
        assert isinstance(other.train, ImageExamples)
        assert torch.equal(first.train.images, other.train.images)
        assert (first.label_names, first.groups) == (other.label_names, other.groups)


def test_without_the_names_file_labels_are_numbers(tmp_path: Path) -> None:
    folder = write_cifar10(tmp_path)
    (folder / "batches.meta.txt").unlink()
    assert load("cifar10-small", folder).label_names[3] == "3"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("data_batch_3.bin", cifar_records(20, 10)[:-5], "data_batch_3.bin is truncated or not from CIFAR-10"),
        ("test_batch.bin", b"", "test_batch.bin is truncated .* 0 bytes, expected a multiple of 3073"),
        ("data_batch_2.bin", b"\x0a" + bytes(3072), "data_batch_2.bin has the label 10, CIFAR-10 has 0 to 9"),
        ("batches.meta.txt", b"cat\ndog\n", "batches.meta.txt has 2 different names, expected 10"),
    ],
)
def test_a_damaged_file_of_cifar10_is_named(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    folder = write_cifar10(tmp_path)
    (folder / name).write_bytes(content)
    with pytest.raises(UserError, match=message):
        load("cifar10-small", folder)


def test_a_file_cut_off_between_two_images_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = write_cifar10(tmp_path / "ten")
    cut = folder / "data_batch_3.bin"
    cut.write_bytes(cut.read_bytes()[: 2 * 3073])
    with pytest.raises(UserError, match=r"data_batch_3.bin is truncated.* it has 2 images, data_batch_1.bin has 20"):
        load("cifar10-small", folder)
    folder = write_cifar100(tmp_path / "hundred")
    load("cifar100-resnet18", folder)
    assert f"{folder} has 200 training images, CIFAR-100 as published 50000" in caplog.text


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    folder = write_cifar10(tmp_path)
    (folder / "data_batch_4.bin").unlink()
    with pytest.raises(UserError, match=r"lacks data_batch_4.bin"):
        load("cifar10-small", folder)


def test_a_coarse_label_out_of_range_is_named(tmp_path: Path) -> None:
    folder = write_cifar100(tmp_path)
    (folder / "test.bin").write_bytes(b"\x14" + bytes(3073))
    with pytest.raises(UserError, match=r"test.bin has the coarse label 20, CIFAR-100 has 0 to 19"):
        load("cifar100-resnet18", folder)


def test_a_truncated_archive_is_named(tmp_path: Path) -> None:
    archive = pack_folder(write_cifar10(tmp_path / "files"), tmp_path / "cifar-10-binary.tar.gz")
    archive.write_bytes(archive.read_bytes()[:20_000])
    with pytest.raises(UserError, match=r"cifar-10-binary.tar.gz is truncated, damaged or not a tar archive"):
        load("cifar10-small", archive)


def test_a_damaged_archive_is_named(tmp_path: Path) -> None:
    folder = write_cifar10(tmp_path / "files")
    archive = tmp_path / "cifar-10-binary.tar.gz"
    with gzip.open(archive, "wb", compresslevel=0) as packed, tarfile.open(fileobj=packed, mode="w") as members:
        members.add(folder, arcname="cifar-10-batches-bin")
    content = bytearray(archive.read_bytes())
    content[len(content) // 2] ^= 1  # a pixel
    archive.write_bytes(content)
    with pytest.raises(
        UserError, match=r"cifar-10-binary.tar.gz is truncated, damaged or not a tar archive: CRC check"
    ):
        load("cifar10-small", archive)
    (tmp_path / "x.tar").write_bytes(b"\xfd7zXZ\x00" + bytes(100))
    with pytest.raises(UserError, match=r"x.tar is truncated, damaged or not a tar archive"):
        load("cifar10-small", tmp_path / "x.tar")


def test_an_archive_of_the_other_set_is_refused(tmp_path: Path) -> None:
    archive = pack_folder(write_cifar100(tmp_path / "files"), tmp_path / "cifar-100-binary.tar.gz")
    with pytest.raises(UserError, match=r"lacks data_batch_1.bin; wanted: CIFAR-10's binary version"):
        load("cifar10-small", archive)


def test_the_pickled_version_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "cifar-10-batches-py").mkdir()
    with pytest.raises(UserError, match="is the pickled version of CIFAR-10, which is not read"):
        load("cifar10-small", tmp_path)


@pytest.mark.parametrize(("recipe", "per_label"), [("cifar10-few", 500), ("cifar100-few", 100)])
def test_few_images_of_a_label_are_taken_from_those_that_are_not_for_development(
    recipe: str, per_label: int, tmp_path: Path
) -> None:
    settings = load_recipe(recipe).data
    assert isinstance(settings, PublishedImages)
    assert (settings.dev_size, settings.max_per_label) == (5000, per_label)
    write = write_cifar10 if recipe == "cifar10-few" else write_cifar100
    path = write(tmp_path / settings.folders[0])
    few = load_data(load_recipe(recipe, ["data.dev_size=20", "data.max_per_label=1"]), path, 0)
    every = load_data(load_recipe(recipe, ["data.dev_size=20", "data.max_per_label=0"]), path, 0)
    assert few.dev is not None
    assert every.dev is not None
    assert len(few.train) == len(few.label_names) < len(every.train)
    assert few.train.targets.bincount().max() == 1
    assert len(few.dev) == len(every.dev) == 20
