"""The data of the page about the examples with the most confident errors."""

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
    """The worst examples of each method's first run that has any, label embedding's first; damage is noted.

    A method whose runs made no error has an empty list.
    """
    found: list[dict[str, Any]] = []
    for method in labels_first(list(runs)):
        kept = [run for run in runs[method] if (run.path / FILE).exists()]
        if len(found) < MOST_METHODS and (chosen := _first_with_errors(kept, notes)):
            run, examples = chosen
            title = f"{method}, {run.path.name.replace('-', ' ')}"
            found.append({"title": title, "examples": [to_json(example) for example in examples[:SHOWN]]})
    return found


def _first_with_errors(runs: Sequence[RunFolder], notes: list[str]) -> tuple[RunFolder, list[WorstExample]] | None:
    """The first run with examples, or else the first that can be read."""
    readable: list[tuple[RunFolder, list[WorstExample]]] = []
    for run in runs:
        try:
            readable.append((run, read_record(run.path / FILE, list[WorstExample])))
        except UserError as error:
            notes.append(f"The worst examples of a run are left out: {error}")
            continue
        if readable[-1][1]:
            return readable[-1]
    return readable[0] if readable else None
