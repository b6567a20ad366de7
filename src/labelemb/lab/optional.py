"""Packages that only some recipes need."""

import importlib
from typing import Any

from labelemb.lab.errors import LabError


def import_optional(module: str, purpose: str, extra: str) -> Any:
    """A module of an optional dependency; without it, an error that says what needs it and how to get it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise LabError(f"{purpose} needs the package {package}: pip install 'labelemb[{extra}]'") from error
