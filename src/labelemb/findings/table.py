"""Tables of findings as text of 80 columns, HTML, and CSV that spreadsheets do not execute."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from labelemb.support.cells import defused
from labelemb.support.files import replacing
from labelemb.support.wording import display_width, one_line, shorten

WIDTH = 80
GAP = 2
NARROWEST = 8
"""Characters to which a column of text is cut at most."""
LONGEST_HTML_CELL = 200


@dataclass(frozen=True)
class Table:
    """A titled table. Numbers come as text; columns whose every cell is a number are aligned to the right.

    Attributes:
        title: the line above it.
        columns: headings.
        rows: cells.
        total: number of findings, of which `rows` may be the first ones.
        reasons: one for each row, shown where there is room for whole sentences (HTML).
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    total: int
    reasons: Sequence[str] = field(default=())


def plain_text(table: Table, most_rows: int) -> str:
    """The first rows of a table in at most 80 columns; long cells are cut."""
    cells = [[one_line(cell) for cell in row] for row in table.rows[:most_rows]]
    numeric = [all(_is_number(row[place]) for row in cells) for place in range(len(table.columns))]
    widths = _fitting_widths([table.columns, *cells], numeric)
    lines = [_title(table, len(cells))]
    lines += [_line(row, widths, numeric) for row in [table.columns, *cells]]
    return "\n".join(lines)


def html(table: Table, most_rows: int) -> str:
    """The first rows of a table with their reasons; everything in it is escaped and cut."""
    columns = [*table.columns, *(["reason"] if table.reasons else [])]
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = []
    for place, row in enumerate(table.rows[:most_rows]):
        cells = [*row, *([table.reasons[place]] if table.reasons else [])]
        body.append("".join(f"<td>{escape(shorten(cell, LONGEST_HTML_CELL))}</td>" for cell in cells))
    lines = "".join(f"<tr>{row}</tr>" for row in body)
    return f"<p><b>{escape(_title(table, len(body)))}</b></p><table><tr>{head}</tr>{lines}</table>"


def write_csv(path: str | os.PathLike[str], columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a CSV file in UTF-8, aside and renamed; an apostrophe comes before what a spreadsheet would execute."""
    with replacing(path) as file:
        # a byte order mark, without which spreadsheets do not recognise UTF-8
        text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="backslashreplace", newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([_cell(value) for value in row] for row in rows)
        text.detach()  # hands the last bytes to the file, which `replacing` closes


def _cell(value: Any) -> Any:
    if value is None or value != value:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    return defused(value) if isinstance(value, str) else value


def _title(table: Table, shown: int) -> str:
    return table.title if shown == table.total else f"{table.title} ({shown} of {table.total:,})"


def _is_number(cell: str) -> bool:
    return cell in ("", "-") or cell.replace(",", "").replace(".", "").replace("%", "").strip().isdigit()


def _fitting_widths(lines: Sequence[Sequence[str]], numeric: Sequence[bool]) -> list[int]:
    """Widths that fit into WIDTH: the widest column of text is narrowed until the line fits, headings last."""
    widths = [max(map(display_width, cells)) for cells in zip(*lines, strict=True)]
    headings = [max(NARROWEST, display_width(heading)) for heading in lines[0]]
    for least in (headings, [NARROWEST] * len(widths)):
        while sum(widths) + GAP * len(widths) > WIDTH:
            wide = [place for place, width in enumerate(widths) if width > least[place] and not numeric[place]]
            if not wide:
                break
            widths[max(wide, key=widths.__getitem__)] -= 1
    return widths


def _line(cells: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> str:
    padded = []
    for cell, width, is_number in zip(cells, widths, numeric, strict=True):
        fitted = _cut(cell, width)
        space = " " * (width - display_width(fitted))
        padded.append(space + fitted if is_number else fitted + space)
    return (" " * GAP + (" " * GAP).join(padded)).rstrip()


def _cut(text: str, width: int) -> str:
    if display_width(text) <= width:
        return text
    kept, used = "", 1
    for character in text:
        used += display_width(character)
        if used > width:
            break
        kept += character
    return f"{kept}…"
