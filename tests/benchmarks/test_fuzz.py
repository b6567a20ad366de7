"""Damaged files and odd arguments end in one line, or work: some hundred cases with a fixed seed."""

from pathlib import Path
from random import Random

import pytest

campaign = pytest.importorskip("benchmarks.fuzz.campaign")
workbench = pytest.importorskip("benchmarks.fuzz.workbench")
damage = pytest.importorskip("benchmarks.fuzz.damage")

CASES, MORE = 100, 400


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> object:
    return workbench.make_workbench(tmp_path_factory.mktemp("intact"))


def run(bench: object, numbers: range, place: Path) -> object:
    outcome = None
    for outcome in campaign.run_campaign(bench, numbers, seed=17, place=place):
        assert outcome.problems == []
    return outcome


def test_damage_is_one_line_or_nothing(bench: object, tmp_path: Path) -> None:
    outcome = run(bench, range(CASES), tmp_path / "case")
    assert outcome.ends.total() == CASES
    assert sum(count for end, count in outcome.ends.items() if end.endswith("one line")) > CASES / 3


@pytest.mark.slow
def test_more_damage_is_one_line_or_nothing(bench: object, tmp_path: Path) -> None:
    run(bench, range(CASES, CASES + MORE), tmp_path / "case")


def test_an_error_that_is_not_ours_is_found(bench: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(arguments: list[str]) -> int:
        raise KeyError("not ours")

    monkeypatch.setattr(campaign.command, "execute", fail)
    [outcome] = campaign.run_campaign(bench, range(1), seed=17, place=tmp_path / "case")
    assert len(outcome.problems) == 1
    assert "KeyError: 'not ours'" in outcome.problems[0]


def test_damage_leaves_the_odd_values_as_they_are_so_that_every_case_stands_alone() -> None:
    before = repr(damage.ODD_VALUES)
    for seed in range(300):
        content = b'{"a": [1, {"b": [2, 3]}], "c": {"d": {}}}'
        for _ in range(3):
            content = damage.damage_json(content, Random(seed))
    assert repr(damage.ODD_VALUES) == before
