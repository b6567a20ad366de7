"""Idx files of MNIST and similar data sets (Fashion-MNIST, ...), with or without gzip.

An idx file is a magic number (two zero bytes, 8 for bytes, the number of dimensions), the sizes as big-endian 32-bit
numbers, and the bytes.
"""

import math
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from labelemb.lab.data.files import find_data, read_bytes
from labelemb.lab.data.images.examples import ImageExamples
from labelemb.lab.data.splits import Splits
from labelemb.lab.recipes.settings import IdxData
from labelemb.support.errors import UserError

FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
WANTED = f"the idx files {', '.join(FILES)}, each with or without .gz (`labelemb data fetch mnist` downloads MNIST's)"
FASHION_FOLDERS = ("fashion-mnist", "FashionMNIST", "FashionMNIST/raw")
FASHION_NAMES = (
    *("T-shirt/top", "trouser", "pullover", "dress", "coat"),
    *("sandal", "shirt", "sneaker", "bag", "ankle boot"),
)


def read_idx_folder(settings: IdxData, path: Path | None) -> Splits[ImageExamples]:
    """Training and test images with their labels."""
    # Fashion-MNIST is only found where somebody points at it: it must not stand in for MNIST unasked
    folders = settings.folders if path is None else (*settings.folders, *FASHION_FOLDERS)
    folder = find_data(path, folders, holds_idx, WANTED)
    train = _read_part(folder, FILES[0], FILES[1], settings)
    test = _read_part(folder, FILES[2], FILES[3], settings)
    if train.images.shape[1:] != test.images.shape[1:]:
        sizes = " and ".join("x".join(map(str, part.images.shape[2:])) for part in (train, test))
        raise UserError(f"{folder}: training and test images differ in size ({sizes})")
    return Splits(train, None, test, _label_names(settings, folder), str(folder))


def holds_idx(folder: Path, every: bool = False) -> bool:
    """Whether any of the four files is there, or with `every` all of them."""
    found = [_find_file(folder, name) is not None for name in FILES]
    return folder.is_dir() and (all(found) if every else any(found))


def _label_names(settings: IdxData, folder: Path) -> list[str]:
    names = list(settings.label_names)
    if not names:
        place = folder.resolve()
        name = place.parent.name if place.name == "raw" else place.name  # torchvision's FashionMNIST/raw
        is_fashion = settings.num_labels == len(FASHION_NAMES) and "fashion" in name.lower()
        return list(FASHION_NAMES) if is_fashion else [str(label) for label in range(settings.num_labels)]
    if len(names) != settings.num_labels or len(set(names)) != len(names):
        raise UserError(
            f"data.label_names has {len(set(names))} different names, data.num_labels is {settings.num_labels}"
        )
    return names


def _find_file(folder: Path, name: str) -> Path | None:
    for stem in (name, name.replace("-idx", ".idx")):  # some mirrors unpack to train-images.idx3-ubyte
        for file in (folder / f"{stem}.gz", folder / stem):
            if file.is_file():
                return file
    return None


def _read_part(folder: Path, images_name: str, labels_name: str, settings: IdxData) -> ImageExamples:
    files = [_find_file(folder, name) for name in (images_name, labels_name)]
    for file, name in zip(files, (images_name, labels_name), strict=True):
        if file is None:
            raise UserError(f"{folder} lacks {name} (with or without .gz)")
    images_file, labels_file = (file for file in files if file is not None)
    images = read_idx(images_file, dimensions=3)
    labels = read_idx(labels_file, dimensions=1)
    if len(images) != len(labels):
        raise UserError(f"{images_file} has {len(images)} images, {labels_file} has {len(labels)} labels")
    if images.numel() == 0:
        raise UserError(f"{images_file} holds no images, or images of no pixels: {tuple(images.shape)}")
    largest = int(labels.max())
    if largest >= settings.num_labels:
        raise UserError(
            f"{labels_file} has the label {largest}, data.num_labels = {settings.num_labels} allows 0 to "
            f"{settings.num_labels - 1}"
        )
    return ImageExamples(images.unsqueeze(1), labels, settings.mean, settings.std)


def read_idx(path: Path, dimensions: int) -> Tensor:
    """The array of bytes in an idx file with that many dimensions."""
    content = read_bytes(path)
    magic = bytes([0, 0, 8, dimensions])
    header = 4 + 4 * dimensions
    if content[:4] != magic:
        raise UserError(
            f"{path} is not an idx file of {dimensions} dimension(s): it begins with "
            f"{content[:4].hex(' ') or 'nothing'}, expected {magic.hex(' ')}"
        )
    if len(content) < header:
        raise UserError(f"{path} is truncated: {len(content)} bytes, its header alone has {header}")
    sizes = [int(size) for size in np.frombuffer(content, dtype=">u4", count=dimensions, offset=4)]
    expected = header + math.prod(sizes)
    if len(content) != expected:
        problem = "is truncated" if len(content) < expected else "is too long"
        shape = " x ".join(map(str, sizes))
        raise UserError(f"{path} {problem}: {len(content)} bytes, expected {expected} for {shape} values")
    values = np.frombuffer(content, dtype=np.uint8, offset=header).reshape(sizes)
    return torch.from_numpy(values.copy())
