"""Data files: where they are searched, how they are downloaded, and readers of texts and tables.

Every reader takes files packed with gzip as well. Errors name the file and the line.
"""

import csv
import dataclasses
import gzip
import io
import json
import os
import shutil
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any

from tqdm import tqdm

from labelemb.support.errors import UserError, enough_memory_to_read
from labelemb.support.files import read_whole

ENVIRONMENT_VARIABLE = "LABELEMB_DATA"
CHUNK = 1 << 16
TIMEOUT_SECONDS = 30
TABLE_SUFFIXES = (".csv", ".tsv", ".jsonl", ".json")
LONGEST_FIELD = 2**31 - 1
"""Longest field of a table, in characters. Python's own limit is 131,072."""
# names that data sets give to the three parts, as folders, files or values of a column
SPLIT_NAMES = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("dev", "val", "valid", "validation"), "dev"),
    **dict.fromkeys(("test", "testing"), "test"),
}


def refuse_unknown_parts(place: Path, names: Sequence[str]) -> None:
    """Refuse parts with unknown names, such as `eval`, beside a training part: they would be ignored."""
    if names:
        raise UserError(
            f"{place} has a training part, and beside it {', '.join(names)}: known parts are {', '.join(SPLIT_NAMES)}; "
            "rename or remove it"
        )


def user_cache() -> Path:
    """The user's cache folder for downloads."""
    import pooch

    return Path(pooch.os_cache("labelemb"))


def data_roots() -> list[Path]:
    """Folders that are searched where no path is given: $LABELEMB_DATA, ./data, the user's cache folder."""
    named = os.environ.get(ENVIRONMENT_VARIABLE)
    return [*([Path(named)] if named else []), Path("data"), user_cache()]


def candidates(path: Path | None, folders: Sequence[str]) -> list[Path]:
    """Every place that may hold the data: the given path or the usual folders, each itself and its named folders."""
    roots = data_roots() if path is None else [path]
    return [place for root in roots for place in (root, *(root / folder for folder in folders))]


def find_data(path: Path | None, folders: Sequence[str], holds: Callable[[Path], bool], wanted: str) -> Path:
    """The first place for which `holds` is true. `wanted` says in the error which files belong there."""
    if path is not None and not path.exists():
        raise UserError(f"there is no file or folder {path}; wanted: {wanted}")
    places = candidates(path, folders)
    for place in places:
        if place.exists() and holds(place):
            return place
    if path is not None and path.is_dir() and not any(path.iterdir()):
        raise UserError(f"the folder {path} is empty; wanted: {wanted}")
    looked = ", ".join(str(place) for place in places)
    hint = f" (or give --data, or set ${ENVIRONMENT_VARIABLE})" if path is None else ""
    raise UserError(f"no such data in {looked}; wanted: {wanted}{hint}")


def file_of(folder: Path, name: str) -> Path | None:
    """The file of that name, packed or not."""
    return next((place for place in (folder / name, folder / f"{name}.gz") if place.is_file()), None)


def read_bytes(path: Path) -> bytes:
    """The content of a file, unpacked if its name ends in .gz."""
    try:
        content = read_whole(path)
        with enough_memory_to_read(path):
            return gzip.decompress(content) if path.suffix.lower() == ".gz" else content
    except (EOFError, zlib.error) as error:
        raise UserError(f"{path} is truncated or damaged: its gzip stream does not end well") from error
    except gzip.BadGzipFile as error:
        raise UserError(f"{path} is not a gzip file, or a damaged one: {error}") from error
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error


def read_text(path: Path) -> str:
    """The text of a file in UTF-8, with or without a byte order mark."""
    content = read_bytes(path)
    try:
        with enough_memory_to_read(path):
            return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # the error counts in its own bytes: without the byte order mark
        line = error.object.count(b"\n", 0, error.start) + 1
        raise UserError(
            f"{path}, line {line}: not UTF-8 (byte {error.object[error.start]:#04x}); save the file as UTF-8"
        ) from error


def read_lines(path: Path) -> list[str]:
    """The lines of a file in UTF-8, packed or not. Only line feeds end a line: other separators belong to the text."""
    text = read_text(path)
    if not text.strip():
        raise UserError(f"{path} is empty")
    return split_lines(text)


