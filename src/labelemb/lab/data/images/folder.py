"""Folders of images, one folder per label: `cats/*.jpg`, `dogs/*.jpg`, or the same inside `train/` and `test/`."""

import logging
import os
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from labelemb.lab.data.dataset import ImageExamples
from labelemb.lab.data.files import find_data
from labelemb.lab.data.splits import SPLIT_NAMES, Splits, refuse_unknown_parts
from labelemb.lab.recipes.settings import ImageFolderData
from labelemb.support.errors import UserError

SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"}
WANTED = (
    "a folder with one folder of images per label, or with the folders train and test (and dev) that hold such folders"
)
logger = logging.getLogger("labelemb")


def read_image_folder(settings: ImageFolderData, path: Path | None) -> Splits[ImageExamples]:
    """Every image as a square of data.image_size pixels; labels are the folder names in sorted order."""
    root = find_data(path, settings.folders, _holds_labels, WANTED)
    parts = _parts(root)
    names = sorted({label.name for folder in parts.values() for label in _folders(folder) if list_images(label)})
    if not names:
        raise UserError(f"{root} holds no images; wanted: {WANTED}")
    _refuse_undecodable(root, names)
    examples = {part: _read_part(folder, names, settings) for part, folder in parts.items()}
    files = [file for folder in parts.values() for name in names for file in list_images(folder / name)]
    return Splits(examples["train"], examples.get("dev"), examples.get("test"), names, str(root), files=files)


def _refuse_undecodable(root: Path, names: Sequence[str]) -> None:
    """Labels are written to files and shown: their names must be text."""
    for name in names:
        try:
            name.encode()
        except UnicodeEncodeError as error:
            raise UserError(f"{root}: the folder name {os.fsencode(name)!r} is not UTF-8: rename it") from error


def _parts(root: Path) -> dict[str, Path]:
    """The folders train, dev and test under whatever names they go by, or the root itself as train."""
    parts: dict[str, Path] = {}
    others = []
    for folder in _folders(root):
        part = SPLIT_NAMES.get(folder.name.lower())
        if part is None:
            others.append(folder)
        elif part in parts:
            raise UserError(f"{root} has two {part} folders, {parts[part].name} and {folder.name}: remove one")
        else:
            parts[part] = folder
    if "train" not in parts:
        _refuse_parts_without_training(root, _folders(root))
        return {"train": root}
    refuse_unknown_parts(root, [folder.name for folder in others if list_images(folder)])
    return parts


def _refuse_parts_without_training(root: Path, folders: Sequence[Path]) -> None:
    """`train_images` and `test_images`, or `test` alone, that hold folders of images must not become labels."""
    for folder in folders:
        words = re.split(r"[^a-z]+", folder.name.lower())
        if any(word in SPLIT_NAMES for word in words) and any(list_images(label) for label in _folders(folder)):
            raise UserError(
                f"{root}: {folder.name} holds folders of images, so it is no label, but there is no folder train: call "
                "the parts train and test (and dev)"
            )


def list_images(folder: Path) -> list[Path]:
    """Image files in a folder and the folders inside it, in a fixed order, without hidden ones.

    Links are followed, but not in circles.
    """
    found: list[Path] = []
    visited: set[str] = set()
    for place, folders, names in os.walk(folder, followlinks=True):
        real = os.path.realpath(place)
        if real in visited:
            folders.clear()
            continue
        visited.add(real)
        folders[:] = [name for name in folders if not _is_hidden(name)]
        found += [Path(place, name) for name in names if Path(name).suffix.lower() in SUFFIXES and not _is_hidden(name)]
    return sorted(file for file in found if file.is_file())


def read_image(file: Path, size: Sequence[int], channels: int) -> Tensor:
    """One image file as bytes, (channels, height, width)."""
    try:
        with Image.open(file) as image:
            return image_to_tensor(image, size, channels)
    # Pillow's readers raise SyntaxError, ValueError, struct.error, ... on damaged files, depending on the format
    except Exception as error:
        raise UserError(f"{file} cannot be read as an image: {error}") from error


def read_images(
    files: Sequence[Path], size: Sequence[int], channels: int, skip_corrupt: bool
) -> tuple[list[Path], list[Tensor]]:
    """The images with the files that they are in; those that cannot be read are an error, or left out with a
    warning."""
    readable: list[Path] = []
    images: list[Tensor] = []
    skipped: list[str] = []
    for file in files:
        try:
            images.append(read_image(file, size, channels))
            readable.append(file)
        except UserError as error:
            if not skip_corrupt:
                raise UserError(f"{error}; mend or remove it, or train with data.skip_corrupt = true") from error
            skipped.append(str(file))
    if skipped:
        logger.warning("left out %d images that cannot be read: %s", len(skipped), ", ".join(skipped))
    return readable, images


def image_to_tensor(image: Image.Image, size: Sequence[int], channels: int) -> Tensor:
    """The image upright, in the given size (height, width), as bytes."""
    height, width = size
    upright = _eight_bits(ImageOps.exif_transpose(image), image.format)
    if upright.mode == "P" and "transparency" in upright.info:
        upright = upright.convert("RGBA")  # as Pillow wants it
    upright = upright.convert("L" if channels == 1 else "RGB")
    if upright.size != (width, height):
        upright = upright.resize((width, height), Image.Resampling.BILINEAR)
    pixels = torch.frombuffer(bytearray(upright.tobytes()), dtype=torch.uint8)
    return pixels.view(height, width, channels).permute(2, 0, 1).contiguous()


def _eight_bits(image: Image.Image, file_format: str | None) -> Image.Image:
    """Sixteen-bit grey becomes eight-bit grey; Pillow's own conversion would cut everything above 255 off."""
    in_32_bits = image.mode == "I" and file_format in ("PNG", "PPM")  # as Pillow reads 16 bits: they have no more
    if not in_32_bits and not image.mode.startswith("I;16"):
        _refuse_wide(image)
        return image
    pixels = np.asarray(image).astype(np.uint16)
    return Image.fromarray((pixels >> 8).astype(np.uint8))


def _refuse_wide(image: Image.Image) -> None:
    """Nobody knows the range of 32-bit grey; what is not a whole number of eight bits would be cut off."""
    if image.mode in ("I", "F"):
        pixels = np.asarray(image)
        if not (np.array_equal(pixels, pixels.round()) and pixels.min() >= 0 and pixels.max() <= 255):
            raise ValueError(f"its values go from {pixels.min():g} to {pixels.max():g}: save it with 8 or 16 bits")


def _folders(folder: Path) -> list[Path]:
    return sorted(entry for entry in folder.iterdir() if entry.is_dir() and not _is_hidden(entry.name))


def _is_hidden(name: str) -> bool:
    """Made by a system or an editor, often with copies of what stands beside it."""
    return name.startswith(".") or name == "__MACOSX"


def _holds_labels(place: Path) -> bool:
    return place.is_dir() and any(list_images(folder) for folder in _folders(place))


def _read_part(folder: Path, names: list[str], settings: ImageFolderData) -> ImageExamples:
    channels = 1 if settings.grayscale else 3
    size = (settings.image_size, settings.image_size)
    labels = {file: target for target, name in enumerate(names) for file in list_images(folder / name)}
    files, images = read_images(list(labels), size, channels, settings.skip_corrupt)
    if not images:
        raise UserError(f"{folder} holds no readable images")
    targets = torch.tensor([labels[file] for file in files])
    return ImageExamples(torch.stack(images), targets, settings.mean, settings.std)
