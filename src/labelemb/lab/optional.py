"""Packages that only some recipes need."""

from typing import Any

from labelemb import optional
from labelemb.lab.errors import LabError


def import_optional(module: str, purpose: str, extra: str) -> Any:
    """A module of an optional dependency; without it, an error that says what needs it and how to get it."""
    try:
        return optional.import_optional(module, purpose, extra)
    except ImportError as error:
        raise LabError(str(error)) from error
