"""The card of a model: what its files say, in the form that hubs read."""

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from labelemb.lab.cli import main
from labelemb.lab.report.model_card import model_card, wilson_interval, write_card
from tests.helpers.report_folders import NAMES, write_comparison

yaml = pytest.importorskip("yaml")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = write_comparison(tmp_path / "pets") / "label-embedding" / "seed-0"
    model = {"label_names": NAMES, "preprocessing": {"kind": "text", "ngrams": 1, "vocabulary": []}}
    (folder / "model.json").write_text(json.dumps(model))
    return folder


def test_hubs_find_task_data_and_score_in_front(run: Path) -> None:
    front = yaml.safe_load(model_card(run).split("---\n")[1])
    assert (front["library_name"], front["pipeline_tag"]) == ("labelemb", "text-classification")
    [entry] = front["model-index"]
    assert entry["name"] == "pets-label-embedding"
    assert entry["results"][0]["metrics"] == [{"type": "accuracy", "value": 0.94, "name": "test accuracy"}]
    assert entry["results"][0]["dataset"]["name"] == "pets"


def test_the_card_has_errors_with_intervals_calibration_labels_versions_and_limits(run: Path) -> None:
    card = model_card(run)
    low, high = wilson_interval(6.0, 12)
    assert f"this run: test error 6.00 % (95 % interval {low:.2f} to {high:.2f}, from 12 test examples)" in card
    assert "- 2 seeds: error 6.50 ± 0.71 % (standard deviation)" in card
    assert "no clear difference to plain: -2.00, 2 seeds, too few: at least 3" in card
    assert "| expected calibration error (%) | 0.50 | 0.50 |" in card
    assert "- cat, kitten (likeness 0.78)" in card
    assert "labelemb 0" in card.partition("- versions: ")[2].splitlines()[0]
    assert "6 label(s) have fewer than 10 test examples" in card
    assert "cat (50 % of 2)" in card.partition("## Limits")[2]


def test_names_cannot_become_markup(run: Path) -> None:
    card = model_card(run)
    assert r"\<script\>alert\(1\)\</script\>" in card
    assert "<script" not in card.replace(r"\<script", "")


def test_a_card_is_written_anew_over_an_older_one(run: Path) -> None:
    assert write_card(run) == run / "README.md"
    (run / "confusion.json").unlink()
    assert write_card(run).read_text() == model_card(run)
    assert "## Limits" in model_card(run)


@pytest.mark.parametrize(
    "edit",
    [
        lambda card: card.replace("are not known to the program: add them here", "MIT, for demonstrations"),
        lambda card: f"{card}\n## License\n\nMIT\n",
        lambda card: card.rpartition("\n<!--")[0].replace("## Limits", "## License\n\nMIT\n\n## Limits"),
        lambda card: "my notes",
    ],
)
def test_a_text_of_the_user_is_not_replaced(
    run: Path, edit: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    mine = edit(model_card(run))
    (run / "README.md").write_text(mine)
    assert main(["card", str(run)]) == 2
    assert (
        "README.md was edited or is not from labelemb: name another file with -o, or remove" in capsys.readouterr().err
    )
    assert (run / "README.md").read_text() == mine


def test_an_unchanged_card_without_a_checksum_and_an_empty_file_are_replaced(run: Path) -> None:
    for before in (model_card(run).rpartition("\n<!--")[0], ""):
        (run / "README.md").write_text(before)
        assert write_card(run).read_text() == model_card(run)


def test_the_verb_says_what_it_wrote(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["card", str(run), "-o", str(tmp_path / "card.md")]) == 0
    assert capsys.readouterr().out == f"wrote {tmp_path / 'card.md'}\n"
    assert main(["card", str(tmp_path)]) == 2


@pytest.mark.parametrize("verb", ["card", "report"])
def test_a_pipe_gets_the_text_and_nothing_else(run: Path, verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    reader, writer = os.pipe()
    received: list[bytes] = []
    with os.fdopen(reader, "rb") as pipe:
        thread = threading.Thread(target=lambda: received.append(pipe.read()))
        thread.start()
        out = f"/dev/fd/{writer}"
        assert main([verb, str(run), "-o", out]) == 0
        os.close(writer)
        thread.join(60)
    assert received[0].startswith(b"---\n" if verb == "card" else b"<!doctype html>")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("error", "examples"), [(0.0, 10), (100.0, 10), (5.0, 100)])
def test_the_interval_is_wilsons(error: float, examples: int) -> None:
    stats = pytest.importorskip("scipy.stats")
    wrong = round(error * examples / 100)
    expected = stats.binomtest(wrong, examples).proportion_ci(method="wilson")
    assert wilson_interval(error, examples) == pytest.approx((100 * expected.low, 100 * expected.high), abs=1e-3)
