"""The files of an audit: audit.csv with all examples, audit.json with the findings, and the page audit.html."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from labelemb.findings import Audit
from labelemb.findings.table import write_csv
from labelemb.lab.data import AuditedData
from labelemb.lab.report.audit_page import audit_page
from labelemb.lab.tasks.records import to_json
from labelemb.support.files import write_json, write_text

CSV, JSON, PAGE = "audit.csv", "audit.json", "audit.html"
NUMBERS = ("suggested_probability", "self_confidence", "label_quality", "is_label_issue", "loss")


class AuditRecord(msgspec.Struct, frozen=True):
    """How an audit was made."""

    recipe: str
    method: str
    folds: int
    seed: int
    parts: tuple[str, ...]
    version: str
    data_digest: str
    command: str
    columns: tuple[str, str]
    """Names of the columns of text and label in the data."""


def write_audit(folder: Path, found: Audit, read: AuditedData, record: AuditRecord) -> None:
    """Write the three files of an audit."""
    columns = ["index", "id", "split", "given_label", "suggested_label", *NUMBERS, "reason", read.source]
    write_csv(folder / CSV, columns, _csv_rows(found, read))
    content = found.as_json()
    for example in content["examples"]:
        example["id"], example["input"] = read.identity(example["index"]), read.shown(example["index"])
    write_json(folder / JSON, {"about": to_json(record), **content})
    write_text(folder / PAGE, audit_page(found, read, to_json(record)))


def _csv_rows(found: Audit, read: AuditedData) -> Iterator[list[Any]]:
    for example in found.examples:
        yield [
            example.index,
            read.identity(example.index),
            example.split,
            example.given_label,
            example.suggested_label,
            *(getattr(example, name) for name in NUMBERS),
            example.reason,
            read.shown(example.index),
        ]
