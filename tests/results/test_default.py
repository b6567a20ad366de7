"""The rule of the protocol that chooses the default, and the page that shows what it says."""

import runpy
from types import SimpleNamespace

import pytest

from labelemb.lab.comparison.summary import PairedDifference
from labelemb.lab.tasks.classification import Classification
from tests.helpers.pages import ROOT, text_of

DEFAULT = SimpleNamespace(**runpy.run_path(str(ROOT / "results" / "default.py")))


def scores(**columns: list[float]):
    values = {"plain": [5.0, 6.0, 7.0], "a1": [4.0] * 3, "a2": [4.0] * 3, "b": [3.0] * 3, "c": [9.0] * 3} | columns
    return DEFAULT.DevScores(Classification.main, {name: dict(enumerate(column)) for name, column in values.items()})


def test_a_candidate_is_behind_by_more_than_a_standard_error_of_the_paired_difference() -> None:
    lag = scores(a1=[5.0, 6.0, 7.9], a2=[5.2, 6.3, 7.4]).lag
    assert lag("a1") == pytest.approx(1.0)  # mean difference 0.3, standard error 0.3
    assert lag("a2") == pytest.approx(0.3 * 3**0.5 / 0.1)
    assert scores(a1=[9.0]).lag("a1") is None  # one seed has no standard error


def test_a_task_is_judged_by_the_seeds_that_plain_and_all_candidates_have() -> None:
    values = {name: {1: 5.0, 2: 6.0} for name in ("plain", *DEFAULT.CANDIDATES)} | {"label smoothing": {2: 5.0, 3: 5.0}}
    values["a1"] = {2: 4.0, 3: 4.0}
    common = DEFAULT.in_common(values)
    assert {name: set(scores) for name, scores in common.items()} == {name: {2} for name in values}


def test_equal_means_share_their_ranks() -> None:
    ranks = {name: scores().rank(name) for name in DEFAULT.CANDIDATES}
    assert ranks == {"a1": 2.5, "a2": 2.5, "b": 1.0, "c": 4.0}


def test_the_prior_of_a_candidate_differs_from_task_to_task() -> None:
    method = DEFAULT.CANDIDATES["c"]
    assert [DEFAULT.column_of(name) for name in (method + "10", method + "150", "plain", "label-embedding@paper")] == [
        "c",
        "c",
        "plain",
        None,
    ]


@pytest.mark.parametrize(
    ("mean", "low", "high", "n", "shown"),
    [
        (-0.4, -0.6, -0.2, 5, "-0.40 (ahead)"),
        (0.4, 0.2, 0.6, 5, "+0.40 (behind)"),
        (-0.4, -0.9, 0.1, 5, "-0.40 (level)"),
        (-0.4, -0.6, -0.2, 2, "-0.40 (level)"),  # two seeds show nothing
    ],
)
def test_a_difference_on_a_test_set_is_level_unless_it_is_clear(
    mean: float, low: float, high: float, n: int, shown: str
) -> None:
    assert DEFAULT.verdict(PairedDifference(mean, low, high, 0.01, n)) == shown


def test_the_page_shows_what_the_script_prints(capsys: pytest.CaptureFixture[str]) -> None:
    DEFAULT.main()
    printed = capsys.readouterr().out.strip().splitlines()
    page = set(text_of("docs/results.md").splitlines())
    assert not [line for line in printed if line and line not in page]