def split_lines(text: str) -> list[str]:
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def read_pairs(source: Path, target: Path) -> list[tuple[str, str]]:
    """The pairs of two files, line by line."""
    sources, targets = read_lines(source), read_lines(target)
    if len(sources) != len(targets):
        raise UserError(
            f"{source} has {len(sources)} lines and {target} has {len(targets)}: line by line they must belong together"
        )
    return list(zip(sources, targets, strict=True))


def read_parallel(folder: Path, stem: str, suffixes: Sequence[str]) -> list[tuple[str, str]]:
    """The pairs of the files STEM.SOURCE and STEM.TARGET in a folder, packed or not."""
    source, target = (_required(folder, f"{stem}.{suffix}") for suffix in suffixes)
    return read_pairs(source, target)


def _required(folder: Path, name: str) -> Path:
    found = file_of(folder, name)
    if found is None:
        raise UserError(f"{folder} lacks the file {name} (or {name}.gz)")
    return found


class MissingColumnError(UserError):
    """A table lacks a column. What to do about it depends on who reads the table."""


@dataclass(frozen=True)
class Row:
    """One row of a table. `where` names it in errors: the file and the line."""

    where: str
    values: dict[str, str]
    line: int | None = None
    """None in a file of JSON that has no rows of lines."""


def table_suffix(path: Path) -> str:
    """.csv, .tsv, .jsonl or .json for a table, whether packed or not; nothing for other files."""
    name = path.name.lower().removesuffix(".gz")
    return next((suffix for suffix in TABLE_SUFFIXES if name.endswith(suffix)), "")


def read_rows(path: Path, required: tuple[str, ...]) -> list[Row]:
    """The rows of a CSV, TSV or JSON lines file, each of which has the required columns."""
    text = read_text(path)
    if not text.strip():
        raise UserError(f"{path} is empty")
    readers = {".csv": _read_csv, ".tsv": _read_tsv, ".jsonl": _read_jsonl}
    with enough_memory_to_read(path):
        rows = list(readers[table_suffix(path)](path, text, required))
    if not rows:
        raise UserError(f"{path} has no rows")
    return rows


def read_json_parts(path: Path, text_column: str, label_column: str) -> dict[str, list[Row]]:
    """The rows of {"train": [[text, label], ...], "val": ..., "test": ...}, CLINC150's layout, by train, dev and test.

    An entry may also be an object with the named columns. Parts with other names (CLINC150's "oos_train", ...) are
    left out.
    """
    try:
        with enough_memory_to_read(path):
            document = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise UserError(f"{path}, line {error.lineno}: not JSON ({error.msg})") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: {_beyond_python(error)}") from error
    if not isinstance(document, dict) or "train" not in document:
        raise UserError(
            f'{path}: expected an object with "train" (and "val", "test"); one object per line is a .jsonl file'
        )
    parts: dict[str, list[Row]] = {}
    for name, entries in document.items():
        part = SPLIT_NAMES.get(name.lower())
        if part is None:
            continue
        if not isinstance(entries, list):
            raise UserError(f"{path}: {name!r} must be a list of [text, label]")
        rows = parts.setdefault(part, [])
        for number, entry in enumerate(entries, start=1):
            where = f"{path}, {name} entry {number}"
            if isinstance(entry, list) and len(entry) == 2:
                entry = {text_column: entry[0], label_column: entry[1]}
            rows.append(_object_row(where, entry, (text_column, label_column)))
    return parts


def _read_csv(path: Path, text: str, required: tuple[str, ...]) -> Iterator[Row]:
    header = text.partition("\n")[0]
    for sign, name in ((";", "semicolons"), ("\t", "tabs")):
        if sign in header and "," not in header:
            raise UserError(f"{path}: its columns are separated by {name}: save it with commas, or as .tsv with tabs")
    reader = csv.reader(io.StringIO(text, newline=""), strict=True, skipinitialspace=True)
    return _delimited(path, reader, required)


def _read_tsv(path: Path, text: str, required: tuple[str, ...]) -> Iterator[Row]:
    # quotes have no meaning in TSV: a text may begin with one and never close it
    reader = csv.reader(io.StringIO(text, newline=""), delimiter="\t", quoting=csv.QUOTE_NONE)
    return _delimited(path, reader, required)


