"""Tables of a model's errors: 80 columns wide for a terminal, and complete in CSV files."""

import os
from collections.abc import Sequence
from pathlib import Path

from labelemb.findings.table import Table, plain_text, write_csv
from labelemb.lab.tasks.label_rows import LabelRow
from labelemb.lab.tasks.worst import WorstExample
from labelemb.lab.trained.model import ModelErrors
from labelemb.support.files import file_error

EXAMPLE_FIELDS = ("number", "label", "predicted", "probability", "label_probability", "text", "file")
LABEL_FIELDS = LabelRow.__struct_fields__
LONGEST_NAME = 200
"""Bytes of a place in the name of a file, which may have 255."""


def show_errors(errors: ModelErrors, count: int, where: str = "the test set") -> str:
    """The worst examples and the worst labels, at most `count` of each. `where` names their set."""
    wrong = plain_text(_example_table(errors.examples, where), count) if errors.examples else f"No errors on {where}"
    return f"{wrong}\n\n{plain_text(_label_table(errors.labels), count)}"


def write_errors(errors: ModelErrors, folder: Path, place: Path | None = None) -> list[Path]:
    """Write worst.csv and labels.csv with all fields, and return the files.

    The errors on examples at another place are in worst-NAME.csv and labels-NAME.csv, with the place's path as NAME.
    """
    of = "" if place is None else f"-{_name_of(place)}"
    examples, labels = folder / f"worst{of}.csv", folder / f"labels{of}.csv"
    _write(examples, EXAMPLE_FIELDS, errors.examples)
    _write(labels, LABEL_FIELDS, errors.labels)
    return [examples, labels]


def _name_of(place: Path) -> str:
    """The path from the current folder, or else from the root, as a name: data/new.csv.gz is data-new."""
    path = place.resolve()
    for suffix in (".gz", ".csv"):  # another suffix stays: new.jsonl is not new.csv
        if path.suffix.lower() == suffix:
            path = path.with_suffix("")
    inside = path.relative_to(Path.cwd()).parts if path.is_relative_to(Path.cwd()) else ()
    name = "-".join(inside or path.parts[1:]) or "root"
    coded = os.fsencode(name)
    return name if len(coded) <= LONGEST_NAME else coded[-LONGEST_NAME:].decode(errors="ignore")


def _write(file: Path, fields: Sequence[str], records: Sequence[object]) -> None:
    try:
        write_csv(file, fields, ([getattr(record, name) for name in fields] for record in records))
    except OSError as error:
        raise file_error("write", file, error) from error


def _example_table(examples: Sequence[WorstExample], where: str) -> Table:
    rows = [
        [
            f"{example.probability:.3f}",
            example.label,
            example.predicted,
            example.text or example.file or f"{'image' if example.picture else 'example'} {example.number}",
        ]
        for example in examples
    ]
    return Table(f"Most confident errors on {where}", ["probability", "label", "predicted", "input"], rows, len(rows))


def _label_table(labels: Sequence[LabelRow]) -> Table:
    rows = [
        [
            row.label,
            _number(row.examples, "d"),
            _number(row.error, ".1f"),
            "-" if row.confused_with is None else f"{row.confused_with} ({row.confused})",
            row.nearest or "-",
            {True: "yes", False: "no", None: "-"}[row.observed],
        ]
        for row in labels
    ]
    columns = ["label", "examples", "error %", "most confused with", "nearest label", "observed"]
    return Table("Labels, the largest error first", columns, rows, len(rows))


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
