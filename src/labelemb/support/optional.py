"""Packages that the core does without: imported where they are needed, and named where they are missing."""

import importlib
from typing import Any


def import_optional(module: str, purpose: str, extra: str) -> Any:
    """A module of an optional dependency; without it, an error that says what needs it and how to get it."""
    package = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != package:  # the package is there, but something that it needs itself is not
            raise
        raise ModuleNotFoundError(
            f"{purpose} needs the package {package}: pip install 'labelemb[{extra}]'", name=package
        ) from error
