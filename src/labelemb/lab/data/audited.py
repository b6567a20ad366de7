"""The examples of an audit in readable form: texts, pixels and files, with labels and parts."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from labelemb.findings.signatures import digest
from labelemb.lab.data.folds import AllRows, Part, all_rows, check_counts
from labelemb.lab.data.images.examples import ImageExamples
from labelemb.lab.data.readers import read_images, refuse_pairs
from labelemb.lab.data.splits import Splits
from labelemb.lab.data.texts.table import Texts, read_text_table
from labelemb.lab.recipes.recipe import Recipe
from labelemb.lab.recipes.settings import TextPairData, TextTableData
from labelemb.support.errors import UserError


@dataclass(frozen=True)
class AuditedData:
    """All rows of a data set in one order: train, dev, test."""

    label_names: list[str]
    targets: np.ndarray
    """(rows,) indices of the given labels."""
    parts: list[str]
    """The part of each row."""
    judged: np.ndarray
    """Indices of the rows that get out-of-fold predictions."""
    texts: list[str] | None
    images: np.ndarray | None
    """(rows, channels, height, width) bytes; None for texts."""
    files: Sequence[str] | None
    """Path of each image below the data's folder, where each has a file of its own."""
    digest: str
    columns: tuple[str, str] = ("text", "label")
    """What the columns of text and label are called in the data."""

    @property
    def inputs(self) -> Any:
        """One input a row by which duplicates are found: texts, or images (height, width, channels)."""
        if self.texts is not None:
            return self.texts
        assert self.images is not None
        return np.moveaxis(self.images, 1, -1)

    @property
    def source(self) -> Literal["text", "file", "image"]:
        """What shows an example: its text, its file, or its place in the data."""
        if self.texts is not None:
            return "text"
        return "image" if self.files is None else "file"

    def shown(self, row: int) -> str:
        """Text, file or place of an example."""
        if self.texts is not None:
            return self.texts[row]
        if self.files is not None:
            return self.files[row]
        return f"{self.parts[row]} image {row - self._firsts[self.parts[row]]}"

    def identity(self, row: int) -> str:
        """Eight digits that tell the content of an example: a correction must be about the same content."""
        if self.texts is not None:
            return digest(self.texts[row].encode("utf-8", "surrogatepass")).hex()[:8]
        assert self.images is not None
        return digest(self.images[row].tobytes()).hex()[:8]

    @cached_property
    def _firsts(self) -> dict[str, int]:
        """The first row of each part."""
        return {part: self.parts.index(part) for part in set(self.parts)}

    def __len__(self) -> int:
        return len(self.targets)


def read_audited(recipe: Recipe, path: Path | None, folds: int, parts: Sequence[Part]) -> AuditedData:
    """The data of a recipe for an audit with so many folds; a label with too few examples is a `UserError`."""
    settings = recipe.data
    if isinstance(settings, TextPairData):
        refuse_pairs()
    columns = ("text", "label")
    try:
        read: Splits[Any]
        found: AllRows[Any]
        if isinstance(settings, TextTableData):
            read = texts = read_text_table(settings, path)
            found = all_rows(texts, settings.max_per_label, parts)
            columns = (settings.text_column, settings.label_column)
        else:
            read = images = read_images(settings, path)
            found = all_rows(images, settings.max_per_label, parts)
    except OSError as error:
        raise UserError(f"cannot read {error.filename or path}: {error.strerror}") from error
    rows = found.rows
    check_counts(rows.targets[found.judged], read.label_names, folds, read.source)
    return AuditedData(
        label_names=read.label_names,
        targets=rows.targets.numpy(),
        parts=list(found.parts),
        judged=found.judged.numpy(),
        texts=rows.texts if isinstance(rows, Texts) else None,
        images=rows.images.numpy() if isinstance(rows, ImageExamples) else None,
        files=rows.files if isinstance(rows, ImageExamples) else None,
        digest=read.digest(),
        columns=columns,
    )
