"""Reading the data of a recipe: the reader of each kind, and what a run takes from it."""

from pathlib import Path

from labelemb.lab.data.dataset import Dataset
from labelemb.lab.data.images.augment import CropFlip
from labelemb.lab.data.images.cifar import read_cifar
from labelemb.lab.data.images.digits import read_digits
from labelemb.lab.data.images.examples import ImageExamples
from labelemb.lab.data.images.folder import read_image_folder
from labelemb.lab.data.images.idx import read_idx_folder
from labelemb.lab.data.pairs.corpus import load_text_pairs
from labelemb.lab.data.splits import Splits
from labelemb.lab.data.texts.examples import TextInputs
from labelemb.lab.data.texts.table import read_text_table
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
            dataset = load_text_pairs(settings, path, seed, recipe.train.batch_tokens)
        elif isinstance(settings, TextTableData):
            dataset = _load_texts(settings, path, seed)
        else:
            dataset = _load_images(settings, path, seed)
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


def _load_images(
    settings: DigitsData | IdxData | Cifar10Data | Cifar100Data | ImageFolderData, path: Path | None, seed: int
) -> Dataset:
    read: Splits[ImageExamples]
    match settings:
        case DigitsData():
            read = read_digits(settings, path)
        case IdxData():
            read = read_idx_folder(settings, path)
        case ImageFolderData():
            read = read_image_folder(settings, path)
        case _:
            read = read_cifar(settings, path)
    splits = read.complete(settings, seed)
    return Dataset(
        splits.train,
        splits.dev,
        splits.test,
        splits.label_names,
        splits.train.form,
        groups=splits.groups,
        augment=CropFlip(splits.train.normalised) if settings.augment == "crop_flip" else None,
        digest=read.digest(),
    )


def _load_texts(settings: TextTableData, path: Path | None, seed: int) -> Dataset:
    read = read_text_table(settings, path)
    splits = read.complete(settings, seed)
    vocabulary = Vocabulary.from_texts(splits.train.texts, settings.ngrams, settings.vocabulary, settings.min_count)
    form = TextInputs(settings.ngrams, vocabulary.features)
    train, test = (form.encode(part.texts, part.targets) for part in (splits.train, splits.test))
    dev = None if splits.dev is None else form.encode(splits.dev.texts, splits.dev.targets)
    return Dataset(train, dev, test, splits.label_names, form, groups=splits.groups, digest=read.digest())
