"""Where data is looked for."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from labelemb.support.errors import UserError

ENVIRONMENT_VARIABLE = "LABELEMB_DATA"


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


def read_bytes(path: Path) -> bytes:
    """The content of a file, unpacked if its name ends in .gz."""
    import gzip
    import zlib

    try:
        content = path.read_bytes()
        return gzip.decompress(content) if path.suffix.lower() == ".gz" else content
    except (EOFError, zlib.error) as error:
        raise UserError(f"{path} is truncated or damaged: its gzip stream does not end well") from error
    except gzip.BadGzipFile as error:
        raise UserError(f"{path} is not a gzip file, or a damaged one: {error}") from error
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
