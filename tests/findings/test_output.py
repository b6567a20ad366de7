"""The result prints in 80 columns, shows in notebooks, and is written as CSV and JSON."""

from __future__ import annotations

import csv
import json
import unicodedata
from pathlib import Path

import numpy as np
import pytest

from labelemb.findings import Audit, audit
from labelemb.findings.table import Table, plain_text
from labelemb.support.cells import defused
from labelemb.support.errors import UserError
from tests.helpers.noisy_labels import noisy_labels

HOSTILE = ["=cmd|' /C calc'!A1", "<script>alert(1)</script>", "\x1b[31mred\x1b[0m", "名前" * 30, "new\nline", "x" * 300]


@pytest.fixture(scope="module")
def found() -> Audit:
    noisy = noisy_labels(rows=400, labels=6, flips=0.15)
    texts = [f"{HOSTILE[row % 6]} {row}" for row in range(400)]
    texts[5] = texts[6] = "the same text"
    splits = ["train" if row % 4 else "test" for row in range(400)]
    return audit(noisy.probabilities, noisy.given, HOSTILE, inputs=texts, losses=np.arange(400) / 100, splits=splits)


def columns_of_terminal(line: str) -> int:
    return sum(1 + (unicodedata.east_asian_width(letter) in "WF") for letter in line)


def test_it_prints_as_tables_of_80_columns_without_control_characters(found: Audit) -> None:
    text = str(found)
    assert repr(found) == text
    lines = text.splitlines()
    assert lines[0] == "Audit of 400 examples with 6 labels"
    assert lines[1].startswith(f"about {found.summary.expected_errors} given labels are expected to be wrong (")
    assert max(map(columns_of_terminal, lines)) <= 80
    assert all(line.isprintable() for line in lines)
    titles = (
        "Examples whose label is probably wrong",
        "Labels that overlap",
        "Duplicates with different labels or across",
    )
    for title in titles:
        assert title in text


def test_headings_are_cut_last() -> None:
    cells = ["name " * 20, "12", "50.0", "other " * 20, "text " * 20, "yes"]
    columns = ["label", "examples", "error %", "most confused with", "nearest label", "observed"]
    _, heading, row = plain_text(Table("T", columns, [cells], 1), 5).splitlines()
    assert all(column in heading for column in columns)
    assert max(len(heading), len(row)) <= 80
    assert row.count("…") == 3
    wide = plain_text(Table("T", ["heading " * 4] * 4, [["x"] * 4], 1), 5)
    assert max(map(len, wide.splitlines())) <= 80


def test_a_notebook_shows_tables_with_reasons_in_which_nothing_runs(found: Audit) -> None:
    page = found._repr_html_()
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "is more probable" in page
    assert len(page) < 100_000


def test_the_csv_has_one_row_an_example_and_no_formula(found: Audit, tmp_path: Path) -> None:
    path = tmp_path / "audit.csv"
    found.to_csv(path)
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == [
        "index", "given_label", "suggested_label", "suggested_probability", "self_confidence", "label_quality",
        "is_label_issue", "reason", "split", "loss", "input",
    ]  # fmt: skip
    assert [int(row["index"]) for row in rows] == [example.index for example in found.examples]
    assert sorted(int(row["index"]) for row in rows) == list(range(400))
    cells = [cell for row in rows for cell in row.values()]
    assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n"))]
    by_index = {int(row["index"]): row for row in rows}
    assert by_index[0]["input"] == f"'{HOSTILE[0]} 0"
    assert by_index[4]["input"] == "new\nline 4"
    assert float(rows[0]["label_quality"]) == pytest.approx(found.examples[0].label_quality, rel=1e-4)
    assert [path.name for path in tmp_path.iterdir()] == ["audit.csv"]


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@a", "\t=1", "\r=1", "\n=1", " =1", "＝1", "\0=1"])
def test_text_that_a_spreadsheet_would_execute_is_defused(text: str) -> None:
    assert defused(text).startswith("'")


@pytest.mark.parametrize("text", ["", "a=b", "1-1", "'quoted", "名前"])
def test_other_text_stays_as_it_is(text: str) -> None:
    assert defused(text) == text


def test_the_json_has_the_summary_the_flagged_examples_and_all_findings_about_labels(
    found: Audit, tmp_path: Path
) -> None:
    path = tmp_path / "audit.json"
    found.to_json(path)
    content = json.loads(path.read_text(encoding="utf-8"), parse_constant=lambda name: pytest.fail(name))
    assert content["summary"]["expected_errors"] == found.summary.expected_errors
    assert [row["index"] for row in content["examples"]] == [issue.index for issue in found.examples.issues()]
    assert content["examples"][0]["given_label"] == found.examples[0].given_label
    assert [pair["suggestion"] for pair in content["pairs"]] == [pair.suggestion for pair in found.pairs]
    assert found.duplicates
    assert content["duplicates"][0]["rows"] == list(found.duplicates[0].rows)
    assert len(content["label_scores"]) == 6


def test_numbers_that_json_has_no_word_for_become_null(tmp_path: Path) -> None:
    """A label without examples has no accuracy."""
    audit([[0.9, 0.1, 0.0], [0.2, 0.8, 0.0]], [0, 1]).to_json(tmp_path / "audit.json")
    content = json.loads((tmp_path / "audit.json").read_text(), parse_constant=lambda name: pytest.fail(name))
    assert content["label_scores"][2]["accuracy"] is None


def test_a_data_frame_has_the_columns_of_the_csv(found: Audit) -> None:
    pytest.importorskip("pandas")
    frame = found.to_pandas()
    assert len(frame) == 400
    assert frame["label_quality"].is_monotonic_increasing
    assert frame["is_label_issue"].sum() == found.examples.num_issues
    assert frame.loc[frame["index"] == 4, "input"].item() == "new\nline 4"


def test_columns_of_what_was_not_passed_are_left_out() -> None:
    pytest.importorskip("pandas")
    frame = audit([[0.9, 0.1], [0.2, 0.8]], [0, 1], inputs=np.zeros((2, 4, 4))).to_pandas()
    assert not {"split", "loss", "input"} & set(frame.columns)


def test_a_file_that_cannot_be_written_leaves_nothing_behind(found: Audit, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot write"):
        found.to_csv(tmp_path / "no folder" / "audit.csv")
    assert not list(tmp_path.iterdir())


def test_an_audit_of_labels_that_are_all_right_prints_its_summary_alone() -> None:
    text = str(audit(np.eye(3).repeat(9, axis=0), np.arange(3).repeat(9)))
    assert text.splitlines() == [
        "Audit of 27 examples with 3 labels",
        "about 0 given labels are expected to be wrong (0.0%); 0 predictions disagree",
    ]
