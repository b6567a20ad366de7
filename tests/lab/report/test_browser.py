"""The page in a real browser: it draws, answers to pointer and keyboard, and asks nobody for anything."""

import base64
import io
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from labelemb import LabelSpace
from labelemb.lab.report import write_report
from labelemb.support.errors import UserError
from tests.helpers.browser import By, Keys, exceptions, find, phone, show, support, wait, webdriver
from tests.helpers.report_folders import NAMES, write_comparison, write_examples, write_translations, write_unfinished


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_comparison(tmp_path_factory.mktemp("pets"))
    write_examples(folder / "label-embedding" / "seed-0")
    write_unfinished(folder)
    return write_report(folder)


@pytest.fixture
def page(browser: Any, report: Path) -> Any:
    show(browser, report)
    return browser


def search(page: Any, text: str) -> list[str]:
    """Type into the search box; gives the labels offered."""
    box = find(page, "#search")
    box.clear()
    box.send_keys(text)
    wait(page, lambda driver: find(driver, "#matches").is_displayed())
    return [match.text for match in page.find_elements(By.CSS_SELECTOR, "#matches [role=option]")]


def scroll_to(page: Any, selector: str) -> Any:
    script = "arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})"
    page.execute_script(script, find(page, selector))
    return find(page, selector)


def point_at(page: Any, selector: str, x: float = 0.5, y: float = 0.5) -> str:
    """Move the pointer to a place of an element, given as parts of its size; gives what the tip says."""

    def shown_tip(driver: Any) -> str:
        element = scroll_to(driver, selector)
        width, height = element.size["width"], element.size["height"]
        moves = webdriver.ActionChains(driver, duration=0)
        moves.move_to_element_with_offset(element, int((x - 0.5) * width), int((y - 0.5) * height)).perform()
        text: str = find(driver, "#tip").text  # empty while it is hidden
        return text

    # a picture that is drawn between the scrolling and the moving pushes the element away: go there again
    found: str = wait(page, shown_tip, (exceptions.MoveTargetOutOfBoundsException,))
    return found


def requests_of(browser: Any, file: Path) -> set[str]:
    """The addresses that a page asked for since it was opened; the browser's own start page asks for some too."""
    asked: set[str] = set()

    def own_request_is_logged(driver: Any) -> bool:
        for entry in driver.get_log("performance"):
            event = json.loads(entry["message"])["message"]
            if event["method"] == "Network.requestWillBeSent" and event["params"]["documentURL"] == file.as_uri():
                asked.add(event["params"]["request"]["url"])
        return file.as_uri() in asked

    wait(browser, own_request_is_logged)
    return {address for address in asked if not address.startswith("data:")}


