"""Files that hold a label space: of a run, saved on its own, or a table of similarities that a person wrote."""

import warnings
from pathlib import Path

from labelemb import LabelSpace, LabelSpaceError
from labelemb.lab.runs.folder import RunFolder
from labelemb.lab.runs.messages import Warn, ignore
from labelemb.support.errors import UserError

TABLES = (".csv", ".tsv", ".txt")
"""Endings of tables; any other file is read as what `LabelSpace.save` writes."""


def find_labels(path: Path) -> Path:
    """The file with the labels: the path itself, or that of a run's folder."""
    if path.is_dir():
        run = RunFolder(path)
        if not run.labels_file.exists():
            method = run.require_result()["method"]
            raise UserError(f"{path} has no label space: the method {method} learns none, or the file was not kept")
        return run.labels_file
    if not path.exists():
        raise UserError(f"there is no run folder or file {path}")
    return path


def load_space(path: Path, warn: Warn = ignore) -> LabelSpace:
    """The label space of a run's folder, or in a file; what is doubtful in a table goes to `warn`."""
    file = find_labels(path)
    try:
        with warnings.catch_warnings(record=True) as doubts:
            warnings.simplefilter("always")
            space = LabelSpace.from_csv(file) if file.suffix.lower() in TABLES else LabelSpace.load(file)
    except (LabelSpaceError, OSError) as error:
        raise UserError(str(error)) from error
    for doubt in doubts:
        warn(str(doubt.message))
    return space
