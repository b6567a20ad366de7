"""A summary as tables: rows for the report page, and Markdown, which is also what the terminal shows.

The columns come from the task.
"""

from collections.abc import Sequence
from typing import NamedTuple

from labelemb.lab.comparison.summary import MethodSummary, PairedDifference, Spread, Summary
from labelemb.lab.tasks.task import Column

Row = list[str]


class Table(NamedTuple):
    """Cells as they are shown; the first column names the method."""

    header: Row
    rows: list[Row]


def tables(summary: Summary) -> list[Table]:
    """All tables of a summary: first the scores, then how they were reached."""
    return [_table(summary, columns) for columns in summary.task.tables()]


def legend(summary: Summary) -> str:
    """What the columns mean."""
    return summary.task.legend(summary.about)


def render(summary: Summary) -> str:
    """The tables as Markdown, with the notes and what the columns mean."""
    parts = [markdown(*table) for table in tables(summary)]
    if summary.notes:
        parts.append("\n".join(f"- {note}" for note in summary.notes))
    return "\n\n".join([*parts, legend(summary)])


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
    return Table(header, rows)


def _cell(values: MethodSummary, column: Column) -> str:
    """The text of a cell; `-` for a number that there is not."""
    against = values.against_plain
    if column.form == "reduction":
        return _number(values.error_reduction, column.digits, " %")
    if column.form == "difference":
        return "-" if against is None else _difference(against)
    if column.form == "p":
        return "-" if against is None or against.p is None else _p_value(against.p)
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


def _difference(against: PairedDifference) -> str:
    interval = "" if against.low is None else f" [{against.low:+.2f}, {against.high:+.2f}]"
    return f"{against.mean:+.2f}{interval}"


def _p_value(p: float) -> str:
    return "<0.001" if p < 0.001 else f"{p:.3f}"
