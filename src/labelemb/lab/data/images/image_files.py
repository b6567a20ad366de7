"""Finds image files in folders, and reads them to bytes of one size."""

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from labelemb.support.errors import UserError

SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"}
logger = logging.getLogger("labelemb")


def find_images(path: Path) -> list[Path]:
    """The image file itself, or all images in a folder."""
    if path.is_dir():
        return list_images(path)
    if path.suffix.lower() not in SUFFIXES:
        raise UserError(f"{path} is not an image: the run reads {', '.join(sorted(SUFFIXES))}")
    return [path]


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
        folders[:] = [name for name in folders if not is_hidden(name)]
        found += [Path(place, name) for name in names if Path(name).suffix.lower() in SUFFIXES and not is_hidden(name)]
    return sorted(file for file in found if file.is_file())


def label_folders(folder: Path) -> list[Path]:
    """The folders in a folder, one for each label, in the order of their names."""
    return sorted(entry for entry in folder.iterdir() if entry.is_dir() and not is_hidden(entry.name))


def read_image(file: Path | BinaryIO, size: Sequence[int], channels: int, where: str = "") -> Tensor:
    """One image file as bytes, (channels, height, width). `where` names it in errors, where that is not the file."""
    try:
        with Image.open(file) as image:
            return image_to_tensor(image, size, channels)
    # Pillow's readers raise SyntaxError, ValueError, struct.error, ... on damaged files, depending on the format
    except Exception as error:
        raise UserError(f"{where or file} cannot be read as an image: {error}") from error


def read_images(
    files: Sequence[Path], size: Sequence[int], channels: int, skip_corrupt: bool
) -> tuple[list[Path], list[Tensor]]:
    """Readable files and their images. A file that cannot be read is an error, or left out with a warning."""
    readable: list[Path] = []
    images: list[Tensor] = []
    skipped: list[str] = []
    for file in files:
        try:
            images.append(read_image(file, size, channels))
            readable.append(file)
        except UserError as error:
            if not skip_corrupt:
                raise UserError(f"{error}; repair or remove it, or train with data.skip_corrupt = true") from error
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
    """Convert 16-bit grey to 8-bit grey. Pillow's own conversion clips everything above 255."""
    in_32_bits = image.mode == "I" and file_format in ("PNG", "PPM")  # as Pillow reads 16 bits: they have no more
    if not in_32_bits and not image.mode.startswith("I;16"):
        _refuse_wide(image)
        return image
    pixels = np.asarray(image).astype(np.uint16)
    return Image.fromarray((pixels >> 8).astype(np.uint8))


def _refuse_wide(image: Image.Image) -> None:
    """Refuse 32-bit grey whose values are not whole numbers from 0 to 255: its range is unknown."""
    if image.mode in ("I", "F"):
        pixels = np.asarray(image)
        if not (np.array_equal(pixels, pixels.round()) and pixels.min() >= 0 and pixels.max() <= 255):
            raise ValueError(f"its values go from {pixels.min():g} to {pixels.max():g}: save it with 8 or 16 bits")


def is_hidden(name: str) -> bool:
    """Whether a file or folder was made by a system or an editor, often as a copy of another file."""
    return name.startswith(".") or name == "__MACOSX"
