"""Image folders: one folder per label, any size, damaged files named."""

import logging
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from labelemb.lab.data import Dataset, ImageInputs, load_data, read_inputs
from labelemb.lab.data.images.examples import ImageExamples
from labelemb.lab.data.images.image_files import image_to_tensor, list_images, read_image
from labelemb.lab.recipes.recipe import load_recipe
from labelemb.support.errors import UserError
from tests.helpers.tiny_data import write_image, write_image_folder


def load(path: Path | None, *overrides: str, seed: int = 1) -> Dataset:
    return load_data(load_recipe("image-folder", overrides), path, seed)


def images_of(dataset: Dataset) -> ImageExamples:
    assert isinstance(dataset.train, ImageExamples)
    return dataset.train


def test_images_of_all_sizes_become_one_size_with_the_folders_as_labels(tmp_path: Path) -> None:
    dataset = load(write_image_folder(tmp_path / "images"), "data.image_size=16")
    assert dataset.label_names == ["blue", "red"]
    examples = images_of(dataset)
    assert examples.images.shape == (16, 3, 16, 16)
    blue = examples.images[examples.targets == 0]
    assert (blue[:, 2] > 190).all()
    assert (blue[:, 0] < 10).all()


def test_the_split_is_random_by_seed_and_has_every_label_in_each_part(tmp_path: Path) -> None:
    folder = write_image_folder(tmp_path / "images", per_label=20)
    dataset = load(folder)
    assert dataset.dev is not None
    parts = (dataset.train, dataset.dev, dataset.test)
    assert [len(part) for part in parts] == [32, 4, 4]
    assert all(part.targets.bincount().tolist() == [len(part) // 2] * 2 for part in parts)


def test_split_folders_are_kept(tmp_path: Path) -> None:
    write_image_folder(tmp_path / "train", per_label=6)
    write_image_folder(tmp_path / "val", per_label=3)
    write_image_folder(tmp_path / "test", per_label=2)
    dataset = load(tmp_path)
    assert dataset.dev is not None
    assert [len(part) for part in (dataset.train, dataset.dev, dataset.test)] == [12, 6, 4]


def test_a_test_folder_is_used_under_any_known_name_and_no_folder_is_passed_over(tmp_path: Path) -> None:
    write_image_folder(tmp_path / "Training", per_label=6)
    write_image_folder(tmp_path / "Testing", per_label=2)
    assert len(load(tmp_path).test) == 4
    write_image_folder(tmp_path / "eval", per_label=2)
    with pytest.raises(UserError, match="a training part, and beside it eval: known parts are train, training"):
        load(tmp_path)
    shutil.rmtree(tmp_path / "eval")
    write_image_folder(tmp_path / "test", per_label=2)
    with pytest.raises(UserError, match="two test folders, Testing and test"):
        load(tmp_path)


def test_images_are_known_by_their_files_wherever_these_lie(tmp_path: Path) -> None:
    write_image_folder(tmp_path / "here")
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    before = load(tmp_path / "here").digest
    assert load(tmp_path / "there").digest == before
    write_image(tmp_path / "there" / "red" / "0.png", (201, 0, 0), size=(16, 40))
    assert load(tmp_path / "there").digest != before


def test_grey_images_and_images_with_transparency_are_read(tmp_path: Path) -> None:
    folder = write_image_folder(tmp_path / "images", per_label=4)
    Image.new("L", (9, 9), 100).save(folder / "red" / "grey.png")
    Image.new("RGBA", (9, 9), (1, 2, 3, 4)).save(folder / "red" / "transparent.png")
    Image.new("P", (9, 9)).save(folder / "red" / "palette.gif")
    options = ("data.grayscale=true", "data.mean=[]", "data.std=[]")
    assert images_of(load(folder, *options)).images.shape[1:] == (1, 32, 32)
    assert images_of(load(folder)).images.shape[1:] == (3, 32, 32)


def test_an_image_turned_by_its_camera_is_upright(tmp_path: Path) -> None:
    picture = Image.new("RGB", (20, 10))
    picture.paste((255, 255, 255), (0, 0, 10, 10))  # the left half is white
    turned = Image.Exif()
    turned[0x0112] = 6  # shown turned by a quarter to the right: left becomes top
    for name in ("train", "test"):
        write_image_folder(tmp_path / name, per_label=1)
    picture.save(tmp_path / "train" / "red" / "a.png", exif=turned)
    (tmp_path / "train" / "red" / "0.png").unlink()
    examples = images_of(load(tmp_path, "data.dev_size=0", "train.dev=false"))
    image = examples.images[examples.targets == 1][0]
    assert image[:, :12].min() > 200
    assert image[:, 20:].max() < 50


def test_other_files_are_ignored(tmp_path: Path) -> None:
    folder = write_image_folder(tmp_path / "images", per_label=5)
    (folder / "red" / "notes.txt").write_text("hello")
    (folder / "README.md").write_text("hello")
    (folder / ".cache").mkdir()
    assert len(load(folder).train) == 6


@pytest.mark.parametrize("content", [b"", b"hello", None])
def test_a_damaged_image_is_named_and_skipped_only_if_asked(
    content: bytes | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = write_image_folder(tmp_path / "images")
    damaged = folder / "red" / "damaged.png"
    write_image(damaged, (1, 2, 3), size=(300, 300))
    damaged.write_bytes(damaged.read_bytes()[:200] if content is None else content)
    with pytest.raises(UserError, match=r"damaged.png cannot be read as an image.*data.skip_corrupt = true") as caught:
        load(folder)
    assert "\n" not in str(caught.value)
    with caplog.at_level(logging.WARNING, logger="labelemb"):
        dataset = load(folder, "data.skip_corrupt=true")
    assert len(dataset.train) == 16
    assert f"left out 1 images that cannot be read: {damaged}" in caplog.text


def test_a_run_that_skips_damaged_images_skips_them_when_it_predicts(tmp_path: Path) -> None:
    folder = write_image_folder(tmp_path / "images", per_label=1)
    (folder / "red" / "damaged.png").write_bytes(b"hello")
    careful, tolerant = (load_recipe("image-folder", [f"data.skip_corrupt={answer}"]) for answer in ("false", "true"))
    form = ImageInputs(channels=3, size=[8, 8], mean=[0.0] * 3, std=[1.0] * 3)
    with pytest.raises(UserError, match=r"damaged.png cannot be read as an image.*data.skip_corrupt = true"):
        read_inputs(form, careful.data, [folder])
    names, examples = read_inputs(form, tolerant.data, [folder])
    assert len(names) == len(examples) == len(list_images(folder)) - 1


@pytest.mark.parametrize("channels", [1, 3])
def test_sixteen_bit_grey_keeps_its_shades(channels: int, tmp_path: Path) -> None:
    Image.fromarray(np.array([[0, 256, 32768, 65535]], dtype=np.uint16)).save(tmp_path / "grey.png")
    assert read_image(tmp_path / "grey.png", (1, 4), channels)[0].tolist() == [[0, 1, 128, 255]]


def test_a_sixteen_bit_png_that_pillow_reads_into_32_bits_keeps_its_shades() -> None:
    image = Image.fromarray(np.array([[0, 256, 32768, 65535]], dtype=np.int32))
    image.format = "PNG"
    assert image.mode == "I"
    assert image_to_tensor(image, (1, 4), 1)[0].tolist() == [[0, 1, 128, 255]]


def test_a_sixteen_bit_pgm_keeps_its_shades(tmp_path: Path) -> None:
    pixels = np.array([[0, 256, 32768, 65535]], dtype=">u2")
    (tmp_path / "grey.pgm").write_bytes(b"P5 4 1 65535\n" + pixels.tobytes())
    assert read_image(tmp_path / "grey.pgm", (1, 4), 1).flatten().tolist() == [0, 1, 128, 255]


def test_32_bit_grey_beyond_eight_bits_is_refused(tmp_path: Path) -> None:
    Image.fromarray(np.array([[0, 70000]], dtype=np.int32)).save(tmp_path / "wide.tif")
    with pytest.raises(UserError, match=r"wide.tif .* its values go from 0 to 70000: save it with 8 or 16 bits"):
        read_image(tmp_path / "wide.tif", (1, 2), 1)
    Image.fromarray(np.array([[0, 200]], dtype=np.int32)).save(tmp_path / "narrow.tif")
    assert read_image(tmp_path / "narrow.tif", (1, 2), 1).flatten().tolist() == [0, 200]


@pytest.mark.skipif(sys.platform != "linux", reason="file names are bytes on Linux only")
def test_a_file_name_that_is_not_utf_8_does_no_harm_and_such_a_label_is_refused(tmp_path: Path) -> None:
    folder = write_image_folder(tmp_path / "images")
    first = next(folder.rglob("*.png"))
    first.rename(os.fsdecode(os.fsencode(first.parent) + b"/caf\xe9.png"))
    assert len(load(folder).digest) == 64
    first.parent.rename(os.fsdecode(os.fsencode(first.parent.parent) + b"/caf\xe9"))
    with pytest.raises(UserError, match=r"folder name b'caf\\xe9' is not UTF-8: rename it"):
        load(folder)


def test_linked_folders_are_read_and_circles_are_not_followed(tmp_path: Path) -> None:
    write_image(tmp_path / "elsewhere" / "0.png", (1, 2, 3))
    label = tmp_path / "images" / "red"
    label.mkdir(parents=True)
    (label / "more").symlink_to(tmp_path / "elsewhere")
    (label / "again").symlink_to(label)
    assert list_images(label) == [label / "more" / "0.png"]


def test_a_folder_without_label_folders_is_refused(tmp_path: Path) -> None:
    write_image(tmp_path / "a.png", (1, 2, 3))
    with pytest.raises(UserError, match="wanted: a folder with one folder of images per label"):
        load(tmp_path)


def test_one_label_only_is_refused(tmp_path: Path) -> None:
    write_image_folder(tmp_path)
    for file in (tmp_path / "red").iterdir():
        file.unlink()
    with pytest.raises(UserError, match="one label only"):
        load(tmp_path)


def test_a_label_with_too_few_images_for_a_split_is_named(tmp_path: Path) -> None:
    write_image_folder(tmp_path)
    write_image(tmp_path / "green" / "a.png", (0, 200, 0))
    with pytest.raises(
        UserError, match="label 'green' has 1 example, a split takes 1 for development and 1 for testing"
    ):
        load(tmp_path)


def test_a_label_without_test_images_is_named(tmp_path: Path) -> None:
    write_image_folder(tmp_path / "train")
    write_image_folder(tmp_path / "test")
    write_image(tmp_path / "train" / "green" / "a.png", (0, 200, 0))
    with pytest.raises(UserError, match="label 'green' has no test example"):
        load(tmp_path, "data.dev_size=0", "train.dev=false")


def test_a_batch_of_images_is_normalised(tmp_path: Path) -> None:
    dataset = load(write_image_folder(tmp_path))
    (images,), _ = dataset.train.batch(torch.arange(3))
    expected = (images_of(dataset).images[:3].float() / 255 - 0.5) / 0.25
    torch.testing.assert_close(images, expected)


@pytest.mark.parametrize(
    "parts", [("train_images", "test"), ("val", "test"), ("training_set", "test_set"), ("Train-2024", "held out")]
)
def test_parts_of_other_names_do_not_become_labels(tmp_path: Path, parts: tuple[str, ...]) -> None:
    for part in parts:
        write_image_folder(tmp_path / part)
    with pytest.raises(UserError, match=r"holds folders of images, so it is no label.* call the parts train and test"):
        load(tmp_path)


def test_a_label_may_be_called_test_and_may_have_folders_inside(tmp_path: Path) -> None:
    for number in range(10):
        write_image(tmp_path / "test" / f"{number}.png", (1, 2, 3))
        for label in ("field", "forest"):
            write_image(tmp_path / label / ("east" if number % 2 else "west") / f"{number}.png", (200, 2, 3))
    assert load(tmp_path).label_names == ["field", "forest", "test"]


def test_hidden_copies_are_not_read(tmp_path: Path) -> None:
    folder = write_image_folder(tmp_path / "images")
    label = next(place for place in folder.iterdir() if place.is_dir())
    before = list_images(label)
    write_image(label / ".ipynb_checkpoints" / "0.png", (1, 2, 3))
    (label / "._0.png").write_bytes(b"of macOS")
    write_image(folder / "__MACOSX" / "0.png", (1, 2, 3))
    assert list_images(label) == before
    assert "__MACOSX" not in load(folder).label_names


def test_grey_of_fractions_is_refused(tmp_path: Path) -> None:
    Image.fromarray(np.array([[0.0, 0.5, 1.0]], dtype=np.float32)).save(tmp_path / "f.tif")
    with pytest.raises(UserError, match=r"its values go from 0 to 1: save it with 8 or 16 bits"):
        read_image(tmp_path / "f.tif", (1, 3), 1)
    Image.fromarray(np.array([[0.0, 9.0]], dtype=np.float32)).save(tmp_path / "whole.tif")
    assert read_image(tmp_path / "whole.tif", (1, 2), 1).flatten().tolist() == [0, 9]


@pytest.mark.filterwarnings("error")
def test_a_palette_with_transparency_is_read_without_a_word(tmp_path: Path) -> None:
    image = Image.new("P", (2, 1))
    image.putpalette([10, 20, 30] * 256)
    image.save(tmp_path / "p.png", transparency=bytes([0, 255]))
    assert read_image(tmp_path / "p.png", (1, 2), 3).flatten().tolist() == [10, 10, 20, 20, 30, 30]
