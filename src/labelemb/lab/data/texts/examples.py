"""Texts in memory: numbers of features, and how new texts become such numbers."""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from labelemb.lab.data.dataset import Examples, InputForm, Inputs, check_any, no_targets
from labelemb.lab.data.files import read_json_parts, read_rows, read_text, split_lines, table_suffix
from labelemb.lab.data.texts.vocabulary import Vocabulary
from labelemb.lab.recipes.settings import DataSettings, TextTableData
from labelemb.support.wording import one_line


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

    def select(self, index: Tensor) -> "TextExamples":
        return TextExamples(*self._gather(index), self.targets[index])

    def _gather(self, index: Tensor) -> tuple[Tensor, Tensor]:
        begin = self.starts[index]
        lengths = self.starts[index + 1] - begin
        starts = torch.zeros(len(index) + 1, dtype=torch.long)
        torch.cumsum(lengths, 0, out=starts[1:])
        # position of a feature = begin of its text + its place inside the text
        shift = torch.repeat_interleave(begin - starts[:-1], lengths)
        return self.features[torch.arange(len(shift)) + shift], starts


class TextInputs(InputForm, frozen=True, tag="text"):
    """Texts as word n-grams of a vocabulary."""

    noun: ClassVar[str] = "texts"

    ngrams: int
    vocabulary: list[str]

    def encode(self, texts: Sequence[str], targets: Tensor | None = None) -> TextExamples:
        """Texts as examples; without targets, to predict."""
        features, starts = Vocabulary(self.vocabulary, self.ngrams).encode(texts)
        return TextExamples(features, starts, no_targets(len(texts)) if targets is None else targets)

    def read(self, files: Sequence[Path], settings: DataSettings) -> tuple[list[str], TextExamples]:
        """Tables (.csv, .tsv, .jsonl; .json as for training) with the text column, or files with one text a line."""
        columns = settings if isinstance(settings, TextTableData) else TextTableData()
        named = [entry for file in files for entry in _read_texts(file, columns)]
        check_any(named, files)
        return [name for name, _ in named], self.encode([text for _, text in named])

    def difference(self, other: InputForm) -> str:
        if isinstance(other, TextInputs) and other != self:
            return "its vocabulary is another one"
        return super().difference(other)


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
