"""Text files: reads and writes similarity tables with names (CSV, TSV), and writes word2vec vectors."""

import csv
import io
import os
import re
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from labelemb.labelspace.errors import LabelSpaceError
from labelemb.labelspace.forms import Form
from labelemb.labelspace.labels import refuse_repeated
from labelemb.support.cells import defused, restored
from labelemb.support.files import refuse_device, replacing
from labelemb.support.wording import quote_few


def write_csv(path: str | os.PathLike[str], names: Sequence[str], matrix: Tensor, delimiter: str) -> None:
    with replacing(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
        cells = [defused(name) for name in names]
        writer.writerow(["", *cells])
        for name, row in zip(cells, matrix, strict=True):
            writer.writerow([name, *_digits(row)])
        text.detach()  # hands the last bytes to the file, which `replacing` closes


def read_csv(path: str | os.PathLike[str], delimiter: str | None) -> tuple[list[str], Tensor]:
    """Names and rows of similarities divided by their sums."""
    where = os.fspath(path)
    header, *lines = _read_table(path, delimiter)
    columns, rows = [restored(cell) for cell in header[1:]], [restored(line[0]) for line in lines]
    if len(rows) != len(columns) or not rows:
        raise LabelSpaceError(f"{where}: {len(rows)} rows and {len(columns)} named columns: the table must be square")
    for names in (columns, rows):
        try:
            refuse_repeated(names)
        except LabelSpaceError as error:
            raise LabelSpaceError(f"{where}: {error}") from None
    if set(columns) != set(rows):
        differing = quote_few(sorted(set(columns) ^ set(rows)))
        raise LabelSpaceError(f"{where}: the first row and the first column must name the same labels, see {differing}")
    matrix = np.array([_numbers(where, line, len(columns)) for line in lines])
    column_of = {name: column for column, name in enumerate(columns)}
    matrix = matrix[:, [column_of[name] for name in rows]]
    _check_similarities(where, rows, matrix)
    matrix /= matrix.max(axis=1, keepdims=True)  # so that no sum is too large for a number
    return rows, torch.from_numpy(matrix / matrix.sum(axis=1, keepdims=True))


def write_word2vec(path: str | os.PathLike[str], names: Sequence[str], form: Form) -> None:
    words = word2vec_words(names)
    everything = torch.arange(form.num_labels)
    width = form.vectors(everything[:1]).shape[1]
    with replacing(path) as file:
        file.write(f"{len(words)} {width}\n".encode())
        done = 0
        for piece in form.blocks(everything):
            for word, row in zip(words[done : done + len(piece)], form.vectors(piece), strict=True):
                file.write(f"{word} {' '.join(_digits(row))}\n".encode())
            done += len(piece)


def word2vec_words(names: Sequence[str]) -> list[str]:
    """Names without white space or control characters, still all different."""
    words: list[str] = []
    # A name that is fine as it is keeps its spelling, also when an earlier one turns into the same word.
    taken = {name for name in names if _as_word(name) == name}
    for name in names:
        word = _as_word(name)
        if word != name:
            number, plain = 1, word
            while word in taken:
                number += 1
                word = f"{plain}_{number}"
            taken.add(word)
        words.append(word)
    return words


def _as_word(name: str) -> str:
    return re.sub(r"[\s\x00-\x1f\x7f-\x9f]", "_", name) or "_"


def _digits(row: Tensor) -> list[str]:
    return [f"{number:.9g}" for number in row.tolist()]  # nine digits give the same float32 back


def _read_table(path: str | os.PathLike[str], delimiter: str | None) -> list[list[str]]:
    where = os.fspath(path)
    try:
        refuse_device(Path(path))
        with Path(path).open(encoding="utf-8-sig", newline="") as file:
            if delimiter is None:
                delimiter = "\t" if "\t" in file.readline() else ","
                file.seek(0)
            table = [line for line in csv.reader(file, delimiter=delimiter, strict=True) if line]
    except OSError as error:
        raise LabelSpaceError(f"{where}: cannot be read: {error.strerror}") from error
    except MemoryError as error:
        raise LabelSpaceError(f"{where}: not enough memory to read it") from error
    except (csv.Error, UnicodeDecodeError) as error:
        raise LabelSpaceError(f"{where}: not a table of text in UTF-8: {error}") from error
    if not table:
        raise LabelSpaceError(f"{where}: the table is empty: its first row and first column must name the labels")
    return table


def _numbers(where: str, line: list[str], columns: int) -> list[float]:
    name, *cells = line
    if len(cells) != columns:
        raise LabelSpaceError(f"{where}: row {name!r} has {len(cells)} numbers, the first row names {columns} labels")
    try:
        return [float(cell) for cell in cells]
    except ValueError as error:
        raise LabelSpaceError(f"{where}: row {name!r}: {error}") from None


def _check_similarities(where: str, names: list[str], matrix: np.ndarray) -> None:
    for wrong, reason in (
        (~np.isfinite(matrix), "is not finite"),
        (matrix < 0, "is negative"),
    ):
        if wrong.any():
            row, column = np.argwhere(wrong)[0]
            value = matrix[row, column]
            raise LabelSpaceError(f"{where}: {value:g} in row {names[row]!r}, column {names[column]!r} {reason}")
    empty = [name for name, most in zip(names, matrix.max(axis=1), strict=True) if most <= 0]
    if empty:
        raise LabelSpaceError(f"{where}: only zeros in row {quote_few(empty)}: each label needs some similarity")
    weaker = [name for name, own, most in zip(names, matrix.diagonal(), matrix.max(axis=1), strict=True) if own < most]
    if weaker:
        warnings.warn(f"{where}: another label is more similar than itself to {quote_few(weaker)}", stacklevel=4)
