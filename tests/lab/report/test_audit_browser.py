"""The page of an audit in a real browser: marking, filtering, downloading, and names that mean harm."""

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from labelemb.findings import audit
from labelemb.lab.data import AuditedData
from labelemb.lab.jobs.corrections import apply_corrections
from labelemb.lab.report.audit_files import AuditRecord, write_audit
from tests.helpers.audits import HOSTILE, hostile_audit
from tests.helpers.browser import By, Keys, start_browser, support, wait
from tests.helpers.noisy_labels import noisy_labels

RECORD = AuditRecord("intents", "label-embedding", 3, 0, ("train",), "1", "0" * 64, "", ("text", "label"))


@pytest.fixture(scope="module")
def downloads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("downloads")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory, downloads: Path) -> Iterator[Any]:
    driver = start_browser(tmp_path_factory.mktemp("profile"))
    driver.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(downloads)})
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("audit")
    write_audit(out, *hostile_audit(), RECORD)
    return out


@pytest.fixture
def page(browser: Any, folder: Path) -> Any:
    browser.get_log("browser")
    browser.get((folder / "audit.html").as_uri())
    browser.execute_script("localStorage.clear()")
    browser.refresh()
    return browser


def find(page: Any, selector: str) -> Any:
    return page.find_element(By.CSS_SELECTOR, selector)


def listed(page: Any) -> list[int]:
    script = "return [...document.querySelectorAll('.example')].map((node) => Number(node.dataset.index))"
    found: list[int] = page.execute_script(script)
    return found


def marks(page: Any) -> list[str]:
    script = "return [...document.querySelectorAll('.example')].map((node) => node.dataset.mark)"
    found: list[str] = page.execute_script(script)
    return found


def type_into(page: Any, selector: str, text: str) -> None:
    box = find(page, selector)
    box.clear()
    box.send_keys(text)


def test_it_draws_without_an_error_and_nothing_hostile_runs(page: Any, folder: Path) -> None:
    assert [entry for entry in page.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")] == []
    assert page.execute_script("return window.broken") is None
    shown = find(page, "#examples").text
    assert "<script>window.broken = 1</script>" in shown
    first = json.loads((folder / "audit.json").read_text())["examples"][0]
    assert listed(page)[0] == first["index"]


def test_it_says_how_many_errors_to_expect(page: Any, folder: Path) -> None:
    expected = json.loads((folder / "audit.json").read_text())["summary"]["expected_errors"]
    assert find(page, "#cards b").text == f"about {expected}"
    assert f"at most the {expected} most suspicious examples are flagged" in find(page, "#expectation").text


def test_keys_mark_examples_and_move_on(page: Any) -> None:
    find(page, "#list").send_keys("wfuj" + "k" + "w")
    assert marks(page)[:4] == ["wrong", "fine", "unsure", "wrong"]
    assert find(page, "#marked").text == "2 wrong, 1 fine, 1 unsure"
    find(page, "#list").send_keys(Keys.ARROW_UP + "w")
    assert marks(page)[3] == ""


def test_marks_outlive_the_page(page: Any) -> None:
    find(page, "#list").send_keys("w")
    page.refresh()
    assert marks(page)[0] == "wrong"


def test_search_label_and_choice_filter_the_list(page: Any) -> None:
    everything = listed(page)
    type_into(page, "#find", "number 7")
    assert 0 < len(listed(page)) < len(everything)
    type_into(page, "#find", "nothing holds this")
    assert listed(page) == []
    find(page, "#list").send_keys("w")
    assert find(page, "#marked").text == "nothing marked yet"
    find(page, "#find").clear()
    find(page, "#find").send_keys(" " + Keys.BACKSPACE)
    type_into(page, "#label-filter", HOSTILE[3])
    names = [node.text for node in page.find_elements(By.CSS_SELECTOR, ".example .names")]
    assert names
    assert all(HOSTILE[3] in name for name in names)
    support.Select(find(page, "#which")).select_by_value("flagged")
    assert 0 < len(listed(page)) <= len(names)


def test_marked_rows_are_downloaded_and_applied(page: Any, folder: Path, downloads: Path, tmp_path: Path) -> None:
    assert not find(page, "#download").is_enabled()
    find(page, "#list").send_keys("wf")
    first, second = listed(page)[:2]
    find(page, ".example .new-label").clear()
    find(page, ".example .new-label").send_keys(HOSTILE[0] + Keys.ENTER)
    page.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", find(page, "#download"))
    find(page, "#download").click()
    file = downloads / "corrections.csv"
    wait(page, lambda _: file.exists() and file.stat().st_size)
    rows = {int(row["index"]): row for row in csv.DictReader(io.StringIO(file.read_text(encoding="utf-8-sig")))}
    assert (rows[first]["mark"], rows[second]["mark"]) == ("wrong", "fine")
    assert rows[first]["label"] == f"'{HOSTILE[0]}"  # no formula for a spreadsheet
    apply_corrections(folder / "audit.csv", file, tmp_path / "cleaned.csv")
    cleaned = list(csv.DictReader(io.StringIO((tmp_path / "cleaned.csv").read_text(encoding="utf-8"))))
    assert cleaned[first]["label"] == HOSTILE[0]
    assert len(cleaned) == 120


def test_it_fits_a_narrow_window_and_has_dark_colours(page: Any) -> None:
    find(page, "#theme").click()
    assert page.execute_script("return document.documentElement.dataset.theme") in ("dark", "light")
    page.set_window_size(500, 900)  # Chromium has no narrower window
    try:
        width = page.execute_script("return [document.documentElement.scrollWidth, innerWidth]")
        assert width[0] <= width[1]
    finally:
        page.set_window_size(1200, 900)


def test_images_have_thumbnails(browser: Any, tmp_path: Path) -> None:
    noisy = noisy_labels(rows=60, labels=3, flips=0.2)
    images = np.random.default_rng(0).integers(0, 255, (60, 3, 8, 8)).astype(np.uint8)
    names, files = ["cat", "dog", "cow"], [f"{row}.png" for row in range(60)]
    read = AuditedData(names, noisy.given, ["train"] * 60, np.arange(60), None, images, files, "1" * 64)
    write_audit(
        tmp_path, audit(noisy.probabilities, noisy.given, names, inputs=read.inputs, splits=read.parts), read, RECORD
    )
    browser.get((tmp_path / "audit.html").as_uri())
    thumb = find(browser, ".example .thumb")
    assert thumb.size["width"] == thumb.size["height"] == 64
    assert "data:image/png" in thumb.value_of_css_property("background-image")
