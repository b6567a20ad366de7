"""What the page shows of the examples with the most confident errors."""

from collections.abc import Mapping, Sequence
from typing import Any

from labelemb.lab.comparison.summary import labels_first
from labelemb.lab.runs.folder import RunFolder
from labelemb.lab.tasks.records import read_record, to_json
from labelemb.lab.tasks.worst import FILE, WorstExample
from labelemb.support.errors import UserError

SHOWN = 20
MOST_METHODS = 6


def gather_worst(runs: Mapping[str, Sequence[RunFolder]], notes: list[str]) -> list[dict[str, Any]]:
    """The worst examples of each method's first run that kept them, label embedding's first; damage is noted."""
    found: list[dict[str, Any]] = []
    for method in labels_first(list(runs)):
        run = next((run for run in runs[method] if (run.path / FILE).exists()), None)
        if run is None or len(found) == MOST_METHODS:
            continue
        try:
            examples = read_record(run.path / FILE, list[WorstExample])
        except UserError as error:
            notes.append(f"The worst examples of a run are left out: {error}")
            continue
        if examples:
            title = f"{method}, {run.path.name.replace('-', ' ')}"
            found.append({"title": title, "examples": [to_json(example) for example in examples[:SHOWN]]})
    return found
