"""A browser for the pages, started once for a file of tests."""

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from tests.helpers.browser import start_browser  # skips where there is none

    driver = start_browser(tmp_path_factory.mktemp("profile"))
    yield driver
    driver.quit()