def test_no_error_is_logged_and_no_request_leaves_the_file(page: Any, report: Path) -> None:
    assert [entry for entry in page.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")] == []
    assert requests_of(page, report) == {report.as_uri()}


def test_a_request_would_be_noticed(browser: Any, report: Path, tmp_path: Path) -> None:
    page = report.read_text(encoding="utf-8").replace("default-src 'none'", "default-src *").replace("img-src", "x-src")
    leaky = tmp_path / "leaky.html"
    leaky.write_text(page.replace("<main>", "<main><img src='http://127.0.0.1:1/picture'>"), encoding="utf-8")
    show(browser, leaky)
    assert requests_of(browser, leaky) == {leaky.as_uri(), "http://127.0.0.1:1/picture"}


def test_a_label_is_found_and_its_nearest_are_shown_as_bars(page: Any) -> None:
    assert search(page, "kit") == ["kitten"]
    find(page, "#search").send_keys(Keys.ENTER)
    assert find(page, "#nearest h4").text == "Nearest to kitten"
    names = [name.text for name in page.find_elements(By.CSS_SELECTOR, "#nearest .name")]
    assert names[0] == "cat"
    widths = [bar.size["width"] for bar in page.find_elements(By.CSS_SELECTOR, "#nearest .fill")]
    assert widths[0] > 2 * widths[1] > 0


def test_the_arrow_keys_choose_among_the_labels_found(page: Any) -> None:
    offered = search(page, "t")
    find(page, "#search").send_keys(Keys.ARROW_DOWN, Keys.ENTER)
    assert find(page, "#nearest h4").text == f"Nearest to {offered[1]}"


@pytest.mark.parametrize("name", NAMES[3:])
def test_harmful_names_are_shown_as_text(page: Any, name: str) -> None:
    assert search(page, name) == [name]
    find(page, "#search").send_keys(Keys.ENTER)
    assert find(page, "#nearest h4").text == f"Nearest to {name}"
    assert len(page.find_elements(By.TAG_NAME, "script")) == 2


def test_what_is_not_there_is_said(page: Any) -> None:
    assert search(page, "zebra") == []
    assert "No label" in find(page, "#matches").text


def test_a_neighbour_can_be_clicked(page: Any) -> None:
    search(page, "kitten")
    find(page, "#search").send_keys(Keys.ENTER)
    scroll_to(page, "#nearest .bars button").click()
    assert find(page, "#nearest h4").text == "Nearest to cat"


def test_pointing_at_the_curves_shows_the_values_of_the_epoch(page: Any) -> None:
    assert point_at(page, "#curves svg", 0.95).splitlines() == [
        "epoch 4",
        "plain: 8.50 % ± 0.71 (2 runs)",
        "label-embedding: 6.50 % ± 0.71 (2 runs)",
    ]


def test_the_curves_are_read_by_keyboard(page: Any) -> None:
    find(page, "#curves svg").send_keys(Keys.ARROW_RIGHT)
    assert find(page, "#curve-values").text.startswith("epoch 1 · plain: 11.50 %")


def curve_methods(page: Any) -> set[str]:
    return {line.get_attribute("data-method") for line in page.find_elements(By.CSS_SELECTOR, "#curves path")}


def test_a_method_is_switched_off_and_on(page: Any) -> None:
    assert curve_methods(page) == {"plain", "label-embedding"}
    button = find(page, "#methods button")
    button.send_keys(Keys.ENTER)
    assert button.get_attribute("aria-pressed") == "false"
    assert curve_methods(page) == {"label-embedding"}
    button.send_keys(Keys.ENTER)
    assert curve_methods(page) == {"plain", "label-embedding"}


def test_with_all_methods_off_nothing_breaks(page: Any) -> None:
    for button in page.find_elements(By.CSS_SELECTOR, "#methods button"):
        button.send_keys(Keys.ENTER)
    assert "switched off" in find(page, "#curves").text
    assert [entry for entry in page.get_log("browser") if entry["level"] == "SEVERE"] == []


def test_the_curves_zoom_in_and_out(page: Any) -> None:
    def epochs() -> list[str]:
        return [text.text for text in page.find_elements(By.CSS_SELECTOR, "#curves svg text[text-anchor=middle]")]

    whole = epochs()
    find(page, "#zoom-in").send_keys(Keys.ENTER)
    assert epochs() != whole
    find(page, "#zoom-reset").send_keys(Keys.ENTER)
    assert epochs() == whole


def test_a_cell_of_the_heatmap_names_its_labels_and_counts(page: Any) -> None:
    support.Select(find(page, "#shown")).select_by_value("all")
    assert point_at(page, "#heatmap-box canvas", 0.99, 0.01).startswith("cat → café & </script>: similarity")
    find(page, "#confusion-box canvas").send_keys(Keys.ARROW_LEFT)
    assert "predicted as it" in find(page, "#cell").text


def test_the_diagonal_of_the_confusion_matrix_has_the_colour_of_what_was_right(page: Any) -> None:
    support.Select(find(page, "#shown")).select_by_value("all")
    cat_as_cat, cat_as_kitten, dog_as_dog = page.execute_script(
        "const canvas = document.querySelector('#confusion-box canvas');"
        "const scale = canvas.width / canvas.clientWidth;"
        "return [[0, 0], [1, 0], [2, 2]].map(([x, y]) => [...canvas.getContext('2d').getImageData("
        "  (canvas.side + (x + 0.5) * canvas.step) * scale, (y + 0.5) * canvas.step * scale, 1, 1).data]);"
    )
    assert cat_as_kitten == dog_as_dog  # 3 of 4 is the most that is confused, and ends the scale
    assert cat_as_cat != dog_as_dog  # 1 of 4 is right
    assert "75 % and more" in find(page, "#confusion-scale").text


def test_groups_and_chosen_labels_can_be_shown(page: Any) -> None:
    options = [option.text for option in page.find_elements(By.CSS_SELECTOR, "#shown option")]
    assert "group pets (3)" in options
    find(page, "#pick").send_keys(Keys.ENTER)
    assert find(page, "#shown").get_attribute("value") == "picked"
    assert len(page.find_elements(By.CSS_SELECTOR, "#chips button")) == 1
    scales = [find(page, f"#{matrix}-scale").text for matrix in ("heatmap", "confusion")]
    assert not any("and more" in scale for scale in scales), "a label alone has the whole scale"


def test_pointing_at_the_map_names_a_label(page: Any) -> None:
    place = page.execute_script(
        "const map = document.getElementById('map'); const ink = map.getContext('2d');"
        "const data = ink.getImageData(0, 0, map.width, map.height).data;"
        "for (let i = 0; i < data.length; i += 4) if (data[i + 3] > 180 && data[i + 2] > data[i] + 60)"
        "  return [(i / 4) % map.width / map.width, Math.floor(i / 4 / map.width) / map.height];"
    )
    assert point_at(page, "#map", *place) in NAMES


def test_likely_duplicates_come_first_with_their_confusions(page: Any) -> None:
    first = [cell.text for cell in page.find_elements(By.CSS_SELECTOR, "#pair-table tbody tr:first-child td")]
    assert first[:2] == ["cat", "kitten"]
    assert first[3:] == ["3", "3", "0"]


WHITE = [255, 255, 255]


def seen_colour(page: Any, selector: str) -> list[int]:
    """The colour in the middle of an element, as it is on the screen once its picture is drawn."""

    def colour_unless_white(driver: Any) -> list[int] | None:
        content = base64.b64decode(scroll_to(driver, selector).screenshot_as_base64)
        image = Image.open(io.BytesIO(content)).convert("RGB")
        found = list(image.getpixel((image.width // 2, image.height // 2)))
        return None if found == WHITE else found

    # the browser decodes a picture aside, and may do so anew: white is a place where it is not drawn
    found: list[int] = wait(page, colour_unless_white)
    return found


def test_the_labels_of_a_pair_are_shown_with_test_images(page: Any) -> None:
    cells = page.find_elements(By.CSS_SELECTOR, "#pair-table tbody tr:first-child td .pictures")
    assert [cell.get_attribute("aria-label") for cell in cells] == ["3 test images of cat", "3 test images of kitten"]
    for column, label in ((1, 0), (2, 1)):
        for number in (1, 3):
            picture = f"#pair-table tbody tr:first-child td:nth-child({column}) .pictures span:nth-child({number})"
            assert seen_colour(page, picture) == [40 * label + 5, 40 * label + 20, 40 * label]


def test_the_chosen_label_is_shown_with_its_test_images(page: Any) -> None:
    search(page, NAMES[-1])
    find(page, "#search").send_keys(Keys.ENTER)
    assert find(page, "#nearest .pictures").get_attribute("aria-label") == f"1 test image of {NAMES[-1]}"
    assert seen_colour(page, "#nearest .pictures span") == [205, 220, 200]


def test_without_pictures_the_page_does_without(browser: Any, tmp_path: Path) -> None:
    show(browser, write_report(write_comparison(tmp_path)))
    assert browser.find_elements(By.CSS_SELECTOR, "#pair-table tbody tr")
    assert not browser.find_elements(By.CSS_SELECTOR, ".pictures")
    assert "icture" not in find(browser, "#pairs").text


def test_characters_that_cannot_be_seen_are_shown_as_escapes(browser: Any, tmp_path: Path) -> None:
    space = LabelSpace.from_matrix(torch.eye(3), ["\u202eevil\x1b", "中文", "plain"])
    show(browser, write_report(write_comparison(tmp_path, space)))
    assert search(browser, "evil") == ["\\u202eevil\\u001b"]
    shown = find(browser, "body").text
    assert "中文" in shown
    assert not set("\u202e\x1b") & set(shown)


def test_the_best_number_of_a_column_stands_out(page: Any) -> None:
    tables = page.find_elements(By.CSS_SELECTOR, "#summary table")
    assert len(tables) == 2
    best = tables[0].find_elements(By.CSS_SELECTOR, "td.best")
    assert [cell.get_attribute("data-title") for cell in best] == ["test error", "best run"]
    assert best[0].text.startswith("6.50")


def test_translations_are_drawn_by_their_own_score(browser: Any, tmp_path: Path) -> None:
    show(browser, write_report(write_translations(tmp_path, {"plain": 20.0, "label-embedding": 21.5})))
    assert find(browser, "#training-title").text == "BLEU over the epochs"
    assert "Further right is better" in find(browser, "#strip-about").text
    assert find(browser, "#headline").text.splitlines()[-3:] == [
        "label-embedding",
        "21.50",
        "no clear difference to plain: +1.50, 1 seed, too few: at least 3",
    ]
    assert point_at(browser, "#curves svg", 0.95).splitlines() == ["epoch 4", "plain: 15.00", "label-embedding: 16.50"]
    assert find(browser, "#summary td.best").text == "21.50"
    assert not find(browser, "#calibration-section").is_displayed()
    assert "error" not in find(browser, "#training").text
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


def cells_of(page: Any, selector: str) -> list[list[str]]:
    rows = page.find_elements(By.CSS_SELECTOR, f"{selector} tbody tr")
    return [[cell.text for cell in row.find_elements(By.TAG_NAME, "td")] for row in rows]


def test_confident_errors_are_listed_as_text(page: Any) -> None:
    first, second = cells_of(page, "#worst-table")
    assert first == ["a", "cat", "kitten", "0.900"]
    assert second[:2] == ["<img src=x onerror=alert(1)>", NAMES[3]]
    assert not page.find_elements(By.CSS_SELECTOR, "#worst-table img")


def test_all_labels_are_sorted_by_any_column(page: Any) -> None:
    rows = cells_of(page, "#label-table")
    assert len(rows) == len(NAMES)
    assert rows[0] == ["cat", "4", "75.0", "kitten (3)", rows[0][4]]  # errors of two runs, the worst label first
    assert rows[0][4].startswith("kitten (")
    for _ in range(2):
        find(page, "#label-table th .sort").send_keys(Keys.ENTER)
    names = [row[0] for row in cells_of(page, "#label-table")]
    assert names[0] == "kitten"
    assert find(page, "#label-table th").get_attribute("aria-sort") == "descending"


def test_unfinished_runs_are_named(page: Any) -> None:
    assert "plain, seed 9: unfinished, epoch 2 of 4" in find(page, "#missing").text


def test_the_page_is_dark_on_demand(page: Any) -> None:
    before = page.execute_script("return getComputedStyle(document.body).backgroundColor")
    find(page, "#theme").send_keys(Keys.ENTER)
    assert page.execute_script("return getComputedStyle(document.body).backgroundColor") != before


def test_a_phone_needs_no_sideways_scrolling(page: Any) -> None:
    with phone(page):
        assert page.execute_script("return document.documentElement.scrollWidth") <= 390
        # rows are cards: every cell is on the screen, after the title of its column
        for selector in ("#summary", "#pair-table", "#worst-table", "#label-table"):
            for cell in page.find_elements(By.CSS_SELECTOR, f"{selector} tbody tr:first-child td"):
                assert 0 <= cell.rect["x"] < cell.rect["x"] + cell.rect["width"] <= 390
        shown = find(page, "#summary td:nth-child(3)")
        title = page.execute_script("return getComputedStyle(arguments[0], '::before').content", shown)
        assert title == '"test error"'


def test_a_folder_without_finished_runs_is_drawn_as_far_as_it_goes(browser: Any, tmp_path: Path) -> None:
    write_unfinished(tmp_path)
    with pytest.raises(UserError, match="no finished run"):
        write_report(tmp_path)
    show(browser, tmp_path / "report.html")
    assert "No run is finished" in find(browser, "#missing").text
    assert browser.find_elements(By.CSS_SELECTOR, "#curves path.unfinished")
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
