"""Reads the data of a recipe with the reader of its kind."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from labelemb.lab.data.dataset import Dataset, Examples, HeldOut
from labelemb.lab.data.folds import Fold, FoldedSplits, fold_splits
from labelemb.lab.data.images.augment import CropFlip
from labelemb.lab.data.images.cifar import read_cifar
from labelemb.lab.data.images.digits import read_digits
from labelemb.lab.data.images.examples import ImageExamples
from labelemb.lab.data.images.folder import read_image_folder
from labelemb.lab.data.images.idx import read_idx_folder
from labelemb.lab.data.pairs.corpus import load_text_pairs
from labelemb.lab.data.splits import Splits
from labelemb.lab.data.texts.examples import TextForm, TextInputs
from labelemb.lab.data.texts.table import read_text_table
from labelemb.lab.data.texts.tokens import TokenInputs, token_form
from labelemb.lab.data.texts.vocabulary import Vocabulary
from labelemb.lab.recipes.pretrained_settings import PretrainedBody, TokenVectorsBody
from labelemb.lab.recipes.recipe import Recipe
from labelemb.lab.recipes.settings import (
    BodySettings,
    Cifar10Data,
    Cifar100Data,
    DigitsData,
    IdxData,
    ImageFolderData,
    TextPairData,
    TextTableData,
)
from labelemb.support.errors import UserError


def load_data(
    recipe: Recipe, path: Path | None, seed: int, fold: Fold | None = None, tokens: TokenInputs | None = None
) -> Dataset:
    """Read, check and split the data of a recipe.

    `path` is a file or folder, or None to look in the usual places. `seed` is the run's: it decides a random split
    unless data.split_seed does. With a `fold`, the test part is what the fold holds out. `tokens` is how a trained
    model reads texts, where its body was trained before.
    """
    settings = recipe.data
    try:
        if isinstance(settings, TextPairData):
            if fold is not None:
                refuse_pairs()
            dataset = load_text_pairs(settings, path, seed, recipe.train.batch_tokens)
        elif isinstance(settings, TextTableData):
            dataset = _load_texts(
                settings, path, seed, fold, lambda texts: tokens or _text_form(settings, recipe.body, texts)
            )
        else:
            dataset = _load_images(settings, path, seed, fold)
    except OSError as error:
        raise UserError(f"cannot read {error.filename or path}: {error.strerror}") from error
    if recipe.train.dev and dataset.dev is None:
        raise UserError(
            "train.dev = true needs development examples and there are none: set data.dev_size, or train.dev = false"
        )
    return dataset


def load_data_if_any(recipe: Recipe, path: Path | None, seed: int, fold: Fold | None = None) -> Dataset | None:
    """The same, but None where no path is given and there is nothing in the usual places."""
    try:
        return load_data(recipe, path, seed, fold)
    except UserError:
        if path is not None:
            raise
        return None


def read_images(
    settings: DigitsData | IdxData | Cifar10Data | Cifar100Data | ImageFolderData, path: Path | None
) -> Splits[ImageExamples]:
    """The images with their parts as they are published."""
    match settings:
        case DigitsData():
            return read_digits(settings, path)
        case IdxData():
            return read_idx_folder(settings, path)
        case ImageFolderData():
            return read_image_folder(settings, path)
        case _:
            return read_cifar(settings, path)


def refuse_pairs() -> NoReturn:
    """The error for data that cannot be audited."""
    raise UserError("pairs of texts cannot be audited: an audit needs examples with one label each")


def _load_images(
    settings: DigitsData | IdxData | Cifar10Data | Cifar100Data | ImageFolderData,
    path: Path | None,
    seed: int,
    fold: Fold | None,
) -> Dataset:
    read = read_images(settings, path)
    splits = read.complete(settings, seed) if fold is None else fold_splits(read, settings, fold)
    return Dataset(
        splits.train,
        splits.dev,
        splits.test,
        splits.label_names,
        splits.train.form,
        groups=splits.groups,
        augment=CropFlip(splits.train.normalised) if settings.augment == "crop_flip" else None,
        held_out=_held_out(splits, splits.held_out) if isinstance(splits, FoldedSplits) else None,
        digest=read.digest(),
    )


def _load_texts(
    settings: TextTableData,
    path: Path | None,
    seed: int,
    fold: Fold | None,
    make_form: Callable[[Sequence[str]], TextForm],
) -> Dataset:
    """Texts in the form that `make_form` gives for the training texts."""
    read = read_text_table(settings, path)
    splits = read.complete(settings, seed) if fold is None else fold_splits(read, settings, fold)
    form = make_form(splits.train.texts)
    train, test = (form.encode(part.texts, part.targets) for part in (splits.train, splits.test))
    test.texts = splits.test.texts
    dev = None if splits.dev is None else form.encode(splits.dev.texts, splits.dev.targets)
    held_out = None
    if isinstance(splits, FoldedSplits):
        held_out = _held_out(splits, form.encode(splits.held_out.texts, splits.held_out.targets))
    return Dataset(
        train, dev, test, splits.label_names, form, groups=splits.groups, held_out=held_out, digest=read.digest()
    )


def _held_out(splits: FoldedSplits[Any], examples: Examples) -> HeldOut:
    return HeldOut(examples, splits.held_out_rows, splits.train_rows)


def _text_form(settings: TextTableData, body: BodySettings, texts: Sequence[str]) -> TextForm:
    """How the body reads texts: tokens that it was trained with, or word n-grams of these training texts."""
    if isinstance(body, TokenVectorsBody | PretrainedBody):
        return token_form(body)
    vocabulary = Vocabulary.from_texts(texts, settings.ngrams, settings.vocabulary, settings.min_count)
    return TextInputs(settings.ngrams, vocabulary.features)
