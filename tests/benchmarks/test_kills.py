"""Trainings that are killed anywhere end as if nobody had killed them."""

from pathlib import Path

import pytest

campaign = pytest.importorskip("benchmarks.kills.campaign")


@pytest.mark.slow
def test_kills_change_no_byte_and_leave_nothing(tmp_path: Path) -> None:
    for outcome in campaign.run_campaign(kills=12, seed=17, place=tmp_path):
        assert outcome.problems == []
    assert outcome.kills == 12


def test_a_file_that_differs_is_missing_or_is_left_over_is_found(tmp_path: Path) -> None:
    expected = {"model.safetensors": b"1", "result.json": [{"error": 1}], "recipe.toml": b""}
    found = {"model.safetensors": b"2", "result.json": [{"error": 1}], ".labelemb-1.tmp": b""}
    assert campaign.differences(expected, found) == [
        ".labelemb-1.tmp is left over",
        "model.safetensors differs",
        "recipe.toml is missing",
    ]
