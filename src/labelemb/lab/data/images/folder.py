"""Folders of images, one folder per label: `cats/*.jpg`, `dogs/*.jpg`, or the same inside `train/` and `test/`."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

import torch

from labelemb.lab.data.files import SPLIT_NAMES, find_data, refuse_unknown_parts
from labelemb.lab.data.hub import HubColumn, is_hub, read_hub
from labelemb.lab.data.images.examples import LABELLED, ImageExamples, ImageInputs
from labelemb.lab.data.images.image_files import label_folders, list_images, read_image
from labelemb.lab.data.splits import Splits
from labelemb.lab.recipes.settings import ImageFolderData
from labelemb.support.errors import UserError

WANTED = f"{LABELLED}, or with the folders train and test (and dev) that hold such folders"


def read_image_folder(settings: ImageFolderData, path: Path | None) -> Splits[ImageExamples]:
    """Read all images as squares of data.image_size pixels; labels are the folder names in sorted order."""
    if path is not None and is_hub(path):
        return _read_hub_images(settings, path)
    root = find_data(path, settings.folders, _holds_labels, WANTED)
    parts = _parts(root)
    names = sorted({label.name for folder in parts.values() for label in label_folders(folder) if list_images(label)})
    if not names:
        raise UserError(f"{root} holds no images; wanted: {WANTED}")
    _refuse_undecodable(root, names)
    form = _form(settings)
    examples = {part: form.read_folder(folder, names, settings.skip_corrupt, root) for part, folder in parts.items()}
    files = [file for folder in parts.values() for name in names for file in list_images(folder / name)]
    return Splits(examples["train"], examples.get("dev"), examples.get("test"), names, str(root), files=files)


def _read_hub_images(settings: ImageFolderData, path: Path) -> Splits[ImageExamples]:
    """The images of a data set of the library `datasets`."""
    data = read_hub(path)
    label_column = data.label_column(settings.label_column)
    image_column = data.column(
        HubColumn(settings.image_column, "image", "image_column", lambda feature: type(feature).__name__ == "Image")
    )
    names, targets = data.targets(label_column)
    form = _form(settings)
    parts = {}
    for part in targets:
        kept, images = [], []
        for row, content in enumerate(data.raw_images(part, image_column)):
            where = f"{data.source}, {part}, row {row}"
            try:
                images.append(read_image(content, form.size, form.channels, where))
                kept.append(row)
            except UserError:
                if not settings.skip_corrupt:
                    raise
        if not images:
            raise UserError(f"{data.source}: the part {part} holds no readable images")
        parts[part] = ImageExamples(torch.stack(images), targets[part][kept], settings.mean, settings.std)
    return Splits(parts["train"], parts.get("dev"), parts.get("test"), names, data.source)


def _form(settings: ImageFolderData) -> ImageInputs:
    """What the images are read as; without a mean and a standard deviation they are not normalised."""
    size, channels = settings.image_size, 1 if settings.grayscale else 3
    return ImageInputs(channels, [size, size], list(settings.mean), list(settings.std))


def _refuse_undecodable(root: Path, names: Sequence[str]) -> None:
    """Refuse folder names that are not UTF-8: they become label names, which are written to files."""
    for name in names:
        try:
            name.encode()
        except UnicodeEncodeError as error:
            raise UserError(f"{root}: the folder name {os.fsencode(name)!r} is not UTF-8: rename it") from error


def _parts(root: Path) -> dict[str, Path]:
    """The folders train, dev and test under whatever names they go by, or the root itself as train."""
    parts: dict[str, Path] = {}
    others = []
    for folder in label_folders(root):
        part = SPLIT_NAMES.get(folder.name.lower())
        if part is None:
            others.append(folder)
        elif part in parts:
            raise UserError(f"{root} has two {part} folders, {parts[part].name} and {folder.name}: remove one")
        else:
            parts[part] = folder
    if "train" not in parts:
        _refuse_parts_without_training(root, label_folders(root))
        return {"train": root}
    refuse_unknown_parts(root, [folder.name for folder in others if list_images(folder)])
    return parts


def _refuse_parts_without_training(root: Path, folders: Sequence[Path]) -> None:
    """Refuse folders such as `train_images` or `test` that hold folders of images: they are not labels."""
    for folder in folders:
        words = re.split(r"[^a-z]+", folder.name.lower())
        if any(word in SPLIT_NAMES for word in words) and any(list_images(label) for label in label_folders(folder)):
            raise UserError(
                f"{root}: {folder.name} holds folders of images, so it is no label, but there is no folder train: call "
                "the parts train and test (and dev)"
            )


def _holds_labels(place: Path) -> bool:
    return place.is_dir() and any(list_images(folder) for folder in label_folders(place))
