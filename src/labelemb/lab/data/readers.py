"""From a recipe and a place to a dataset."""

from pathlib import Path

from labelemb.lab.data.dataset import Dataset, ImageExamples, TextExamples
from labelemb.lab.data.images.augment import CropFlip
from labelemb.lab.data.images.cifar import read_cifar
from labelemb.lab.data.images.digits import read_digits
from labelemb.lab.data.images.folder import read_image_folder
from labelemb.lab.data.images.idx import read_idx_folder
from labelemb.lab.data.pairs.parallel import load_text_pairs
from labelemb.lab.data.splits import Splits
from labelemb.lab.data.texts.table import Texts, read_text_table
from labelemb.lab.data.texts.vocabulary import Vocabulary
from labelemb.lab.recipes.recipe import Recipe
from labelemb.lab.recipes.settings import (
    Cifar10Data,
    Cifar100Data,
    DigitsData,
    IdxData,
    ImageFolderData,
    TextPairData,
    TextTableData,
)
from labelemb.support.errors import UserError


def load_data(recipe: Recipe, path: Path | None, seed: int) -> Dataset:
    """Read, check and split the data of a recipe.

    `path` is a file or folder, or None to look in the usual places. `seed` is the run's: it decides a random split
    unless data.split_seed does.
    """
    settings = recipe.data
    try:
        if isinstance(settings, TextPairData):
            dataset = load_text_pairs(recipe, path, seed)
        elif isinstance(settings, TextTableData):
            dataset = _read_texts(settings, path, seed)
        else:
            dataset = _read_images(settings, path, seed)
    except OSError as error:
        raise UserError(f"cannot read {error.filename or path}: {error.strerror}") from error
    if recipe.train.dev and dataset.dev is None:
        raise UserError(
            "train.dev = true needs development examples and there are none: set data.dev_size, or train.dev = false"
        )
    return dataset


def load_data_if_any(recipe: Recipe, path: Path | None, seed: int) -> Dataset | None:
    """The same, but None where no path is given and there is nothing in the usual places."""
    try:
        return load_data(recipe, path, seed)
    except UserError:
        if path is not None:
            raise
        return None


def _read_images(
    settings: DigitsData | IdxData | Cifar10Data | Cifar100Data | ImageFolderData, path: Path | None, seed: int
) -> Dataset:
    images: Splits[ImageExamples]
    match settings:
        case DigitsData():
            images = read_digits(settings, path)
        case IdxData():
            images = read_idx_folder(settings, path)
        case ImageFolderData():
            images = read_image_folder(settings, path)
        case _:
            images = read_cifar(settings, path)
    splits = images.complete(settings, seed)
    train = splits.train
    preprocessing = {
        "kind": "image",
        "channels": train.images.shape[1],
        "size": list(train.images.shape[2:]),
        "mean": list(train.mean),
        "std": list(train.std),
    }
    augment = CropFlip(train.mean, train.std) if settings.augment == "crop_flip" else None
    return Dataset(
        train,
        splits.dev,
        splits.test,
        splits.label_names,
        splits.groups,
        augment,
        preprocessing,
        digest=images.digest(),
    )


def _read_texts(settings: TextTableData, path: Path | None, seed: int) -> Dataset:
    read = read_text_table(settings, path)
    splits = read.complete(settings, seed)
    vocabulary = Vocabulary.from_texts(splits.train.texts, settings.ngrams, settings.vocabulary, settings.min_count)

    def encode(part: Texts) -> TextExamples:
        return TextExamples(*vocabulary.encode(part.texts), part.targets)

    preprocessing = {"kind": "text", "ngrams": settings.ngrams, "vocabulary": vocabulary.features}
    dev = None if splits.dev is None else encode(splits.dev)
    train, test = encode(splits.train), encode(splits.test)
    return Dataset(
        train, dev, test, splits.label_names, splits.groups, preprocessing=preprocessing, digest=read.digest()
    )
