"""A summary as tables: rows for the report page, and Markdown for files and the terminal.

The columns come from the task.
"""

import re
import textwrap
from collections.abc import Sequence
from typing import NamedTuple

from labelemb.lab.comparison.summary import MethodSummary, PairedDifference, Spread, Summary
from labelemb.lab.tasks.task import Column

Row = list[str]
WIDTH = 80
LONGEST_NAME = 28
"""Characters of the first column in one line of a terminal."""


class Table(NamedTuple):
    """Cells as they are shown; the first column names the method."""

    header: Row
    rows: list[Row]
    best: list[list[bool]]
    """Of each cell, whether it is the best of its column, by the column's own direction."""


def tables(summary: Summary) -> list[Table]:
    """All tables of a summary: first the scores, then how they were reached."""
    return [_table(summary, columns) for columns in summary.task.tables()]


def legend(summary: Summary) -> str:
    """What the columns mean."""
    return summary.task.legend(summary.about)


def render(summary: Summary) -> str:
    """The tables as Markdown, with the notes and what the columns mean."""
    parts = [markdown(table.header, table.rows) for table in tables(summary)]
    if summary.notes:
        parts.append("\n".join(f"- {note}" for note in summary.notes))
    return "\n\n".join([*parts, legend(summary)])


def show(summary: Summary) -> str:
    """What `render` gives, for a terminal of 80 columns."""
    parts = [fitted(table.header, table.rows) for table in tables(summary)]
    if summary.notes:
        parts.append(wrapped("\n".join(f"- {note}" for note in summary.notes)))
    return "\n\n".join([*parts, wrapped(legend(summary))])


def fitted(header: Row, rows: Sequence[Row]) -> str:
    """The table as Markdown of at most 80 columns: what does not fit beside the first column goes into further tables.

    A long cell of the first column, which names the row, stands on several lines.
    """
    names = [_name_lines(row[0]) for row in rows]
    first = max(len(line) for line in (header[0], "---", *(line for name in names for line in name)))
    widths = [max(3, *(len(row[i]) for row in (header, *rows))) for i in range(1, len(header))]
    blocks: list[list[int]] = []
    room = 0
    for column, width in enumerate(widths, start=1):
        if room < width + 3:
            blocks.append([])
            room = WIDTH - first - 4
        blocks[-1].append(column)
        room -= width + 3
    return "\n\n".join(
        markdown([header[0], *(header[i] for i in block)], _lines(names, rows, block)) for block in blocks
    )


def _lines(names: Sequence[list[str]], rows: Sequence[Row], columns: Sequence[int]) -> list[Row]:
    """The lines of a table: the cells of a row stand beside the first line of its name."""
    found = []
    for name, row in zip(names, rows, strict=True):
        found.append([name[0], *(row[column] for column in columns)])
        found += [[line, *("" for _ in columns)] for line in name[1:]]
    return found


def _name_lines(name: str) -> list[str]:
    """A name in lines that leave room for numbers, cut before options where it can be."""
    lines = [""]
    for part in re.split(r"(?=[@+])|(?<=[-_/])", name):
        if lines[-1] and len(lines[-1]) + len(part) > LONGEST_NAME:
            lines.append("")
        lines[-1] += part
    return [line[start : start + LONGEST_NAME] for line in lines for start in range(0, max(1, len(line)), LONGEST_NAME)]


def wrapped(text: str) -> str:
    """The text in lines of at most 80 columns; each of its points begins a new one."""
    points = re.split(r"\n(?! )", text)
    return "\n".join(textwrap.fill(" ".join(point.split()), WIDTH, subsequent_indent="  ") for point in points)


def markdown(header: Row, rows: Sequence[Row]) -> str:
    """A Markdown table whose columns line up in the terminal too: text to the left, numbers to the right."""
    widths = [max(3, *(len(row[i]) for row in (header, *rows))) for i in range(len(header))]

    def line(cells: Row) -> str:
        padded = [
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return f"| {' | '.join(padded)} |"

    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    return "\n".join([line(header), line(rule), *map(line, rows)])


def _table(summary: Summary, columns: Sequence[Column]) -> Table:
    header = ["method", *(column.title for column in columns)]
    rows = [[method, *(_cell(values, column) for column in columns)] for method, values in summary.methods.items()]
    marks = [_best(summary, column) for column in columns]
    best = [[False, *(method in mark for mark in marks)] for method in summary.methods]
    return Table(header, rows, best)


def _best(summary: Summary, column: Column) -> set[str]:
    """The methods with the best number of a column; none where there is nothing to compare."""
    if column.better is None or len(summary.methods) < 2:
        return set()
    scores = {method: values.scores[column.field] for method, values in summary.methods.items()}
    if column.form == "reached":  # the mean over some runs says nothing about the others
        scores = {method: score for method, score in scores.items() if score.n == len(score.values)}
    numbers = {method: score.min if column.form == "min" else score.mean for method, score in scores.items()}
    known = {method: round(number, column.digits) for method, number in numbers.items() if number is not None}
    best = (max if column.better == "higher" else min)(known.values(), default=None)
    return {method for method, number in known.items() if number == best}


def _cell(values: MethodSummary, column: Column) -> str:
    """The text of a cell; `-` for a number that there is not."""
    against = values.against_plain
    if column.form == "reduction":
        return _reduction(values, column.digits)
    if column.form == "difference":
        return "-" if against is None else _difference(against)
    if column.form == "p":
        return "-" if against is None or against.p is None else p_value(against.p)
    score = values.scores[column.field]
    if column.form == "runs":
        return str(score.n)
    if column.form == "min":
        return _number(score.min, column.digits)
    if column.form == "spread":
        return _spread(score, column.digits)
    if column.form == "reached":
        return _reached(score)
    return _number(score.mean, column.digits)


def _spread(score: Spread, digits: int) -> str:
    """Mean ± standard deviation."""
    return _number(score.mean, digits) + (f" ± {score.std:.{digits}f}" if score.n > 1 else "")


def _reached(score: Spread) -> str:
    """Mean epochs over the runs that reached the goal, and how many did if not all."""
    share = "" if score.n in (0, len(score.values)) else f" ({score.n} of {len(score.values)})"
    return _number(score.mean, 1) + share


def _number(value: float | None, digits: int, unit: str = "") -> str:
    return "-" if value is None else f"{value:.{digits}f}{unit}"


def _reduction(values: MethodSummary, digits: int) -> str:
    """The percentage, unless the paired difference could as well be none."""
    against, reduction = values.against_plain, values.error_reduction
    is_clear = against is not None and against.is_clear
    return _number(reduction, digits, " %") if is_clear or reduction is None else "unclear"


def _difference(against: PairedDifference) -> str:
    interval = "" if against.low is None else f" [{against.low:+.2f}, {against.high:+.2f}]"
    return f"{against.mean:+.2f}{interval}"


def p_value(p: float) -> str:
    """A p-value in three digits."""
    return "<0.001" if p < 0.001 else f"{p:.3f}"
