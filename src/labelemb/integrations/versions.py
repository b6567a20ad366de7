"""Which versions of a library an adapter works with."""

from __future__ import annotations

import re
import warnings
from importlib import import_module

Version = tuple[int, int]


def require(
    library: str, *, extra: str, oldest: Version, newest: Version, adapter: str = "", distribution: str = ""
) -> None:
    """Say what to install where a library is missing, and warn where its version is not one that was tested.

    `oldest` and `newest` are the first and the last version (major, minor) that the tests have passed with. `adapter`
    is the module that needs the library (labelemb.integrations.EXTRA), `distribution` its name where it is installed.
    """
    adapter, distribution = adapter or f"labelemb.integrations.{extra}", distribution or library
    try:
        found: str = import_module(library).__version__
    except ModuleNotFoundError as error:
        if error.name != library:
            raise
        raise ImportError(f"{adapter} needs {distribution}: pip install 'labelemb[{extra}]'", name=library) from error
    numbers = tuple(int(number) for number in re.findall(r"\d+", found)[:2])
    if not oldest <= numbers <= newest:
        first, last = (".".join(map(str, version)) for version in (oldest, newest))
        warnings.warn(
            f"{distribution} {found} is installed, but {adapter} is tested with {first} to {last} only",
            stacklevel=3,
        )
