"""Images in memory as bytes, normalised when a batch is made."""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from labelemb.lab.data.dataset import (
    Examples,
    InputForm,
    InputPlace,
    Inputs,
    check_any,
    label_numbers,
    no_targets,
    tensor_bytes,
)
from labelemb.lab.data.images.image_files import find_images, label_folders, list_images, read_images
from labelemb.lab.recipes.settings import DataSettings, ImageFolderData
from labelemb.support.errors import UserError

LABELLED = "a folder with one folder of images per label"


class Normalisation:
    """(pixel / 255 - mean) / std for each channel, as one multiplication and one addition."""

    def __init__(self, channels: int, mean: Sequence[float] = (), std: Sequence[float] = ()) -> None:
        self.mean = tuple(mean) or (0.0,) * channels
        self.std = tuple(std) or (1.0,) * channels
        if len(self.mean) != channels or len(self.std) != channels or min(self.std) <= 0:
            raise UserError(
                f"images have {channels} channel(s), but data.mean = {list(mean)} and data.std = {list(std)}: "
                "give a number for each channel, with std above 0, or none"
            )
        means, stds = (torch.tensor(values).view(-1, 1, 1) for values in (self.mean, self.std))
        self.scale = 1.0 / (255.0 * stds)  # (channels, 1, 1)
        self.shift = -(means / stds)  # (channels, 1, 1), and what a black pixel becomes

    def __call__(self, images: Tensor) -> Tensor:
        """Bytes (..., channels, height, width) as float32."""
        return images.float() * self.scale + self.shift


class ImageExamples(Examples):
    """Images kept as bytes, (rows, channels, height, width); a batch is normalised float32.

    `files` are the paths of the images below the data's folder, where each has a file of its own.
    """

    def __init__(
        self,
        images: Tensor,
        targets: Tensor,
        mean: Sequence[float] = (),
        std: Sequence[float] = (),
        files: Sequence[str] | None = None,
    ) -> None:
        super().__init__(targets)
        self.images = images
        self.files = files
        self.normalised = Normalisation(images.shape[1], mean, std)

    @property
    def form(self) -> "ImageInputs":
        """What these images look like to a network."""
        _, channels, *size = self.images.shape
        return ImageInputs(channels, size, list(self.normalised.mean), list(self.normalised.std))

    def batch(self, index: Tensor) -> tuple[Inputs, Tensor]:
        return (self.normalised(self.images[index]),), self.targets[index]

    def select(self, index: Tensor) -> "ImageExamples":
        files = None if self.files is None else [self.files[place] for place in index.tolist()]
        return ImageExamples(self.images[index], self.targets[index], self.normalised.mean, self.normalised.std, files)

    def joined(self, other: "ImageExamples") -> "ImageExamples":
        """These images and then the others."""
        images, targets = torch.cat([self.images, other.images]), torch.cat([self.targets, other.targets])
        files = None if self.files is None or other.files is None else [*self.files, *other.files]
        return ImageExamples(images, targets, self.normalised.mean, self.normalised.std, files)

    def content(self) -> Iterator[memoryview]:
        """The bytes of all examples."""
        return tensor_bytes(self.images, self.targets)


class ImageInputs(InputForm, frozen=True, tag="image"):
    """Images of one size, (height, width), with the mean and standard deviation of each channel."""

    noun: ClassVar[str] = "images"

    channels: int
    size: list[int]
    mean: list[float]
    std: list[float]

    def encode(self, images: Tensor) -> ImageExamples:
        """Images to predict, as bytes (rows, channels, height, width)."""
        return ImageExamples(images, no_targets(len(images)), self.mean, self.std)

    def read(self, files: Sequence[Path], settings: DataSettings) -> tuple[list[InputPlace], ImageExamples]:
        """Image files, or all images in folders."""
        found = [image for file in files for image in find_images(file)]
        check_any(found, files)
        readable, images = read_images(found, self.size, self.channels, _skips_corrupt(settings))
        check_any(readable, files)
        return [InputPlace(str(file)) for file in readable], self.encode(torch.stack(images))

    def read_labelled(self, place: Path, settings: DataSettings, label_names: list[str]) -> ImageExamples:
        """A folder with one folder of images per label."""
        if not place.is_dir():
            raise UserError(f"there is no folder {place}; wanted: {LABELLED}")
        known = {image for name in label_names for image in list_images(place / name)}
        unknown = _folders_of_others(place, known)
        if not known and not unknown:
            raise UserError(f"{place} holds no images; wanted: {LABELLED}")
        label_numbers(((str(place), name) for name in unknown), label_names)
        return self.read_folder(place, label_names, _skips_corrupt(settings), place)

    def read_folder(self, folder: Path, names: Sequence[str], skip_corrupt: bool, root: Path) -> ImageExamples:
        """The images in the folders `names` of a folder; what they are called begins below `root`."""
        labels = {file: target for target, name in enumerate(names) for file in list_images(folder / name)}
        files, images = read_images(list(labels), self.size, self.channels, skip_corrupt)
        if not images:
            raise UserError(f"{folder} holds no readable images")
        targets = torch.tensor([labels[file] for file in files])
        places = [file.relative_to(root).as_posix() for file in files]
        return ImageExamples(torch.stack(images), targets, self.mean, self.std, places)


def _folders_of_others(place: Path, known: Collection[Path]) -> list[str]:
    """The folders in a place with other images than those known; T-shirt/old where T-shirt/top is known."""
    found = []
    for folder in label_folders(place):
        images = list_images(folder)
        others = [image for image in images if image not in known]
        if others:
            named = folder if len(others) == len(images) else others[0].parent
            found.append(named.relative_to(place).as_posix())
    return found


def _skips_corrupt(settings: DataSettings) -> bool:
    """Whether files that cannot be read are left out."""
    return isinstance(settings, ImageFolderData) and settings.skip_corrupt
