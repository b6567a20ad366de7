"""The data of the audit page: suspicious examples, overlapping labels and duplicates."""

import base64
import io
import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from PIL import Image

from labelemb.findings import Audit, ExampleFinding
from labelemb.lab.data import AuditedData
from labelemb.lab.report.write import assemble

SCRIPTS = ("base.js", "audit.js", "audit-examples.js", "audit-labels.js", "audit-start.js")
FEWEST_LISTED, MOST_LISTED = 200, 5_000
"""Examples on the page: twice as many as errors are expected, within these bounds."""
MOST_DUPLICATES = 300
ROWS_OF_DUPLICATES = 6
LARGEST_SIDE = 64
MOST_PIXEL_BYTES = 8_000_000
"""Of the sheet of pictures; with more examples each picture becomes smaller."""
LONGEST_TEXT = 2_000


def audit_page(found: Audit, read: AuditedData, about: dict[str, Any]) -> str:
    """The page as one HTML file that needs nothing else."""
    return assemble("audit.html", SCRIPTS, gather_audit(found, read, about), ("style.css", "audit.css"))


def gather_audit(found: Audit, read: AuditedData, about: dict[str, Any]) -> dict[str, Any]:
    """The page's data. Examples are lists in the order of `fields`; labels in them are places in `labels`."""
    content = found.as_json()
    judged = len(read.judged)
    listed = min(judged, MOST_LISTED, max(FEWEST_LISTED, 2 * found.summary.expected_errors))
    ranked = found.examples[:listed]
    duplicates = [asdict(duplicate) for duplicate in (found.duplicates or ())[:MOST_DUPLICATES]]
    referred = [row for pair in found.pairs for row in (*pair.label_examples, *pair.other_examples)]
    referred += [row for duplicate in duplicates for row in duplicate["rows"][:ROWS_OF_DUPLICATES]]
    shown = {example.index for example in ranked}
    others = [found.examples.of_row(row) for row in dict.fromkeys(referred) if row not in shown]
    examples = [*ranked, *others]
    places = {name: place for place, name in enumerate(read.label_names)}
    return {
        "about": about,
        "summary": content["summary"],
        "lines": found.summary.lines(),
        "source": read.source,
        "labels": read.label_names,
        "fields": ["index", "id", "split", "given", "suggested", "pSuggested", "pGiven", "loss", "flagged", "input"],
        "examples": [_example(example, read, places) for example in examples],
        "listed": listed,
        "judged": judged,
        "pairs": content["pairs"],
        "problems": content["labels"],
        "duplicates": duplicates,
        "numDuplicates": len(found.duplicates or ()),
        "pictures": _pictures(read, [example.index for example in examples]),
    }


def _example(example: ExampleFinding, read: AuditedData, places: dict[str, int]) -> list[Any]:
    suggested = example.suggested_label
    return [
        example.index,
        read.identity(example.index),
        example.split,
        places[example.given_label],
        None if suggested is None else places[suggested],
        _rounded(example.suggested_probability),
        _rounded(example.self_confidence),
        _rounded(example.loss),
        example.is_label_issue,
        read.shown(example.index)[:LONGEST_TEXT],
    ]


def _rounded(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else round(value, 4)


def _pictures(read: AuditedData, rows: Sequence[int]) -> dict[str, Any] | None:
    """One sheet with a small picture of each row, in their order."""
    if read.images is None or not rows or read.images.shape[1] not in (1, 3):
        return None
    channels, height, width = read.images.shape[1:]
    room = math.sqrt(MOST_PIXEL_BYTES / (len(rows) * channels * height * width))
    scale = min(1.0, LARGEST_SIDE / max(height, width), room)
    small = (max(1, int(width * scale)), max(1, int(height * scale)))
    across = math.ceil(math.sqrt(len(rows)))
    sheet = Image.new("L" if channels == 1 else "RGB", (across * small[0], math.ceil(len(rows) / across) * small[1]))
    for cell, row in enumerate(rows):
        pixels = np.ascontiguousarray(np.moveaxis(read.images[row], 0, -1).squeeze())
        picture = Image.fromarray(pixels).resize(small, Image.Resampling.BOX)
        sheet.paste(picture, (cell % across * small[0], cell // across * small[1]))
    buffer = io.BytesIO()
    sheet.save(buffer, "PNG")
    return {
        "png": base64.b64encode(buffer.getvalue()).decode(),
        "size": list(small),
        "across": across,
        "count": len(rows),
    }
