"""Imports optional packages on use. Errors name the missing extra or the unsupported version."""

import importlib
import importlib.metadata
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from labelemb.support.errors import UserError

Version = tuple[int, int]


class MissingPackageError(UserError, ModuleNotFoundError):
    """An optional package is not installed; the message says what needs it and how to get it."""


def import_optional(module: str, purpose: str, extra: str, distribution: str = "") -> Any:
    """A module of an optional package; `MissingPackageError` without it.

    Args:
        module: what to import.
        purpose: what needs it, the subject of the error message.
        extra: the extra of labelemb that installs it.
        distribution: the name under which it is installed, where that is not the name of the package.
    """
    package = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != package:  # the package is there, but something that it needs itself is not
            raise
        missing = MissingPackageError(
            f"{purpose} needs the package {distribution or package}: pip install 'labelemb[{extra}]'"
        )
        missing.name = package
        raise missing from error


@contextmanager
def version_only(package: str) -> Iterator[None]:
    """While active, importing a package that was not imported yet gives a module that has its version and nothing else.

    For libraries that import another, slow one only to compare its version.
    """
    if package in sys.modules:
        yield
        return
    module = ModuleType(package)
    try:
        module.__version__ = importlib.metadata.version(package)  # type: ignore[attr-defined]  # modules may have any
    except importlib.metadata.PackageNotFoundError:
        yield
        return
    sys.modules[package] = module
    try:
        yield
    finally:
        del sys.modules[package]


def require_version(module: str, extra: str, *, oldest: Version, newest: Version, distribution: str = "") -> None:
    """Refuse to import an integration without its library; warn where that has a version that was not tested.

    `oldest` and `newest` are the first and the last version (major, minor) that the tests have passed with. The
    integration is labelemb.integrations.EXTRA.
    """
    purpose = f"labelemb.integrations.{extra}"
    installed: str = import_optional(module, purpose, extra, distribution).__version__
    numbers = tuple(int(number) for number in re.findall(r"\d+", installed)[:2])
    if not oldest <= numbers <= newest:
        first, last = (".".join(map(str, version)) for version in (oldest, newest))
        warnings.warn(
            f"{distribution or module} {installed} is installed, but {purpose} is tested with {first} to {last} only",
            stacklevel=3,
        )
