"""A real browser without a window, and what tests of pages do with it. Whoever imports this is skipped without one."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

BROWSER, DRIVER = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")
if BROWSER is None or DRIVER is None:
    pytest.skip("no browser: needs chromium and chromedriver (Debian: chromium-driver)", allow_module_level=True)
webdriver = pytest.importorskip("selenium.webdriver", reason="no selenium: pip install 'labelemb[browser]'")
By = pytest.importorskip("selenium.webdriver.common.by").By
Keys = pytest.importorskip("selenium.webdriver.common.keys").Keys
support = pytest.importorskip("selenium.webdriver.support.ui")
exceptions = pytest.importorskip("selenium.common.exceptions")

SECONDS = 60
"""Of patience: a browser on a busy machine."""
SETTLED = """
// charts are drawn frame by frame and push down what follows: wait until the page keeps its height for ten frames
const done = arguments[0];
let height = 0, frames = 0;
const look = () => {
  const now = document.documentElement.scrollHeight;
  frames = now === height ? frames + 1 : 0;
  height = now;
  if (frames < 10) requestAnimationFrame(look); else done();
};
look();
"""


def start_browser(profile: Path) -> Any:
    """A browser that logs its errors and requests."""
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER or ""
    for argument in (
        *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1200,900"),
        *("--disable-background-networking", "--no-first-run", f"--user-data-dir={profile}"),
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))


def show(browser: Any, file: Path) -> None:
    """Open a page afresh and wait until its charts are drawn."""
    browser.get_log("browser")
    browser.get_log("performance")
    browser.get(file.as_uri())
    wait(browser, lambda driver: driver.find_elements(By.CSS_SELECTOR, "#curves svg"))
    browser.execute_async_script(SETTLED)


def wait(browser: Any, condition: Any, ignored: tuple[type[Exception], ...] = ()) -> Any:
    """Wait until a condition gives something true, and return that. A chart may be redrawn while it is looked at."""
    ignored = (exceptions.StaleElementReferenceException, *ignored)
    return support.WebDriverWait(browser, SECONDS, poll_frequency=0.05, ignored_exceptions=ignored).until(condition)


def find(page: Any, selector: str) -> Any:
    return page.find_element(By.CSS_SELECTOR, selector)


@contextmanager
def phone(page: Any) -> Iterator[None]:
    """The page on a screen of 390 pixels."""
    screen = {"width": 390, "height": 800, "deviceScaleFactor": 2, "mobile": True}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    try:
        wait(page, lambda driver: find(driver, "#curves svg").size["width"] < 390)
        yield
    finally:
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
