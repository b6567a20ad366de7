"""`apply_corrections`: writes audited data with marked corrections to a new file; the original is not changed."""

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import msgspec

from labelemb.lab.data.files import Row, read_rows
from labelemb.lab.tasks.records import from_json
from labelemb.support.cells import restored
from labelemb.support.errors import UserError
from labelemb.support.files import LARGEST_RECORD, file_error, read_whole, write_bytes
from labelemb.support.wording import did_you_mean, quote_few

MARKS = ("wrong", "fine", "unsure", "")
SOURCES = ("text", "file", "image")
"""Columns of audit.csv that show an example, one of which it has."""


@dataclass(frozen=True)
class Applied:
    """How many examples got another label, how many were left out, and the labels that are new."""

    relabelled: int
    removed: int
    new_labels: list[str]


@dataclass(frozen=True)
class _Example:
    """A row of audit.csv."""

    index: int
    identity: str
    split: str
    label: str
    source: str


class _About(msgspec.Struct, frozen=True):
    columns: tuple[str, str] = ("text", "label")


class _AuditFile(msgspec.Struct, frozen=True):
    """What is read of audit.json."""

    about: _About


def apply_corrections(audit: Path, corrections: Path, out: Path, *, new_labels: bool = False) -> Applied:
    """Write the audited data with its corrections to `out`.

    A table of texts becomes a table of texts; a folder of images becomes a list of moves (from, to); images without
    files of their own become a list of labels. An example marked wrong gets the label of its row, and is left out where
    that is empty; fine and unsure change nothing.

    Args:
        audit: the audit.csv of an audit.
        corrections: what the page of the audit downloads: columns index, id, mark and label.
        out: the new file; one that exists is refused.
        new_labels: allow labels that the data does not have.
    """
    if out.exists():
        raise UserError(f"{out} exists and is not overwritten: choose another --out")
    for file in (audit, corrections):
        if file.is_dir():
            raise UserError(f"{file} is a folder: name the audit.csv in it, and then the corrections of its page")
        if not file.is_file():
            raise UserError(f"there is no file {file}")
    source, examples = _read_audit(audit)
    changed = _read_corrections(corrections, examples, audit)
    known = {example.label for example in examples.values()}
    added = sorted({label for label in changed.values() if label} - known)
    if added and not new_labels:
        raise UserError(
            f"{corrections}: the data has no label {quote_few(added)}{did_you_mean(added[0], known)} (pass "
            "--new-labels to add labels)"
        )
    columns, rows = _corrected(source, examples, changed, _column_names(audit))
    if not rows and source != "file":
        raise UserError(f"{corrections} removes every example: nothing is left to write")
    _write_table(out, columns, rows)
    removed = sum(not label for label in changed.values())
    return Applied(len(changed) - removed, removed, added)


def _read_audit(file: Path) -> tuple[str, dict[int, _Example]]:
    """The column that shows an example, and the examples by their index, in the order of the data."""
    rows = read_rows(file, ("index", "id", "split", "given_label"))
    source = next((name for name in SOURCES if name in rows[0].values), None)
    if source is None:
        raise UserError(f"{file} is not the audit.csv of an audit: it has none of the columns {', '.join(SOURCES)}")
    found = {}
    for row in rows:
        values = row.values
        example = _Example(
            _index(row), values["id"], values["split"], restored(values["given_label"]), restored(values[source])
        )
        if example.index in found:
            raise UserError(f"{row.where}: index {example.index} occurs twice")
        found[example.index] = example
    return source, dict(sorted(found.items()))


def _read_corrections(file: Path, examples: dict[int, _Example], audit: Path) -> dict[int, str]:
    """The new label of each example that changes, empty for one that is left out."""
    changed: dict[int, str] = {}
    seen: dict[int, str] = {}
    for row in read_rows(file, ("index", "id", "mark", "label")):
        index, mark, label = _index(row), row.values["mark"].strip(), restored(row.values["label"].strip())
        example = examples.get(index)
        if example is None or example.identity != row.values["id"]:
            there = "there is none" if example is None else f"it has the id {example.identity}"
            raise UserError(
                f"{row.where}: example {index} has the id {row.values['id']!r}, in {audit} {there}: these are "
                "corrections of another data set"
            )
        if mark not in MARKS:
            raise UserError(f"{row.where}: the mark is {mark!r}, allowed are wrong, fine and unsure")
        decision = f"{mark} {label}"
        if seen.setdefault(index, decision) != decision:
            raise UserError(f"{row.where}: example {index} is corrected twice, in different ways: remove one")
        if mark == "wrong" and label != example.label:
            changed[index] = label
    return changed


def _index(row: Row) -> int:
    text = row.values["index"].strip()
    if not text.isdecimal():
        raise UserError(f"{row.where}: the index is {text!r}, not a whole number")
    return int(text)


def _column_names(audit: Path) -> tuple[str, str]:
    """What the data calls its columns of text and label, as audit.json beside the table says."""
    beside = audit.with_name("audit.json")
    if not beside.is_file():
        return "text", "label"
    try:
        return from_json(read_whole(beside, LARGEST_RECORD), _AuditFile).about.columns
    except OSError as error:
        raise file_error("read", beside, error) from error
    except ValueError as error:
        raise UserError(f"{beside} is damaged ({error}): run the audit again, which keeps its folds") from error


def _corrected(
    source: str, examples: dict[int, _Example], changed: dict[int, str], names: tuple[str, str]
) -> tuple[Sequence[str], list[Sequence[str]]]:
    """Columns and rows of the new table."""
    if source == "file":
        return ("from", "to"), _moves(examples, changed)
    kept = [example for example in examples.values() if changed.get(example.index, example.label)]
    labels = [changed.get(example.index, example.label) for example in kept]
    columns = (*names, "split") if source == "text" else (source, "label", "split")
    return columns, [(example.source, label, example.split) for example, label in zip(kept, labels, strict=True)]


def _moves(examples: dict[int, _Example], changed: dict[int, str]) -> list[Sequence[str]]:
    """Old and new path of each file that moves; the new one is empty for a file that is to be removed."""
    taken = {example.source for example in examples.values()}
    moves: list[Sequence[str]] = []
    for index, label in changed.items():
        example = examples[index]
        target = "" if not label else _free(_moved(example, label), taken)
        taken.add(target)
        moves.append((example.source, target))
    return moves


def _moved(example: _Example, label: str) -> PurePosixPath:
    """The path with the folder of the new label in place of the old one's."""
    if "/" in label or label in (".", ".."):
        raise UserError(f"the label {label!r} cannot be the name of a folder")
    parts = list(PurePosixPath(example.source).parts)
    place = next((place for place, part in enumerate(parts[:2]) if part == example.label), None)
    if place is None:
        raise UserError(f"{example.source} is not in a folder {example.label!r}: is audit.csv as it was written?")
    parts[place] = label
    return PurePosixPath(*parts)


def _free(path: PurePosixPath, taken: set[str]) -> str:
    """The path, with a number before its ending where another file has that path."""
    found, number = path, 2
    while str(found) in taken:
        found, number = path.with_stem(f"{path.stem}-{number}"), number + 1
    return str(found)


def _write_table(out: Path, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """CSV with the texts as they are: it is read by a training, not by a spreadsheet."""
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    write_bytes(out, buffer.getvalue().encode("utf-8", "surrogatepass"))