def _delimited(path: Path, reader: Any, required: tuple[str, ...]) -> Iterator[Row]:
    csv.field_size_limit(LONGEST_FIELD)
    try:
        header = [column.strip() for column in next(reader, [])]
        _check_columns(str(path), header, required)
        for column in required:
            if header.count(column) > 1:
                raise UserError(f"{path}: {header.count(column)} columns have the name {column!r}: rename all but one")
        for values in reader:
            if not values:
                continue
            where = f"{path}, line {reader.line_num}"
            if len(values) != len(header):
                size = "short" if len(values) < len(header) else "long"
                raise UserError(
                    f"{where}: {size} row, {len(values)} values for the {len(header)} columns {', '.join(header)}"
                )
            yield Row(where, dict(zip(header, values, strict=True)), reader.line_num)
    except csv.Error as error:
        raise UserError(f"{path}, line {reader.line_num}: {error}") from error


def _read_jsonl(path: Path, text: str, required: tuple[str, ...]) -> Iterator[Row]:
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            entry = json.loads(line)
        except json.JSONDecodeError as error:
            raise UserError(f"{where}: not JSON ({error.msg})") from error
        except (ValueError, RecursionError) as error:
            raise UserError(f"{where}: {_beyond_python(error)}") from error
        yield dataclasses.replace(_object_row(where, entry, required), line=number)


def _beyond_python(error: ValueError | RecursionError) -> str:
    """Reason why Python cannot read a JSON text."""
    return "nested too deeply" if isinstance(error, RecursionError) else "a number has too many digits"


def _object_row(where: str, entry: Any, required: tuple[str, ...]) -> Row:
    if not isinstance(entry, dict):
        raise UserError(f"{where}: expected an object with the keys {', '.join(required)}")
    _check_columns(where, list(entry), required)
    values = {key: "" if value is None else str(value) for key, value in entry.items()}
    for key in required:
        if isinstance(entry[key], list | dict):
            raise UserError(f"{where}: {key!r} is a {type(entry[key]).__name__}, but must be one text or number")
        if any("\ud800" <= sign <= "\udfff" for sign in values[key]):
            raise UserError(
                f"{where}: {key!r} has half of a surrogate pair (\\ud800 to \\udfff), which is no character"
            )
    return Row(where, values)


def _check_columns(where: str, columns: list[str], required: tuple[str, ...]) -> None:
    for column in required:
        if column not in columns:
            raise MissingColumnError(f"{where}: no column {column!r} (columns there: {', '.join(columns) or 'none'})")


class ResumingDownloader:
    """Called by pooch as downloader(url, output_file, pooch).

    What has arrived is kept in `part` until the file is complete, so a later call asks the server for the rest only.
    pooch checks the finished file; if its checksum is wrong nothing is kept, and the next call starts from nothing.
    """

    def __init__(self, part: Path, *, progress: bool = True) -> None:
        self.part = part
        self.progress = progress

    def __call__(self, url: str, output_file: str, _pooch: Any) -> None:
        have = self.part.stat().st_size if self.part.exists() else 0
        try:
            with self._open(url, have) as response:
                self._receive(response, have if response.status == 206 else 0)
        except urllib.error.HTTPError as error:
            error.close()
            if error.code != 416 or have == 0:
                raise
            # nothing is left to ask for: the part is complete, or of another file, which the checksum will tell
        except HTTPException as error:
            raise OSError(f"the server's answer broke off: {error!r}") from error
        shutil.move(self.part, output_file)

    def _open(self, url: str, have: int) -> HTTPResponse:
        headers = {"User-Agent": "labelemb", "Accept-Encoding": "identity"}
        if have:
            headers["Range"] = f"bytes={have}-"
        return urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT_SECONDS)

    def _receive(self, response: HTTPResponse, have: int) -> None:
        """Append to the partial file, or overwrite it if the server ignores the range and sends everything."""
        length = response.headers.get("Content-Length")
        total = have + int(length) if length else None
        bar = tqdm(total=total, initial=have, unit="B", unit_scale=True, desc=self.part.stem, disable=not self.progress)
        with bar, self.part.open("ab" if have else "wb") as part:
            while chunk := response.read(CHUNK):
                part.write(chunk)
                bar.update(len(chunk))
        arrived = self.part.stat().st_size
        if total is not None and arrived < total:
            raise OSError(f"the connection broke after {arrived} of {total} bytes")
