"""Applying corrections: a new table, nothing overwritten, and no correction of other data."""

import csv
from collections.abc import Sequence
from pathlib import Path

import pytest

from labelemb.findings.table import write_csv
from labelemb.lab.jobs.corrections import apply_corrections
from labelemb.support.cells import defused, restored
from labelemb.support.errors import UserError

COLUMNS = ["index", "id", "split", "given_label", "suggested_label"]
CORRECTIONS = ["index", "id", "mark", "label"]


def write_audit(path: Path, source: str, rows: Sequence[tuple[int, str, str, str]]) -> Path:
    """A table of index, id, given label and source, in the order of suspicion."""
    content = [[index, identity, "train", label, "", shown] for index, identity, label, shown in rows]
    write_csv(path, [*COLUMNS, source], content)
    return path


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    rows = [(2, "c", "alarm", "=1+1"), (0, "a", "music", "play it"), (1, "b", "=weather", "'=sun")]
    return write_audit(tmp_path / "audit.csv", "text", rows)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    rows = [(0, "a", "cat", "train/cat/1.png"), (1, "b", "dog", "train/dog/1.png"), (2, "c", "dog", "train/dog/2.png")]
    return write_audit(tmp_path / "audit.csv", "file", rows)


def corrections(folder: Path, *rows: Sequence[object]) -> Path:
    write_csv(folder / "corrections.csv", CORRECTIONS, rows)
    return folder / "corrections.csv"


def read(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def test_wrong_labels_are_replaced_and_the_order_of_the_data_comes_back(texts: Path, tmp_path: Path) -> None:
    marked = corrections(tmp_path, [2, "c", "wrong", "music"], [0, "a", "fine", ""], [1, "b", "unsure", ""])
    applied = apply_corrections(texts, marked, tmp_path / "cleaned.csv")
    assert (applied.relabelled, applied.removed) == (1, 0)
    rows = [["play it", "music", "train"], ["'=sun", "=weather", "train"], ["=1+1", "music", "train"]]
    assert read(tmp_path / "cleaned.csv") == [["text", "label", "split"], *rows]


@pytest.mark.parametrize("content", ["[]", "{}", '{"about": 5}', '{"about": {"columns": []}}', "{", "\ufeff"])
def test_a_damaged_audit_json_is_one_line(texts: Path, tmp_path: Path, content: str) -> None:
    (tmp_path / "audit.json").write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=r"audit\.json is damaged .*run the audit again"):
        apply_corrections(texts, corrections(tmp_path, [0, "a", "wrong", ""]), tmp_path / "cleaned.csv")
    assert not (tmp_path / "cleaned.csv").exists()


def test_a_wrong_example_without_a_label_is_left_out(texts: Path, tmp_path: Path) -> None:
    applied = apply_corrections(texts, corrections(tmp_path, [0, "a", "wrong", ""]), tmp_path / "cleaned.csv")
    assert applied.removed == 1
    assert [row[0] for row in read(tmp_path / "cleaned.csv")[1:]] == ["'=sun", "=1+1"]


def test_images_become_a_list_of_moves_that_overwrites_no_file(files: Path, tmp_path: Path) -> None:
    marked = corrections(tmp_path, [1, "b", "wrong", "cat"], [2, "c", "wrong", ""])
    apply_corrections(files, marked, tmp_path / "moves.csv")
    rows = [["train/dog/1.png", "train/cat/1-2.png"], ["train/dog/2.png", ""]]
    assert read(tmp_path / "moves.csv") == [["from", "to"], *rows]


def test_corrections_of_another_data_set_are_refused(texts: Path, tmp_path: Path) -> None:
    for row in ([0, "z", "wrong", "music"], [9, "a", "wrong", "music"]):
        with pytest.raises(UserError, match="corrections of another data set"):
            apply_corrections(texts, corrections(tmp_path, row), tmp_path / "cleaned.csv")
    assert not (tmp_path / "cleaned.csv").exists()


def test_a_file_that_exists_is_not_overwritten(texts: Path, tmp_path: Path) -> None:
    before = texts.read_bytes()
    with pytest.raises(UserError, match="exists and is not overwritten"):
        apply_corrections(texts, corrections(tmp_path, [0, "a", "wrong", "alarm"]), texts)
    assert texts.read_bytes() == before


def test_a_new_label_must_be_asked_for(texts: Path, tmp_path: Path) -> None:
    marked = corrections(tmp_path, [0, "a", "wrong", "alarms"])
    with pytest.raises(UserError, match="no label 'alarms'; did you mean 'alarm'"):
        apply_corrections(texts, marked, tmp_path / "cleaned.csv")
    assert apply_corrections(texts, marked, tmp_path / "cleaned.csv", new_labels=True).new_labels == ["alarms"]


MISTAKES = {
    "an unknown mark": ([[0, "a", "bad", "music"]], "the mark is 'bad', allowed are wrong, fine and unsure"),
    "two decisions": ([[0, "a", "wrong", "alarm"], [0, "a", "fine", ""]], "corrected twice, in different ways"),
    "no index": ([["x", "a", "wrong", "alarm"]], "the index is 'x', not a whole number"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_the_corrections_is_one_line(name: str, texts: Path, tmp_path: Path) -> None:
    rows, message = MISTAKES[name]
    with pytest.raises(UserError, match=message):
        apply_corrections(texts, corrections(tmp_path, *rows), tmp_path / "cleaned.csv")


def test_other_tables_are_refused(tmp_path: Path, texts: Path) -> None:
    write_csv(tmp_path / "other.csv", [*COLUMNS, "something"], [[0, "a", "train", "x", "", ""]])
    with pytest.raises(UserError, match=r"is not the audit\.csv of an audit"):
        apply_corrections(tmp_path / "other.csv", corrections(tmp_path), tmp_path / "cleaned.csv")
    with pytest.raises(UserError, match="there is no file"):
        apply_corrections(texts, tmp_path / "nowhere.csv", tmp_path / "cleaned.csv")
    with pytest.raises(UserError, match=r"is a folder: name the audit\.csv in it"):
        apply_corrections(tmp_path, corrections(tmp_path), tmp_path / "cleaned.csv")
    with pytest.raises(UserError, match=r"no column 'split' \(columns there: index, id, mark, label\)$"):
        apply_corrections(corrections(tmp_path), texts, tmp_path / "cleaned.csv")


@pytest.mark.parametrize("text", ["plain", "=1", "'=1", "''=1", " =1", " '=1", "'quoted'", "+", "-5", "@x", "it's", ""])
def test_what_a_spreadsheet_would_execute_comes_back_as_it_was(text: str) -> None:
    assert restored(defused(text)) == text
