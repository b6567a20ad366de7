"""Optional packages that are missing are named with what needs them and how to get them."""

import importlib
import importlib.metadata
import sys
from types import ModuleType

import pytest

from labelemb.support.errors import UserError
from labelemb.support.optional import MissingPackageError, import_optional, version_only


def test_a_module_that_is_there_is_imported() -> None:
    assert import_optional("json.decoder", "this", "lab").JSONDecoder


@pytest.mark.parametrize("kind", [UserError, ImportError, ModuleNotFoundError])
def test_a_missing_package_is_a_user_error_and_an_import_error(kind: type[Exception]) -> None:
    with pytest.raises(kind, match=r"^a map needs the package no_such: pip install 'labelemb\[plot\]'$") as caught:
        import_optional("no_such.part", "a map", "plot")
    assert isinstance(caught.value, MissingPackageError)
    assert caught.value.name == "no_such"


def test_a_package_that_lacks_something_itself_is_not_called_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> ModuleType:
        raise ModuleNotFoundError("No module named 'inner'", name="inner")

    monkeypatch.setattr(importlib, "import_module", broken)
    with pytest.raises(ModuleNotFoundError, match="No module named 'inner'"):
        import_optional("outer", "a map", "plot")


def test_a_package_that_is_asked_for_its_version_only_is_not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "filelock", raising=False)
    with version_only("filelock"):
        stand_in = importlib.import_module("filelock")
        assert stand_in.__version__ == importlib.metadata.version("filelock")
        assert not hasattr(stand_in, "FileLock")
    assert importlib.import_module("filelock").FileLock, "afterwards it is the package itself"


def test_a_package_that_is_not_installed_stays_missing() -> None:
    with version_only("no_such"), pytest.raises(ModuleNotFoundError):
        importlib.import_module("no_such")
