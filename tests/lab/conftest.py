"""Small data for the lab's tests."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers.forked import quick_workers as quick_workers
from tests.helpers.quick_runs import quick_run
from tests.helpers.tiny_data import write_for_recipe


@pytest.fixture(autouse=True)
def no_data_from_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests find neither the user's data nor the publishers' servers."""
    monkeypatch.setenv("LABELEMB_DATA", str(tmp_path / "nowhere"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("LABELEMB_MIRROR", "http://127.0.0.1:1")


@pytest.fixture
def tiny_data(tmp_path: Path) -> Callable[[str], Path | None]:
    """A function from the name of a shipped recipe to a path with small data for it (None: it needs none)."""
    return lambda recipe: write_for_recipe(recipe, tmp_path)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of the digits, to look at and not to change."""
    out = tmp_path_factory.mktemp("run")
    quick_run(out)
    return out
