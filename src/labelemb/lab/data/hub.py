"""Data sets of the Hugging Face library `datasets`: `--data hf:NAME` from the hub, `hf:FOLDER` from a folder.

Nothing of a data set is executed: the library reads Arrow, Parquet, CSV and JSON files, and since version 4 no scripts.
"""

import io
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from labelemb.lab.data.files import SPLIT_NAMES
from labelemb.support.errors import UserError
from labelemb.support.optional import import_optional
from labelemb.support.wording import quote_few

PREFIX = "hf:"
SAVED = ("dataset_dict.json", "state.json")
"""One of them is in a folder that `save_to_disk` wrote."""


def is_hub(path: Path | None) -> bool:
    """Whether a path of data names a data set of the library `datasets`."""
    return path is not None and str(path).startswith(PREFIX)


def lasting_path(path: Path) -> str:
    """A path of data as it is found from every folder."""
    if not is_hub(path):
        return str(path.resolve())
    place = Path(str(path).removeprefix(PREFIX))
    return f"{PREFIX}{place.resolve()}" if place.is_dir() else str(path)


@dataclass(frozen=True)
class HubColumn:
    """What a column is looked for by: its name, the name where nobody gave one, its setting, and which types fit."""

    name: str
    usual: str
    setting: str
    fits: Callable[[Any], bool]


@dataclass(frozen=True)
class HubData:
    """A data set with its parts train, dev and test; `source` names it in errors."""

    source: str
    parts: dict[str, Any]

    def column(self, wanted: HubColumn) -> str:
        """The column of that name; where nobody named one and none has the usual name, the only one that fits."""
        features = self.parts["train"].features
        if wanted.name in features:
            return wanted.name
        fitting = [name for name, feature in features.items() if wanted.fits(feature)]
        if wanted.name == wanted.usual and len(fitting) == 1:
            return fitting[0]
        raise UserError(
            f"{self.source} has no column {wanted.name!r}: set data.{wanted.setting} to one of "
            f"{quote_few(features, 20)}"
        )

    def label_column(self, name: str) -> str:
        return self.column(HubColumn(name, "label", "label_column", lambda feature: hasattr(feature, "names")))

    def values(self, part: str, column: str) -> Iterator[Any]:
        """The values of a column; one that is missing is an error."""
        rows = self.parts[part]
        if column not in rows.features:
            raise UserError(f"{self.source}: the part {part} has no column {column!r}")
        for number, value in enumerate(rows[column]):
            if value is None:
                raise UserError(f"{self.source}, {part}, row {number}: nothing in column {column!r}")
            yield value

    def raw_images(self, part: str, column: str) -> Iterator[BinaryIO]:
        """The files of a column of images, not decoded."""
        library = import_optional("datasets", f"--data {self.source}", "datasets")
        raw = HubData(self.source, {part: self.parts[part].cast_column(column, library.Image(decode=False))})
        for value in raw.values(part, column):
            if value["bytes"] is not None:
                yield io.BytesIO(value["bytes"])
            else:
                with Path(value["path"]).open("rb") as file:
                    yield file

    def targets(self, column: str) -> tuple[list[str], dict[str, Tensor]]:
        """Label names, in the order that the data set gives them or else sorted, and the targets of each part."""
        found = {part: list(self._labels(part, column)) for part in self.parts}
        known: Sequence[str] | None = getattr(self.parts["train"].features[column], "names", None)
        used = {label for labels in found.values() for label in labels}
        names = list(known) if known and used <= set(known) else sorted(used, key=_sort_key)
        numbers = {name: number for number, name in enumerate(names)}
        return names, {part: torch.tensor([numbers[label] for label in labels]) for part, labels in found.items()}

    def _labels(self, part: str, column: str) -> Iterator[str]:
        names: Sequence[str] | None = getattr(self.parts[part].features.get(column), "names", None)
        for number, value in enumerate(self.values(part, column)):
            if isinstance(value, bool | int | str) and not (names and isinstance(value, int) and value < 0):
                label = names[value] if names and isinstance(value, int) else str(value).strip()
                if label:
                    yield label
                    continue
            raise UserError(f"{self.source}, {part}, row {number}: {value!r} is no label (column {column!r})")


def read_hub(path: Path) -> HubData:
    """The data set that a path with `hf:` names."""
    name, source = str(path).removeprefix(PREFIX), str(path)
    library = import_optional("datasets", f"--data {source}", "datasets")
    if not sys.stderr.isatty():
        library.disable_progress_bars()
    found = _loaded(library, name, source)
    splits = dict(found) if isinstance(found, dict) else {"train": found}
    parts: dict[str, Any] = {}
    for split, rows in splits.items():
        part = SPLIT_NAMES.get(str(split).lower())
        if part in parts:
            raise UserError(f"{source} has two splits for {part}: {quote_few(map(str, splits))}")
        if part is not None and len(rows):
            parts[part] = rows
    if "train" not in parts:
        raise UserError(f"{source} has no training rows: its splits are {quote_few(map(str, splits)) or 'none'}")
    return HubData(source, parts)


def _loaded(library: Any, name: str, source: str) -> Any:
    folder = Path(name)
    if not folder.is_dir() and (folder.is_absolute() or name.startswith((".", "~"))):
        raise UserError(f"--data {source}: there is no folder {name}")
    try:
        if folder.is_dir() and any((folder / file).is_file() for file in SAVED):
            return library.load_from_disk(str(folder))
        return library.load_dataset(name)
    except ConnectionError as error:
        raise UserError(
            f"--data {source}: there is no such folder, and the Hugging Face hub cannot be reached: connect to the "
            "network, or give a folder"
        ) from error
    # the library raises its own errors, pyarrow's and those of the hub about files and names that it cannot read
    except Exception as error:
        lines = str(error).strip().splitlines()
        raise UserError(f"--data {source} cannot be read: {lines[0] if lines else type(error).__name__}") from error


def _sort_key(label: str) -> tuple[bool, int, str]:
    """Whole numbers by their value, then everything else by its text."""
    number = label.isdecimal()
    return not number, int(label) if number else 0, label
