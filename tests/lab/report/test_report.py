"""The page's data and its file: complete, safe to open, and honest about what is missing."""

import base64
import json
import re
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from labelemb import LabelSpace
from labelemb.lab.cli import main
from labelemb.lab.comparison.summary import read_results
from labelemb.lab.comparison.tables import render
from labelemb.lab.jobs.compare import write_summary
from labelemb.lab.recipes.recipe import load_recipe
from labelemb.lab.report import write_report
from labelemb.lab.report.gather import gather
from labelemb.lab.report.labels import describe
from labelemb.labelspace.order import clustered_order
from labelemb.support.errors import UserError
from tests.helpers.report_folders import (
    EPOCHS,
    NAMES,
    similar_labels,
    write_comparison,
    write_examples,
    write_finished,
    write_translations,
    write_unfinished,
)


class Scripts(HTMLParser):
    """The elements of a page, and the text of its scripts, as a browser would read them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.texts.append("")

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] == "script":
            self.texts[-1] += data


def embedded(page: str) -> Any:
    return json.loads(Scripts(page).texts[0])


def gathered(folder: Path) -> dict[str, Any]:
    return gather(read_results(folder))


def unpacked(text: str, kind: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), dtype=kind)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_comparison(tmp_path / "pets")


def test_the_page_lies_in_the_folder_and_holds_what_was_gathered(folder: Path) -> None:
    path = write_report(folder)
    assert path == folder / "report.html"
    assert embedded(path.read_text()) == json.loads(json.dumps(gathered(folder)))


def test_a_comparison_ends_with_its_page(folder: Path) -> None:
    write_summary(folder)
    assert embedded((folder / "report.html").read_text())["recipe"] == "pets"


def test_harmful_names_stay_data(folder: Path) -> None:
    page = Scripts(write_report(folder).read_text())
    assert [tag for tag, _ in page.tags].count("script") == 2
    assert json.loads(page.texts[0])["spaces"][0]["names"] == NAMES


def test_nothing_is_loaded_from_elsewhere(folder: Path) -> None:
    text = write_report(folder).read_text()
    for tag, attributes in Scripts(text).tags:
        address = attributes.get("src") or attributes.get("href") or "#"
        assert address.startswith(("#", "data:")), (tag, address)
    assert "default-src 'none'" in text
    assert not re.search(r"@import|url\((?!#|data:)|fetch\(|XMLHttpRequest", text)


def test_all_runs_are_there_with_the_baseline_first(folder: Path) -> None:
    data = gathered(folder)
    assert [method["name"] for method in data["methods"]] == ["plain", "label-embedding"]
    for method in data["methods"]:
        assert [run["seed"] for run in method["runs"]] == [0, 1]
        assert method["runs"][0]["epochs"] == list(range(1, EPOCHS + 1))
    assert data["summary"]["methods"]["label-embedding"]["test_error"]["mean"] == 6.5


def test_examples_of_all_seeds_make_one_calibration_curve(folder: Path) -> None:
    assert gathered(folder)["methods"][0]["reliability"] == [{"count": 9, "confidence": 0.5, "accuracy": 0.25}]


def test_confusions_are_summed_over_the_seeds(folder: Path) -> None:
    confusion = gathered(folder)["methods"][0]["confusion"]
    assert confusion["runs"] == 2
    assert confusion["examples"] == [4] * len(NAMES)
    assert sorted(confusion["wrong"]) == [[0, 1, 3], [3, 4, 2]]


def test_labels_are_those_of_the_space(folder: Path) -> None:
    space, shown = similar_labels(), gathered(folder)["spaces"][0]
    assert shown["title"] == "label-embedding, seed 0"
    assert shown["groups"] == space.superclasses
    matrix = unpacked(shown["matrix"], "<f4").reshape(len(NAMES), len(NAMES))
    np.testing.assert_allclose(matrix, np.asarray(space.matrix()), rtol=1e-6)


def test_labels_that_are_nearly_the_same_lead_the_pairs() -> None:
    shown = describe(similar_labels())
    a, b, likeness = shown["pairs"][0]
    assert {NAMES[a], NAMES[b]} == {"cat", "kitten"}
    matrix = np.asarray(similar_labels().matrix())
    expected = np.sqrt(matrix[0, 1] * matrix[1, 0] / (matrix[0, 0] * matrix[1, 1]))
    assert likeness == pytest.approx(expected, rel=1e-5)


def test_the_clustered_order_puts_like_labels_together() -> None:
    blocks = torch.arange(12) % 3  # three kinds of labels, shuffled
    logits = 3.0 * (blocks[:, None] == blocks[None]).float()
    order = clustered_order(np.asarray(LabelSpace.from_matrix(logits, kind="logit").matrix(), dtype=np.float64))
    assert sorted(order) == list(range(12))
    assert (np.diff(blocks[order].numpy()) != 0).sum() == 2


def test_beyond_500_labels_the_nearest_are_kept_instead_of_the_matrix() -> None:
    generator = torch.Generator().manual_seed(0)
    shown = describe(LabelSpace.from_matrix(torch.randn(501, 501, generator=generator), kind="logit"))
    assert "matrix" not in shown
    assert "order" not in shown
    assert shown["neighbors"]["k"] == 20
    assert unpacked(shown["neighbors"]["indices"], "<i4").shape == (501 * 20,)


def test_a_page_of_22439_labels_stays_below_15_megabytes() -> None:
    labels = 2243
    generator = torch.Generator().manual_seed(0)
    A, B = torch.randn(labels, 4, generator=generator), torch.randn(4, labels, generator=generator)
    space = LabelSpace.from_factors(A, B, names=[f"a word of usual length {label}" for label in range(labels)])
    assert len(json.dumps(describe(space))) * 22_439 / labels < 14_000_000


def test_a_single_run_has_a_page(folder: Path) -> None:
    data = gathered(folder / "label-embedding" / "seed-1")
    assert [run["seed"] for run in data["methods"][0]["runs"]] == [1]
    assert data["spaces"][0]["names"] == NAMES


def test_unfinished_runs_are_shown_as_far_as_they_came(folder: Path) -> None:
    write_unfinished(folder)
    [run] = gathered(folder)["unfinished"]
    assert (run["method"], run["seed"], run["epoch"], run["of"]) == ("plain", 9, 2.0, EPOCHS)
    assert run["scores"] == [19.0, 18.0]


def test_without_a_finished_run_the_page_is_written_and_the_error_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_unfinished(tmp_path)
    assert main(["report", str(tmp_path)]) == 2
    assert capsys.readouterr().err.strip() == (
        f"labelemb: {tmp_path} has no finished run: {tmp_path / 'report.html'} shows what there is"
    )
    data = embedded((tmp_path / "report.html").read_text())
    assert data["methods"] == []
    assert len(data["unfinished"]) == 1


def test_a_half_written_line_of_a_running_run_does_no_harm(tmp_path: Path) -> None:
    run = write_unfinished(tmp_path)
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3')
    assert gathered(tmp_path)["unfinished"][0]["scores"] == []


def test_a_damaged_label_space_is_noted_and_the_rest_shown(folder: Path) -> None:
    for file in folder.glob("*/*/labels.safetensors"):
        file.write_bytes(b"no label space")
    data = gathered(folder)
    assert data["spaces"] == []
    assert "label-embedding, seed 0 cannot be read" in data["notes"][0]
    assert len(data["methods"]) == 2


@pytest.mark.parametrize("content", ['{"lab', "{}"])
def test_damaged_confusions_are_noted_and_those_of_other_runs_shown(folder: Path, content: str) -> None:
    (folder / "plain" / "seed-0" / "confusion.json").write_text(content)
    data = gathered(folder)
    assert [method["confusion"]["runs"] for method in data["methods"]] == [1, 2]
    assert "confusion.json is damaged" in data["notes"][0]


@pytest.mark.parametrize("name", ["empty", "absent"])
def test_a_folder_without_runs_is_an_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=name):
        write_report(tmp_path / name)


def test_a_page_that_cannot_be_written_is_one_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(folder), "-o", str(folder / "nowhere" / "page.html")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("labelemb: cannot write")
    assert error.count("\n") == 1


def test_methods_without_label_spaces_have_a_page_too(tmp_path: Path) -> None:
    write_finished(tmp_path, "plain", 0, 5.0, None)
    assert gathered(tmp_path)["spaces"] == []
    assert write_report(tmp_path).exists()


def test_the_tables_are_those_of_the_command_line(folder: Path) -> None:
    found = read_results(folder)
    assert found.summary is not None
    data, printed = gather(found), render(found.summary)
    for table in data["tables"]:
        for row in (table["header"], *table["rows"]):
            assert any([cell.strip() for cell in line.split("|")[1:-1]] == row for line in printed.splitlines()), row


def test_what_columns_mean_is_one_point_each(folder: Path, tmp_path: Path) -> None:
    assert gathered(folder)["legend"][1].startswith("test error: mean ± standard deviation over seeds")
    points = gathered(write_translations(tmp_path / "texts", {"plain": 20.0}))["legend"]
    assert "score" in points[1].split()
    assert not any(point.startswith((" ", "-")) or "\n" in point for point in points)


def card_words(folder: Path, plain: Sequence[float], ours: Sequence[float]) -> list[str]:
    for method, errors in {"plain": plain, "label-embedding": ours}.items():
        for seed, error in enumerate(errors):
            write_finished(folder, method, seed, error, None)
    return [card["words"] for card in gathered(folder)["headline"]]


def test_a_card_names_a_clear_difference_with_its_interval(tmp_path: Path) -> None:
    assert card_words(tmp_path, [8.0, 9.0, 10.0], [6.0, 7.1, 7.9]) == [
        "test error, 3 runs",
        "22.2 % fewer errors than plain: -2.00 (95 % interval -2.25 to -1.75), 3 seeds",
    ]


def test_a_card_finds_no_clear_difference_where_the_interval_holds_zero(tmp_path: Path) -> None:
    words = card_words(tmp_path, [8.0, 9.0, 10.0], [6.0, 9.5, 9.0])[1]
    assert words == "no clear difference to plain: -0.83 (95 % interval -3.96 to +2.29), 3 seeds"


@pytest.mark.parametrize(
    ("seeds", "number"), [(1, "-2.00, 1 seed"), (2, "-1.95 (95 % interval -2.59 to -1.31), 2 seeds")]
)
def test_a_card_finds_no_clear_difference_with_fewer_than_three_seeds(tmp_path: Path, seeds: int, number: str) -> None:
    words = card_words(tmp_path, [8.0, 9.0][:seeds], [6.0, 7.1][:seeds])[1]
    assert words == f"no clear difference to plain: {number}, too few: at least 3"


def test_cards_chart_and_tables_have_one_order_with_the_best_behind_the_baseline(tmp_path: Path) -> None:
    for method, error in {"plain": 5.0, "a": 7.0, "b": 4.0, "label-embedding": 6.0}.items():
        write_finished(tmp_path, method, 0, error, None)
    data = gathered(tmp_path)
    order = ["plain", "b", "label-embedding", "a"]
    assert [card["method"] for card in data["headline"]] == order
    assert [method["name"] for method in data["methods"]] == order
    assert [[row[0] for row in table["rows"]] for table in data["tables"]] == [order, order]


def test_every_column_has_its_own_best_cell(folder: Path) -> None:
    first, second = gathered(folder)["tables"]
    best = dict(zip(first["header"], zip(*first["best"], strict=True), strict=True))
    assert best["test error"] == (False, True)
    assert best["runs"] == best["p"] == best["method"] == (False, False)
    best = dict(zip(second["header"], zip(*second["best"], strict=True), strict=True))
    assert best["NLL"] == (True, True)  # equal


def test_where_no_pair_stands_out_the_page_says_so() -> None:
    assert describe(similar_labels())["alike"] is None
    noise = 0.01 * torch.rand(6, 6, generator=torch.Generator().manual_seed(0))
    low, high = describe(LabelSpace.from_matrix(torch.eye(6) + noise, kind="logit"))["alike"]
    assert 0.36 < low < high < 0.38


def test_the_title_is_the_users_data_and_the_folder(tmp_path: Path) -> None:
    run = write_unfinished(tmp_path / "runs" / "pets")
    data = gathered(tmp_path / "runs" / "pets")
    assert (data["data"], data["folder"]) == ("pets", "runs/pets")
    (run / "recipe.toml").write_text(load_recipe("text-csv").to_toml())
    about = json.loads((run / "run.json").read_text()) | {"data": "/somewhere/else/intents.csv"}
    (run / "run.json").write_text(json.dumps(about))
    assert gathered(tmp_path / "runs" / "pets")["data"] == "intents.csv"
    assert gathered(run)["folder"] == "pets/plain/seed-9"


def test_translations_are_shown_by_their_own_score(tmp_path: Path) -> None:
    data = gathered(write_translations(tmp_path, {"plain": 20.0, "label-embedding": 21.5, "label-smoothing": 19.0}))
    assert data["score"]["axis"] == "test BLEU"
    assert [run["score"] for method in data["methods"] for run in method["runs"]] == [20.0, 21.5, 19.0]
    assert data["methods"][0]["runs"][0]["scores"] == [12.0, 13.0, 14.0, 15.0]
    assert [entry["words"] for entry in data["headline"]] == [
        "test BLEU, 1 run",
        "no clear difference to plain: +1.50, 1 seed, too few: at least 3",
        "no clear difference to plain: -1.00, 1 seed, too few: at least 3",
    ]
    assert data["tables"][0]["header"][2] == "test BLEU"


def test_an_unfinished_translation_has_a_curve_of_its_score(tmp_path: Path) -> None:
    run = write_unfinished(tmp_path)
    (run / "recipe.toml").write_text(load_recipe("multi30k-en-de-small").to_toml())
    (run / "metrics.jsonl").write_text('{"step": 1, "epoch": 1.0, "test_error": 90.0, "test_bleu_greedy": 2.5}\n')
    data = gathered(tmp_path)
    assert data["score"]["title"] == "BLEU"
    assert data["unfinished"][0]["scores"] == [2.5]


def test_example_pictures_are_those_of_a_run(folder: Path) -> None:
    assert gathered(folder)["pictures"] is None
    file = write_examples(folder / "label-embedding" / "seed-1")
    pictures = gathered(folder)["pictures"]
    assert base64.b64decode(pictures["png"]) == file.read_bytes()
    assert dict(zip(pictures["labels"], pictures["counts"], strict=True))["cat"] == 3
    assert pictures["counts"][-1] == 1


def test_damaged_example_pictures_are_noted(folder: Path) -> None:
    write_examples(folder / "plain" / "seed-0").write_bytes(b"no picture")
    data = gathered(folder)
    assert data["pictures"] is None
    assert "Example pictures are left out" in data["notes"][0]


def test_a_comparison_that_has_just_begun_has_a_page(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text(load_recipe("digits").to_toml())
    with pytest.raises(UserError, match="no finished run"):
        write_report(tmp_path)
    assert embedded((tmp_path / "report.html").read_text())["recipe"] == "digits"
