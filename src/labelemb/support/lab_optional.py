"""Packages that only some recipes need."""

from typing import Any

from labelemb.support import optional
from labelemb.support.errors import UserError


def import_optional(module: str, purpose: str, extra: str) -> Any:
    """A module of an optional dependency; without it, an error that says what needs it and how to get it."""
    try:
        return optional.import_optional(module, purpose, extra)
    except ImportError as error:
        raise UserError(str(error)) from error
