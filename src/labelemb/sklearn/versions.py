"""Which scikit-learn this works with."""

import re
import warnings
from importlib import import_module

OLDEST, NEWEST = (1, 6), (1, 9)
"""The first and the last version (major, minor) that the tests have passed with."""


def require_scikit_learn() -> None:
    """Say what to install where scikit-learn is missing, and warn where it is a version that was not tested."""
    try:
        found: str = import_module("sklearn").__version__
    except ModuleNotFoundError as error:
        if error.name != "sklearn":
            raise
        raise ImportError("labelemb.sklearn needs scikit-learn: pip install 'labelemb[sklearn]'") from error
    numbers = tuple(int(number) for number in re.findall(r"\d+", found)[:2])
    if not OLDEST <= numbers <= NEWEST:
        oldest, newest = (".".join(map(str, version)) for version in (OLDEST, NEWEST))
        warnings.warn(
            f"scikit-learn {found} is installed, but labelemb.sklearn is tested with {oldest} to {newest} only",
            stacklevel=2,
        )
