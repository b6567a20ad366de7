"""Charts, heatmaps and names of the page in a real browser: everything can be seen, whatever its length or number."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from labelemb import LabelSpace
from labelemb.lab.report import write_report
from tests.helpers.browser import By, find, phone, show
from tests.helpers.report_folders import NAMES, write_comparison, write_finished

LONG = "label-embedding@authors-text+soft_start=0.38+tau=1.5"
RECORD_NAMES = """
window.written = [];
const write = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
  const {a, b, d, f} = this.getTransform();
  if (this.canvas.closest("#heatmap-box") && !b) window.written.push([text, (d * y + f) / d, parseFloat(this.font)]);
  write.call(this, text, x, y);
};
document.getElementById("theme").click();
return window.written;
"""


@pytest.fixture(scope="module")
def long_names(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("long")
    for method in ("plain", LONG, "label-embedding@" + "x" * 90):
        write_finished(folder, method, 0, 93.24, None)
    return write_report(folder)


def test_long_method_names_and_their_values_are_on_a_phones_screen(browser: Any, long_names: Path) -> None:
    show(browser, long_names)
    with phone(browser):
        for chart in ("#strip", "#seconds", "#curves"):
            texts = browser.find_elements(By.CSS_SELECTOR, f"{chart} svg text")
            boxes = browser.execute_script(
                "return arguments[0].map((text) => text.getBoundingClientRect().toJSON())", texts
            )
            for text, box in zip(texts, boxes, strict=True):
                assert 0 <= box["left"] < box["right"] <= 390, text.text
        shown = "".join(text.text for text in browser.find_elements(By.CSS_SELECTOR, "#strip text.strong"))
        assert shown.replace(" ", "").startswith(f"plain93.24%{LONG}93.24%")
        assert shown.count("93.24 %") == 3


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (LONG, ["label-", "embedding@", "authors-", "text+", "soft_", "start=0.38+", "tau=1.5"]),
        ("lr=1e-05+weight=-0.5", ["lr=1e-05+", "weight=-0.5"]),
        ("comp.sys-pc_1.2.3", ["comp.", "sys-", "pc_", "1.2.3"]),
    ],
)
def test_names_break_between_words_and_never_inside_a_number(
    browser: Any, tmp_path: Path, name: str, expected: list[str]
) -> None:
    for method in ("plain", name):
        write_finished(tmp_path, method, 0, 5.0, None)
    show(browser, write_report(tmp_path))
    button = browser.find_elements(By.CSS_SELECTOR, "#methods button > span:last-child")[1]
    assert button.get_attribute("innerHTML").split("<wbr>") == expected


def test_a_curve_of_one_epoch_is_a_dot(browser: Any, tmp_path: Path) -> None:
    write_comparison(tmp_path)
    for file in tmp_path.glob("*/*/result.json"):
        result = json.loads(file.read_text())
        file.write_text(json.dumps(result | {"epochs": 1, "curve": result["curve"][:1]}))
    show(browser, write_report(tmp_path))
    assert len(browser.find_elements(By.CSS_SELECTOR, "#curves circle.mean")) == 2
    assert len(browser.find_elements(By.CSS_SELECTOR, "#curves circle.run")) == 4
    for dot in browser.find_elements(By.CSS_SELECTOR, "#curves circle"):
        assert dot.is_displayed()


@pytest.mark.parametrize("labels", [10, 25, 40])
def test_names_of_heatmap_rows_do_not_overlap(browser: Any, tmp_path: Path, labels: int) -> None:
    names = [f"a rather long label number {number}" for number in range(labels)]
    logits = 4 * torch.eye(labels) + torch.randn(labels, labels, generator=torch.Generator().manual_seed(0))
    write_comparison(tmp_path, LabelSpace.from_matrix(logits, names, kind="logit"))
    for file in tmp_path.glob("*/*/confusion.json"):
        file.unlink()
    show(browser, write_report(tmp_path))
    written = browser.execute_script(RECORD_NAMES)
    assert len(written) >= labels / 2
    places = sorted(y for _, y, _ in written)
    assert min(after - before for before, after in itertools.pairwise(places)) >= written[0][2]


def test_where_no_run_has_an_error_the_table_says_none(browser: Any, tmp_path: Path) -> None:
    write_comparison(tmp_path)
    for file in tmp_path.glob("*/*/worst.json"):
        file.write_text("[]")
    show(browser, write_report(tmp_path))
    assert find(browser, "#worst-table tbody").text == "none"


def test_a_label_that_was_never_observed_right_has_no_nearest_label(browser: Any, tmp_path: Path) -> None:
    logits = 4 * torch.eye(len(NAMES))
    logits[0, 1] = logits[1, 0] = 3.8
    counts = torch.tensor([3, 0, *[1] * (len(NAMES) - 2)])
    write_comparison(tmp_path, LabelSpace.from_matrix(logits, NAMES, kind="logit", counts=counts))
    show(browser, write_report(tmp_path))
    rows = browser.find_elements(By.CSS_SELECTOR, "#label-table tbody tr")
    nearest = {row.text.split()[0]: row.find_element(By.CSS_SELECTOR, "td:nth-child(5)").text for row in rows}
    assert nearest["kitten"] == "–"
    assert nearest["cat"].startswith("kitten (")
