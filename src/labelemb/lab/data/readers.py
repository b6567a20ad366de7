"""From a recipe and a place to a dataset."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from labelemb.lab.data.dataset import Dataset, ImageExamples, TextExamples
from labelemb.lab.data.images.augment import CropFlip
from labelemb.lab.data.images.cifar import read_cifar
from labelemb.lab.data.images.digits import read_digits
from labelemb.lab.data.images.folder import read_image_folder
from labelemb.lab.data.images.idx import read_idx_folder
from labelemb.lab.data.pairs.parallel import load_text_pairs
from labelemb.lab.data.splits import CompleteSplits, Splits
from labelemb.lab.data.texts.table import Texts, read_text_table
from labelemb.lab.data.texts.vocabulary import Vocabulary
from labelemb.lab.recipes.recipe import Recipe
from labelemb.lab.recipes.settings import TEXT_PAIR_KINDS, DataSettings
from labelemb.support.errors import UserError

IMAGE_READERS: dict[str, Callable[[DataSettings, Path | None], Splits[ImageExamples]]] = {
    "digits": read_digits,
    "idx": read_idx_folder,
    "cifar10": read_cifar,
    "cifar100": read_cifar,
    "image_folder": read_image_folder,
}


def load_data(recipe: Recipe, path: Path | None, seed: int) -> Dataset:
    """Read, check and split the data of a recipe.

    `path` is a file or folder, or None to look in the usual places. `seed` is the run's: it decides a random split
    unless data.split_seed does.
    """
    pairs = recipe.data.kind in TEXT_PAIR_KINDS
    if pairs != (recipe.task == "translation"):
        raise UserError(
            f"task = {recipe.task} does not go with data.kind = {recipe.data.kind}: translation needs "
            f"{', '.join(TEXT_PAIR_KINDS)}"
        )
    try:
        dataset = load_text_pairs(recipe, path, seed) if pairs else _read(recipe.data, path, seed)
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


def _read(settings: DataSettings, path: Path | None, seed: int) -> Dataset:
    if settings.kind == "text_table":
        texts = read_text_table(settings, path)
        dataset, digest = _text_dataset(texts.complete(settings, seed), settings), texts.digest()
    else:
        images = IMAGE_READERS[settings.kind](settings, path)
        dataset, digest = _image_dataset(images.complete(settings, seed), settings), images.digest()
    return replace(dataset, digest=digest)


def _image_dataset(splits: CompleteSplits[ImageExamples], settings: DataSettings) -> Dataset:
    train = splits.train
    preprocessing = {
        "kind": "image",
        "channels": train.images.shape[1],
        "size": list(train.images.shape[2:]),
        "mean": list(train.mean),
        "std": list(train.std),
    }
    augment = CropFlip(train.mean, train.std) if settings.augment == "crop_flip" else None
    return Dataset(train, splits.dev, splits.test, splits.label_names, splits.groups, augment, preprocessing)


def _text_dataset(splits: CompleteSplits[Texts], settings: DataSettings) -> Dataset:
    vocabulary = Vocabulary.from_texts(splits.train.texts, settings.ngrams, settings.vocabulary, settings.min_count)

    def encode(part: Texts) -> TextExamples:
        return TextExamples(*vocabulary.encode(part.texts), part.targets)

    preprocessing = {"kind": "text", "ngrams": settings.ngrams, "vocabulary": vocabulary.features}
    dev = None if splits.dev is None else encode(splits.dev)
    train, test = encode(splits.train), encode(splits.test)
    return Dataset(train, dev, test, splits.label_names, splits.groups, None, preprocessing)
