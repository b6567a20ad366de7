"""The worst examples that the page shows: of which run, and what is said of damage."""

from pathlib import Path
from typing import Any

import pytest

from labelemb.lab.report.gather import gather, read_folder
from tests.helpers.report_folders import write_comparison


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_comparison(tmp_path)


def gathered(folder: Path) -> dict[str, Any]:
    return gather(read_folder(folder))


def test_the_worst_examples_of_the_first_run_are_there(folder: Path) -> None:
    worst = gathered(folder)["worst"]
    assert [entry["title"] for entry in worst] == ["label-embedding, seed 0", "plain, seed 0"]
    assert worst[0]["examples"][0]["label"] == "cat"


def test_the_worst_examples_are_those_of_the_first_run_that_has_any(folder: Path) -> None:
    (folder / "label-embedding" / "seed-0" / "worst.json").write_text("[]")
    for seed in (0, 1):
        (folder / "plain" / f"seed-{seed}" / "worst.json").write_text("[]")
    worst = {entry["title"]: len(entry["examples"]) for entry in gathered(folder)["worst"]}
    assert worst == {"label-embedding, seed 1": 2, "plain, seed 0": 0}


def test_damaged_worst_examples_are_noted_and_those_of_another_run_shown(folder: Path) -> None:
    (folder / "plain" / "seed-0" / "worst.json").write_text('[{"number": "three"}]')
    data = gathered(folder)
    assert [entry["title"] for entry in data["worst"]] == ["label-embedding, seed 0", "plain, seed 1"]
    assert "worst.json is damaged" in data["notes"][0]
