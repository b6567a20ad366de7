"""`RowTable`: rows with named fields that print as text, show as HTML in a notebook, and convert to a data frame."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any, NamedTuple, TypeVar, overload

from labelemb.support.optional import import_optional
from labelemb.support.wording import display_width, padded, shorten

LONGEST_CELL = 40
MOST_PRINTED_ROWS = 60

Row = TypeVar("Row", bound=tuple[Any, ...])


class Column(NamedTuple):
    """A column: the field of a row that it shows, and its heading."""

    field: str
    heading: str


class RowTable(Sequence[Row]):
    """A sequence of named tuples. Subclasses set `columns` and, where there is something to say, `note`.

    Texts from files are escaped and cut when they are shown; the fields of the rows keep them whole.
    """

    columns: Sequence[Column] = ()

    def __init__(self, rows: Iterable[Row], note: str = "") -> None:
        self._rows = list(rows)
        self.note = note

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> Row: ...

    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...

    def __getitem__(self, index: int | slice) -> Row | list[Row]:
        return self._rows[index]

    def __str__(self) -> str:
        shown = self._rows[:MOST_PRINTED_ROWS]
        table = [[column.heading for column in self.columns], *(self._cells(row) for row in shown)]
        widths = [max(map(display_width, cells)) for cells in zip(*table, strict=True)]
        lines = ["  ".join(map(padded, cells, widths)).rstrip() for cells in table]
        if len(shown) < len(self):
            lines.append(f"... and {len(self) - len(shown)} more")
        return "\n".join([*lines, *([f"({self.note})"] if self.note else [])])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{escape(column.heading)}</th>" for column in self.columns)
        body = "".join(
            f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in self._cells(row))}</tr>"
            for row in self._rows[:MOST_PRINTED_ROWS]
        )
        more = len(self) - MOST_PRINTED_ROWS
        notes = [note for note in (f"{more} more rows" if more > 0 else "", self.note) if note]
        return f"<table><tr>{head}</tr>{body}</table>" + "".join(f"<p>{escape(note)}</p>" for note in notes)

    def to_pandas(self) -> Any:
        """The rows as a data frame with all fields (extra `[plot]`)."""
        pandas = import_optional("pandas", "to_pandas()", "plot")
        return pandas.DataFrame(self._rows, columns=self._fields())

    def _fields(self) -> list[str]:
        return list(self._rows[0]._fields) if self._rows else [column.field for column in self.columns]  # type: ignore[attr-defined]

    def _cells(self, row: Row) -> list[str]:
        return [_cell(getattr(row, column.field)) for column in self.columns]


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "-"
    text = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return shorten(text, LONGEST_CELL)
