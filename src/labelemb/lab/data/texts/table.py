"""Reads texts with labels from tables, with their splits."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from labelemb.lab.data.dataset import tensor_bytes
from labelemb.lab.data.files import (
    SPLIT_NAMES,
    MissingColumnError,
    Row,
    find_data,
    read_json_parts,
    read_rows,
    refuse_unknown_parts,
    table_suffix,
)
from labelemb.lab.data.hub import HubColumn, is_hub, read_hub
from labelemb.lab.data.splits import Splits
from labelemb.lab.recipes.settings import TextTableData
from labelemb.support.errors import UserError

WANTED = (
    "a .csv, .tsv, .jsonl or .json file, or a folder with one such file or with train, dev and test files (.gz or not)"
)


@dataclass
class Texts:
    """Texts with their targets, before they are turned into features."""

    texts: list[str]
    targets: Tensor

    def select(self, index: Tensor) -> "Texts":
        return Texts([self.texts[place] for place in index.tolist()], self.targets[index])

    def joined(self, other: "Texts") -> "Texts":
        """These texts and then the others."""
        return Texts(self.texts + other.texts, torch.cat([self.targets, other.targets]))

    def content(self) -> Iterator[bytes | memoryview]:
        """The bytes of all texts and targets."""
        yield "\0".join(self.texts).encode()
        yield from tensor_bytes(self.targets)


def read_text_table(settings: TextTableData, path: Path | None) -> Splits[Texts]:
    """The texts of a table, split as its files or its split column say; otherwise all of them for training."""
    if path is not None and is_hub(path):
        return _read_hub_texts(settings, path)
    place = find_data(path, settings.folders, lambda found: bool(_tables(found)), WANTED)
    try:
        parts = _read_parts(place, settings)
    except MissingColumnError as error:
        keys = "data.text_column, data.label_column and data.split_column"
        raise UserError(f"{error}; name yours in {keys}") from error
    labels = {part: [label_of(row, settings) for row in rows] for part, rows in parts.items()}
    names = sorted({label for part in labels.values() for label in part})
    numbers = {name: number for number, name in enumerate(names)}
    examples = {
        part: Texts([row.values[settings.text_column] for row in rows], _numbered(labels[part], numbers))
        for part, rows in parts.items()
        if rows
    }
    if "train" not in examples:
        raise UserError(f"{place} has no training rows")
    return Splits(examples["train"], examples.get("dev"), examples.get("test"), names, str(place))


def _read_hub_texts(settings: TextTableData, path: Path) -> Splits[Texts]:
    """The texts of a data set of the library `datasets`."""
    data = read_hub(path)
    label_column = data.label_column(settings.label_column)
    text_column = data.column(
        HubColumn(settings.text_column, "text", "text_column", lambda feature: str(_type(feature)).endswith("string"))
    )
    names, targets = data.targets(label_column)
    parts = {part: Texts([str(text) for text in data.values(part, text_column)], targets[part]) for part in targets}
    return Splits(parts["train"], parts.get("dev"), parts.get("test"), names, data.source)


def _type(feature: object) -> object:
    return getattr(feature, "dtype", None)


def _numbered(labels: Sequence[str], numbers: dict[str, int]) -> Tensor:
    return torch.tensor([numbers[label] for label in labels], dtype=torch.long)


def label_of(row: Row, settings: TextTableData) -> str:
    """The label of a row, which must have one."""
    label = row.values[settings.label_column].strip()
    if not label:
        raise UserError(f"{row.where}: the label is empty (column {settings.label_column!r})")
    return label


def _tables(place: Path) -> list[Path]:
    if place.is_file():
        return [place] if table_suffix(place) else []
    return sorted(file for file in place.iterdir() if file.is_file() and table_suffix(file))


def _read_parts(place: Path, settings: TextTableData) -> dict[str, list[Row]]:
    tables = _tables(place)
    parts: dict[str, Path] = {}
    for table in tables:
        part = SPLIT_NAMES.get(table.name.lower().removesuffix(".gz").removesuffix(table_suffix(table)))
        if part in parts:
            raise UserError(f"{place} has two {part} files, {parts[part].name} and {table.name}: remove one")
        if part is not None:
            parts[part] = table
    if "train" in parts and place.is_dir():
        refuse_unknown_parts(place, [table.name for table in tables if table not in parts.values()])
        return {part: read_labelled_rows(table, settings) for part, table in parts.items()}
    if len(tables) > 1:
        raise UserError(
            f"{place} holds {len(tables)} tables, give one of them: {', '.join(table.name for table in tables)}"
        )
    if table_suffix(tables[0]) == ".json":
        return read_json_parts(tables[0], settings.text_column, settings.label_column)
    if not settings.split_column:
        return {"train": read_labelled_rows(tables[0], settings)}
    return _by_split_column(read_labelled_rows(tables[0], settings, (settings.split_column,)), settings.split_column)


def read_labelled_rows(table: Path, settings: TextTableData, more_columns: tuple[str, ...] = ()) -> list[Row]:
    """The rows of one table, each with a text, a label and the other columns."""
    if table_suffix(table) in ("", ".json"):
        raise UserError(f"{table}: a table of one part must be .csv, .tsv or .jsonl (.gz or not)")
    return read_rows(table, (settings.text_column, settings.label_column, *more_columns))


def _by_split_column(rows: list[Row], column: str) -> dict[str, list[Row]]:
    parts: dict[str, list[Row]] = {}
    for row in rows:
        value = row.values[column].strip()
        part = SPLIT_NAMES.get(value.lower())
        if part is None:
            raise UserError(
                f"{row.where}: the split is {value!r} (column {column!r}), allowed are {', '.join(SPLIT_NAMES)}"
            )
        parts.setdefault(part, []).append(row)
    return parts
