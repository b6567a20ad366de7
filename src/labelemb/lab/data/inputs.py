"""New inputs in the form that a trained body takes: for predicting."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from labelemb.lab.data.dataset import Examples, ImageExamples, TextExamples
from labelemb.lab.data.images.folder import SUFFIXES, list_images, read_images
from labelemb.lab.data.tables import read_json_parts, read_rows, read_text, table_suffix
from labelemb.lab.data.text_files import split_lines
from labelemb.lab.data.texts.vocabulary import Vocabulary
from labelemb.lab.recipes.recipe import Recipe
from labelemb.lab.recipes.settings import ImageFolderData, TextTableData
from labelemb.support.errors import UserError
from labelemb.support.wording import one_line

NO_TARGET = -1


def read_inputs(recipe: Recipe, preprocessing: Mapping[str, Any], files: Sequence[Path]) -> tuple[list[str], Examples]:
    """The inputs in files, with a name to show for each.

    Images: image files, or folders of them. Texts: tables (.csv, .tsv, .jsonl; .json as for training) with the recipe's
    text column, or plain files with one text a line.
    """
    for file in files:
        if not file.exists():
            raise UserError(f"there is no file {file}")
    if isinstance(recipe.data, TextTableData):
        named_texts = [entry for file in files for entry in _read_texts(file, recipe.data)]
        _check_any(named_texts, files)
        return [name for name, _ in named_texts], encode_texts(preprocessing, [text for _, text in named_texts])
    images = [image for file in files for image in _image_files(file)]
    _check_any(images, files)
    size, channels = preprocessing["size"], preprocessing["channels"]
    skip_corrupt = isinstance(recipe.data, ImageFolderData) and recipe.data.skip_corrupt
    readable, pixels = read_images(images, size, channels, skip_corrupt)
    _check_any(readable, files)
    return [str(image) for image in readable], _encode_images(preprocessing, pixels)


def _check_any(found: Sequence[Any], files: Sequence[Path]) -> None:
    if not found:
        raise UserError(f"nothing to predict in {', '.join(map(str, files)) or 'no files'}")


def encode_texts(preprocessing: Mapping[str, Any], texts: list[str]) -> TextExamples:
    """Texts as examples whose targets are all -1, encoded as the training data was."""
    vocabulary = Vocabulary(preprocessing["vocabulary"], preprocessing["ngrams"])
    return TextExamples(*vocabulary.encode(texts), torch.full((len(texts),), NO_TARGET))


def _encode_images(preprocessing: Mapping[str, Any], images: list[Tensor]) -> ImageExamples:
    targets = torch.full((len(images),), NO_TARGET)
    return ImageExamples(torch.stack(images), targets, preprocessing["mean"], preprocessing["std"])


def _read_texts(file: Path, settings: TextTableData) -> list[tuple[str, str]]:
    """Texts, each after the name that is shown for it: one line, whatever the text holds."""
    column, suffix = settings.text_column, table_suffix(file)
    if suffix == ".json":
        parts = read_json_parts(file, column, settings.label_column)
        rows = [row for part in parts.values() for row in part]
    elif suffix:
        rows = read_rows(file, (column,))
    else:
        lines = enumerate(split_lines(read_text(file)), start=1)
        return [(f"{file}, line {number}: {one_line(line)}", line) for number, line in lines if line.strip()]
    return [(f"{row.where}: {one_line(row.values[column])}", row.values[column]) for row in rows]


def _image_files(file: Path) -> list[Path]:
    if file.is_dir():
        return list_images(file)
    if file.suffix.lower() not in SUFFIXES:
        raise UserError(f"{file} is not an image: the run reads {', '.join(sorted(SUFFIXES))}")
    return [file]
