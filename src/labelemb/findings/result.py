"""`Audit`: all findings, as a table to read and as files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labelemb.findings.duplicates import DuplicateFinding
from labelemb.findings.examples import ExampleFinding, Examples
from labelemb.findings.labels import LabelFinding, LabelScore, PairFinding
from labelemb.findings.table import Table, html, plain_text, write_csv
from labelemb.support.files import write_json
from labelemb.support.optional import import_optional

if TYPE_CHECKING:
    from pandas import DataFrame

ROWS_IN_TEXT = 10
ROWS_IN_HTML = 50
SHOWN_DUPLICATES = 6
"""Rows of a group of duplicates that are listed."""


@dataclass(frozen=True)
class Summary:
    """What was audited, and how many wrong labels to expect.

    Attributes:
        rows, labels: number of examples and of labels.
        rows_without_prediction: rows of NaN.
        rows_of_absent_labels: examples whose label no model of their fold had seen.
        disagreeing: usable rows whose most probable label is not the given one.
        expected_errors: how many given labels are probably wrong, by confident learning.
        in_sample: the model was trained on these examples, so that fewer errors show than there are.
    """

    rows: int
    labels: int
    rows_without_prediction: int
    rows_of_absent_labels: int
    disagreeing: int
    expected_errors: int
    in_sample: bool = False

    def lines(self) -> list[str]:
        usable = self.rows - self.rows_without_prediction - self.rows_of_absent_labels
        share = f"{self.expected_errors / usable:.1%}" if usable else "-"
        lines = [
            f"Audit of {self.rows:,} examples with {self.labels:,} labels",
            f"about {self.expected_errors:,} given labels are expected to be wrong ({share}); {self.disagreeing:,} "
            "predictions disagree",
        ]
        if self.in_sample:
            lines.append("predicted by a model that was trained on them: more labels are wrong than it shows")
        if self.rows_without_prediction:
            lines.append(f"{self.rows_without_prediction:,} rows have no prediction and are not judged")
        if self.rows_of_absent_labels:
            lines.append(f"{self.rows_of_absent_labels:,} rows have a label that their fold was not trained on")
        return lines


@dataclass(frozen=True, repr=False)
class Audit:
    """The result of `labelemb.audit`. Prints as a table; two kinds of findings are kept apart.

    Attributes:
        summary: sizes, and how many errors to expect.
        examples: about examples: all of them, the most suspicious first (`examples.issues()`: the flagged ones).
        duplicates: about examples: inputs that occur with different labels or in several splits; None without inputs.
        pairs: about labels: those that are confused with each other, most often first.
        labels: about labels: never right, too few examples, absent from training.
        label_scores: numbers of each label.
    """

    summary: Summary
    examples: Examples
    duplicates: tuple[DuplicateFinding, ...] | None
    pairs: tuple[PairFinding, ...]
    labels: tuple[LabelFinding, ...]
    label_scores: tuple[LabelScore, ...]

    def __str__(self) -> str:
        parts = ["\n".join(self.summary.lines())]
        parts += [plain_text(table, ROWS_IN_TEXT) for table in self._tables(ROWS_IN_TEXT)]
        return "\n\n".join(parts)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """What a notebook shows: the same tables with the reason of each finding."""
        title = "<br>".join(self.summary.lines())
        return f"<div><p>{title}</p>{''.join(html(table, ROWS_IN_HTML) for table in self._tables(ROWS_IN_HTML))}</div>"

    def to_pandas(self) -> DataFrame:
        """All examples as a data frame, the most suspicious first (extra `[plot]`)."""
        pandas = import_optional("pandas", "to_pandas()", "plot")
        return pandas.DataFrame(self._rows(), columns=self._columns())

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write one row an example, the most suspicious first. Opens in a spreadsheet without executing formulas."""
        write_csv(path, self._columns(), self._rows())

    def to_json(self, path: str | os.PathLike[str]) -> None:
        """Write the summary, all findings about labels, the flagged examples and the duplicates."""
        write_json(Path(path), self.as_json())

    def as_json(self) -> dict[str, Any]:
        """What `to_json` writes, as plain values."""
        columns = self._columns()
        issues = self.examples.issues()
        content = {
            "summary": asdict(self.summary),
            "examples": [dict(zip(columns, self._values(issue, columns), strict=True)) for issue in issues],
            "duplicates": None if self.duplicates is None else [asdict(duplicate) for duplicate in self.duplicates],
            "pairs": [asdict(pair) for pair in self.pairs],
            "labels": [asdict(label) for label in self.labels],
            "label_scores": [score._asdict() for score in self.label_scores],
        }
        found: dict[str, Any] = _without_nan(content)
        return found

    def _columns(self) -> list[str]:
        """Fields of `ExampleFinding`, without those that were not passed or that are no text."""
        first = self.examples[0]
        optional = {"split": first.split, "loss": first.loss, "input": _text_of_input(first.input)}
        return [
            name for name in ExampleFinding.__dataclass_fields__ if name not in optional or optional[name] is not None
        ]

    def _rows(self) -> Iterator[list[Any]]:
        columns = self._columns()
        return (self._values(example, columns) for example in self.examples)

    @staticmethod
    def _values(example: ExampleFinding, columns: Sequence[str]) -> list[Any]:
        return [_text_of_input(example.input) if column == "input" else getattr(example, column) for column in columns]

    def _tables(self, most: int) -> list[Table]:
        """A table for each kind of finding that there is, with at most `most` rows made."""
        found = [self._examples_table(most), self._pairs_table(most), self._labels_table(most)]
        if self.duplicates:
            found.append(_duplicates_table(self.duplicates, most))
        return [table for table in found if table.total]

    def _examples_table(self, most: int) -> Table:
        shown = self.examples[: min(most, self.examples.num_issues)]
        texts = [_text_of_input(example.input) for example in shown]
        with_inputs = any(text is not None for text in texts)
        rows = [
            [
                str(example.index),
                example.given_label,
                example.suggested_label or "-",
                f"{example.self_confidence:.3f}",
                f"{example.suggested_probability:.3f}",
                *([text or ""] if with_inputs else []),
            ]
            for example, text in zip(shown, texts, strict=True)
        ]
        columns = ["row", "given", "suggested", "p given", "p sugg.", *(["input"] if with_inputs else [])]
        reasons = [example.reason for example in shown]
        return Table("Examples whose label is probably wrong", columns, rows, self.examples.num_issues, reasons)

    def _pairs_table(self, most: int) -> Table:
        shown = self.pairs[:most]
        with_space = any(pair.likeness is not None for pair in shown)
        rows = [
            [
                pair.label,
                pair.other,
                str(pair.label_as_other),
                str(pair.other_as_label),
                *([f"{pair.likeness:.3f}", f"{pair.other_likeness:.3f}"] if with_space else []),
                pair.suggestion,
                f"{pair.error_before:.2%}",
                f"{pair.error_merged:.2%}",
            ]
            for pair in shown
        ]
        likeness = ["like", "back"] if with_space else []
        columns = ["label", "other", "as other", "back", *likeness, "suggest", "error", "merged"]
        return Table("Labels that overlap", columns, rows, len(self.pairs), [pair.reason for pair in shown])

    def _labels_table(self, most: int) -> Table:
        shown = self.labels[:most]
        rows = [[label.label, str(label.examples), label.problem] for label in shown]
        reasons = [label.reason for label in shown]
        return Table("Labels to look at", ["label", "examples", "problem"], rows, len(self.labels), reasons)


def _duplicates_table(duplicates: Sequence[DuplicateFinding], most: int) -> Table:
    shown = duplicates[:most]
    rows = []
    for duplicate in shown:
        listed = ", ".join(map(str, duplicate.rows[:SHOWN_DUPLICATES]))
        rows.append([listed + (", …" if len(duplicate.rows) > SHOWN_DUPLICATES else ""), duplicate.reason])
    return Table("Duplicates with different labels or across splits", ["rows", "finding"], rows, len(duplicates))


def _text_of_input(value: Any) -> str | None:
    return str(value) if isinstance(value, str | Path) else None


def _without_nan(value: Any) -> Any:
    """The same value for JSON, which has no NaN."""
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    return None if value != value else value
