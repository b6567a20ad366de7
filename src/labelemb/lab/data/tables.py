"""Tables of texts and labels: CSV, TSV, JSON lines, and JSON with the parts train, val and test; all plain or .gz."""

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labelemb.lab.data.files import read_bytes
from labelemb.lab.data.splits import SPLIT_NAMES
from labelemb.support.errors import UserError

TABLE_SUFFIXES = (".csv", ".tsv", ".jsonl", ".json")
LONGEST_FIELD = 2**31 - 1
"""In characters. Python's own limit is that of a paragraph."""


@dataclass(frozen=True)
class Row:
    """One row of a table. `where` names it in errors: the file and the line."""

    where: str
    values: dict[str, str]


def table_suffix(path: Path) -> str:
    """.csv, .tsv, .jsonl or .json for a table, whether packed or not; nothing for other files."""
    name = path.name.lower().removesuffix(".gz")
    return next((suffix for suffix in TABLE_SUFFIXES if name.endswith(suffix)), "")


def read_text(path: Path) -> str:
    """The text of a file in UTF-8, with or without a byte order mark."""
    content = read_bytes(path)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # the error counts in its own bytes: without the byte order mark
        line = error.object.count(b"\n", 0, error.start) + 1
        raise UserError(
            f"{path}, line {line}: not UTF-8 (byte {error.object[error.start]:#04x}); save the file as UTF-8"
        ) from error


def read_rows(path: Path, required: tuple[str, ...]) -> list[Row]:
    """The rows of a CSV, TSV or JSON lines file, each of which has the required columns."""
    text = read_text(path)
    readers = {".csv": _read_csv, ".tsv": _read_tsv, ".jsonl": _read_jsonl}
    rows = list(readers[table_suffix(path)](path, text, required))
    if not rows:
        raise UserError(f"{path} has no rows")
    return rows


def read_json_parts(path: Path, text_column: str, label_column: str) -> dict[str, list[Row]]:
    """The rows of {"train": [[text, label], ...], "val": ..., "test": ...}, CLINC150's layout, by train, dev and test.

    An entry may also be an object with the named columns. Parts with other names (CLINC150's "oos_train", ...) are
    left out.
    """
    try:
        document = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise UserError(f"{path}, line {error.lineno}: not JSON ({error.msg})") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: {_beyond_python(error)}") from error
    if not isinstance(document, dict) or "train" not in document:
        raise UserError(
            f'{path}: expected an object with "train" (and "val", "test"); one object per line is a .jsonl file'
        )
    parts: dict[str, list[Row]] = {}
    for name, entries in document.items():
        part = SPLIT_NAMES.get(name.lower())
        if part is None:
            continue
        if not isinstance(entries, list):
            raise UserError(f"{path}: {name!r} must be a list of [text, label]")
        rows = parts.setdefault(part, [])
        for number, entry in enumerate(entries, start=1):
            where = f"{path}, {name} entry {number}"
            if isinstance(entry, list) and len(entry) == 2:
                entry = {text_column: entry[0], label_column: entry[1]}
            rows.append(_object_row(where, entry, (text_column, label_column)))
    return parts


def _read_csv(path: Path, text: str, required: tuple[str, ...]) -> Iterator[Row]:
    header = text.partition("\n")[0]
    for sign, name in ((";", "semicolons"), ("\t", "tabs")):
        if sign in header and "," not in header:
            raise UserError(f"{path}: its columns are separated by {name}: save it with commas, or as .tsv with tabs")
    reader = csv.reader(io.StringIO(text, newline=""), strict=True, skipinitialspace=True)
    return _delimited(path, reader, required)


def _read_tsv(path: Path, text: str, required: tuple[str, ...]) -> Iterator[Row]:
    # quotes have no meaning in TSV: a text may begin with one and never close it
    reader = csv.reader(io.StringIO(text, newline=""), delimiter="\t", quoting=csv.QUOTE_NONE)
    return _delimited(path, reader, required)


def _delimited(path: Path, reader: Any, required: tuple[str, ...]) -> Iterator[Row]:
    csv.field_size_limit(LONGEST_FIELD)
    try:
        header = [column.strip() for column in next(reader, [])]
        _check_columns(str(path), header, required)
        for column in required:
            if header.count(column) > 1:
                raise UserError(f"{path}: {header.count(column)} columns have the name {column!r}: rename all but one")
        for values in reader:
            if not values:
                continue
            where = f"{path}, line {reader.line_num}"
            if len(values) != len(header):
                size = "short" if len(values) < len(header) else "long"
                raise UserError(
                    f"{where}: {size} row, {len(values)} values for the {len(header)} columns {', '.join(header)}"
                )
            yield Row(where, dict(zip(header, values, strict=True)))
    except csv.Error as error:
        raise UserError(f"{path}, line {reader.line_num}: {error}") from error


def _read_jsonl(path: Path, text: str, required: tuple[str, ...]) -> Iterator[Row]:
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            entry = json.loads(line)
        except json.JSONDecodeError as error:
            raise UserError(f"{where}: not JSON ({error.msg})") from error
        except (ValueError, RecursionError) as error:
            raise UserError(f"{where}: {_beyond_python(error)}") from error
        yield _object_row(where, entry, required)


def _beyond_python(error: ValueError | RecursionError) -> str:
    """JSON that Python does not read."""
    return "nested too deeply" if isinstance(error, RecursionError) else "a number has too many digits"


def _object_row(where: str, entry: Any, required: tuple[str, ...]) -> Row:
    if not isinstance(entry, dict):
        raise UserError(f"{where}: expected an object with the keys {', '.join(required)}")
    _check_columns(where, list(entry), required)
    values = {key: "" if value is None else str(value) for key, value in entry.items()}
    for key in required:
        if isinstance(entry[key], list | dict):
            raise UserError(f"{where}: {key!r} is a {type(entry[key]).__name__}, but must be one text or number")
        if any("\ud800" <= sign <= "\udfff" for sign in values[key]):
            raise UserError(
                f"{where}: {key!r} has half of a surrogate pair (\\ud800 to \\udfff), which is no character"
            )
    return Row(where, values)


def _check_columns(where: str, columns: list[str], required: tuple[str, ...]) -> None:
    for column in required:
        if column not in columns:
            there = ", ".join(columns) or "none"
            raise UserError(
                f"{where}: no column {column!r} (columns there: {there}); "
                "name yours in data.text_column, data.label_column and data.split_column"
            )
