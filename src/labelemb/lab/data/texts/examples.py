"""Texts in memory as feature numbers, and the encoding of new texts."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, Self

import torch
from torch import Tensor

from labelemb.lab.data.dataset import Examples, InputForm, InputPlace, Inputs, check_any, label_numbers, no_targets
from labelemb.lab.data.files import (
    MissingColumnError,
    read_json_parts,
    read_rows,
    read_text,
    split_lines,
    table_suffix,
)
from labelemb.lab.data.texts.table import label_of, read_labelled_rows
from labelemb.lab.data.texts.vocabulary import Vocabulary
from labelemb.lab.recipes.settings import DataSettings, TextTableData
from labelemb.support.errors import UserError


class TextExamples(Examples):
    """Texts as feature numbers, one after the other in `features`; text i is features[starts[i]:starts[i + 1]].

    A batch is (features, offsets) as `torch.nn.EmbeddingBag` takes them.
    """

    def __init__(self, features: Tensor, starts: Tensor, targets: Tensor) -> None:
        super().__init__(targets)
        self.features = features
        self.starts = starts

    def batch(self, index: Tensor) -> tuple[Inputs, Tensor]:
        features, starts = self._gather(index)
        return (features, starts[:-1]), self.targets[index]

    def select(self, index: Tensor) -> Self:
        return type(self)(*self._gather(index), self.targets[index])

    def _gather(self, index: Tensor) -> tuple[Tensor, Tensor]:
        begin = self.starts[index]
        lengths = self.starts[index + 1] - begin
        starts = torch.zeros(len(index) + 1, dtype=torch.long)
        torch.cumsum(lengths, 0, out=starts[1:])
        # position of a feature = begin of its text + its place inside the text
        shift = torch.repeat_interleave(begin - starts[:-1], lengths)
        return self.features[torch.arange(len(shift)) + shift], starts


class TextForm(InputForm, frozen=True):
    """Texts as numbers, in any form."""

    noun: ClassVar[str] = "texts"

    @abstractmethod
    def encode(self, texts: Sequence[str], targets: Tensor | None = None) -> TextExamples:
        """Texts as examples; without targets, to predict."""

    def read(self, files: Sequence[Path], settings: DataSettings) -> tuple[list[InputPlace], TextExamples]:
        """Tables (.csv, .tsv, .jsonl; .json as for training) with the text column, or files with one text a line."""
        with _columns_of_training():
            places = [place for file in files for place in _read_texts(file, _columns(settings))]
        check_any(places, files)
        return places, self.encode([place.text or "" for place in places])

    def read_labelled(self, place: Path, settings: DataSettings, label_names: list[str]) -> TextExamples:
        """A table (.csv, .tsv, .jsonl) with the columns of the text and of the label."""
        columns = _columns(settings)
        if place.is_dir():
            raise UserError(f"{place} is a folder: name a table in it")
        if not place.is_file():
            raise UserError(f"there is no table {place}")
        with _columns_of_training():
            rows = read_labelled_rows(place, columns)
        texts = [row.values[columns.text_column] for row in rows]
        found = self.encode(texts, label_numbers(((row.where, label_of(row, columns)) for row in rows), label_names))
        found.texts = texts
        return found


class TextInputs(TextForm, frozen=True, tag="text"):
    """Texts as word n-grams of a vocabulary."""

    ngrams: int
    vocabulary: list[str]

    def encode(self, texts: Sequence[str], targets: Tensor | None = None) -> TextExamples:
        features, starts = Vocabulary(self.vocabulary, self.ngrams).encode(texts)
        return TextExamples(features, starts, no_targets(len(texts)) if targets is None else targets)

    def difference(self, other: InputForm) -> str:
        if isinstance(other, TextInputs) and other != self:
            return "its vocabulary is another one"
        return super().difference(other)


@contextmanager
def _columns_of_training() -> Iterator[None]:
    """Says of a missing column what can be done once a model is trained: its settings are fixed."""
    try:
        yield
    except MissingColumnError as error:
        raise UserError(f"{error}; call it as in the table that the run was trained on") from error


def _columns(settings: DataSettings) -> TextTableData:
    """What says which columns a table has."""
    return settings if isinstance(settings, TextTableData) else TextTableData()


def _read_texts(file: Path, settings: TextTableData) -> list[InputPlace]:
    """Texts with their places."""
    column, suffix = settings.text_column, table_suffix(file)
    if suffix == ".json":
        parts = read_json_parts(file, column, settings.label_column)
        found = [(row.line, row.values[column], row.where) for part in parts.values() for row in part]
    elif suffix:
        found = [(row.line, row.values[column], row.where) for row in read_rows(file, (column,))]
    else:
        lines = enumerate(split_lines(read_text(file)), start=1)
        found = [(number, line, f"{file}, line {number}") for number, line in lines if line.strip()]
    return [InputPlace(str(file), line, text, where) for line, text, where in found]
