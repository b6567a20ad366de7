"""The summary of a comparison against numbers worked out by hand."""

from typing import Any

import pytest
from scipy import stats

from labelemb.lab.comparison.summary import (
    Spread,
    compare_runs,
    epochs_to,
    fluctuation,
    paired_difference,
    spread,
    summarise,
)
from labelemb.lab.comparison.tables import fitted, markdown, render, show, tables
from labelemb.lab.tasks.classification import Classification
from labelemb.lab.tasks.records import CurvePoint, RunResult
from tests.helpers.quick_runs import made_result

Results = dict[str, list[RunResult]]


def run(method: str, seed: int, error: float, curve: list[float], **values: Any) -> RunResult:
    points = [{"epoch": number, "test_error": value} for number, value in enumerate(curve, start=1)]
    return made_result(
        method=method,
        seed=seed,
        test_error=error,
        final_error=curve[-1],
        curve=points,
        seconds_per_epoch=3.0,
        **{"test_nll": 0.1, "test_ece": 1.0, "dev_error": 2.0, **values},
    )


@pytest.fixture
def results() -> Results:
    return {
        "plain": [
            run("plain", 0, 2.0, [5.0, 3.0, 2.0, 2.2, 2.4, 2.2]),
            run("plain", 1, 1.8, [4.0, 3.0, 1.8, 2.0, 1.9, 1.8]),
            run("plain", 2, 2.2, [5.0, 3.0, 2.2, 2.0, 1.9, 2.0]),
        ],
        "label-embedding": [
            run("label-embedding", 0, 1.5, [4.0, 2.0, 1.6, 1.5, 1.5, 1.5], test_nll=0.2),
            run("label-embedding", 1, 1.5, [4.0, 2.5, 2.1, 1.9, 1.6, 1.4], test_nll=0.4),
        ],
        "label-smoothing": [run("label-smoothing", 0, 1.5, [4.0, 3.0, 2.5, 2.4, 2.3, 2.2])],
    }


def test_mean_deviation_minimum_and_count_are_over_seeds(results: Results) -> None:
    error = summarise(results).to_json()["methods"]["plain"]["test_error"]
    assert error == {
        "mean": pytest.approx(2.0),
        "std": pytest.approx(0.2),  # sqrt((0 + 0.04 + 0.04) / 2)
        "n": 3,
        "min": 1.8,
        "values": [2.0, 1.8, 2.2],
    }


def test_the_fields_of_a_method_are_those_promised(results: Results) -> None:
    for summary in summarise(results).to_json()["methods"].values():
        for name in (
            *("test_error", "test_nll", "test_ece", "dev_error", "seconds_per_epoch", "epochs_to_plain"),
            *("fluctuation", "test_nll_scaled", "test_ece_scaled"),
        ):
            assert summary[name].keys() == {"mean", "std", "n", "min", "values"}


def test_error_reduction_is_the_share_of_plains_error(results: Results) -> None:
    summary = summarise(results).to_json()["methods"]
    # plain has a third seed, 2.2, which label embedding lacks: from 1.9 to 1.5
    assert summary["label-embedding"]["error_reduction"] == pytest.approx(100 * 0.4 / 1.9)
    assert "error_reduction" not in summary["plain"]


def test_every_pair_of_methods_is_tested_over_the_seeds_in_common(results: Results) -> None:
    results["label-smoothing"].append(run("label-smoothing", 1, 1.7, [4.0, 3.0, 2.5, 2.4, 2.3, 2.2]))
    summary = summarise(results).to_json()["methods"]
    against = summary["label-embedding"]["against"]
    assert against["plain"] == summary["label-embedding"]["against_plain"]
    assert against["label-smoothing"]["mean"] == pytest.approx(-0.1)  # 1.5 - 1.5 and 1.5 - 1.7
    assert against["label-smoothing"]["n"] == 2
    assert summary["label-smoothing"]["against"]["label-embedding"]["mean"] == pytest.approx(0.1)


def test_labels_that_were_reused_are_no_rival_of_those_that_were_learned(
    results: Results,
) -> None:
    results["reused-labels"] = [run("reused-labels", 0, 1.0, [4.0, 3.0, 2.5, 2.4, 2.3, 1.0])]
    assert not any("reused-labels" in note for note in summarise(results).notes)


def test_epochs_to_plain_counts_to_the_mean_of_plains_last_errors(results: Results) -> None:
    summary = summarise(results).to_json()["methods"]
    # plain ends at (2.2 + 1.8 + 2.0) / 3 = 2.0
    assert summary["label-embedding"]["epochs_to_plain"]["values"] == [2, 4]
    assert summary["plain"]["epochs_to_plain"]["values"] == [3, 3, 4]
    assert summary["label-smoothing"]["epochs_to_plain"] == {
        "mean": None,
        "std": None,
        "n": 0,
        "min": None,
        "values": [None],
    }


def test_fluctuation_is_the_deviation_over_the_last_third(results: Results) -> None:
    # of six epochs the last two: 2.4 and 2.2 lie 0.1 from their mean, so sqrt(0.02 / 1)
    assert summarise(results).to_json()["methods"]["plain"]["fluctuation"]["values"][0] == pytest.approx(0.02**0.5)
    assert fluctuation([CurvePoint(epoch=1, test_error=2.0)]) is None


def test_the_paired_test_uses_the_seeds_in_common(results: Results) -> None:
    against = summarise(results).to_json()["methods"]["label-embedding"]["against_plain"]
    # differences -0.5 and -0.3: mean -0.4, standard error 0.1, t with one degree of freedom has 12.7062 at 97.5 %
    assert against["n"] == 2
    assert against["mean"] == pytest.approx(-0.4)
    assert against["low"] == pytest.approx(-0.4 - 1.27062, abs=1e-4)
    assert against["high"] == pytest.approx(-0.4 + 1.27062, abs=1e-4)
    assert against["p"] == pytest.approx(0.15596, abs=1e-4)


def test_a_single_seed_in_common_is_not_tested(results: Results) -> None:
    assert compare_runs(results["label-smoothing"], results["plain"], "test_error") is None


def test_where_label_embedding_is_not_ahead_it_is_said(results: Results) -> None:
    assert summarise(results).notes == [
        "label-embedding (1.50) does not beat label-smoothing (1.50) over 1 common seed."
    ]


def test_without_plain_there_is_nothing_to_compare_with(results: Results) -> None:
    del results["plain"]
    summary = summarise(results).to_json()["methods"]["label-embedding"]
    assert summary["epochs_to_plain"]["mean"] is None
    assert "against_plain" not in summary
    assert [row[0] for row in tables(summarise(results))[0].rows] == ["label-embedding", "label-smoothing"]


def test_one_value_has_no_deviation() -> None:
    assert spread([2.0]) == Spread(mean=2.0, std=0.0, n=1, min=2.0, values=[2.0])


def test_missing_values_count_in_nothing() -> None:
    assert spread([None, 2.0, 4.0]).mean == 3.0
    assert spread([None, 2.0, 4.0]).n == 2


def test_reaching_the_goal_includes_hitting_it_exactly() -> None:
    curve = [CurvePoint(epoch=1, test_error=3.0), CurvePoint(epoch=2, test_error=2.0)]
    main = Classification.main
    assert epochs_to(curve, 2.0, "test_error", main) == 2
    assert epochs_to(curve, 1.0, "test_error", main) is None
    assert epochs_to(curve, None, "test_error", main) is None


def test_the_tables_show_the_numbers(results: Results) -> None:
    summary = summarise(results)
    rows = tables(summary)[0].rows
    assert rows[0] == ["plain", "3", "2.00 ± 0.20", "1.80", "-", "-", "-"]
    assert rows[1] == ["label-embedding", "2", "1.50 ± 0.00", "1.50", "unclear", "-0.40 [-1.67, +0.87]", "0.156"]
    assert rows[2] == ["label-smoothing", "1", "1.50", "1.50", "unclear", "-", "-"]
    quality = tables(summary)[1].rows[1]
    assert quality[:3] == ["label-embedding", "3.00", "3.0"]
    assert quality[4] == "0.300"
    assert "does not beat" in render(summary)
    assert "| label-embedding |    2 |" in render(summary)


@pytest.mark.parametrize(
    ("errors", "shown"),
    [
        ([1.5, 1.4, 1.6], "25.0 %"),
        ([1.5, 1.3], "unclear"),
        ([1.5, 1.2, 2.3], "unclear"),  # -0.5, -0.6 and +0.1: the interval holds 0
        ([1.5, 1.3, 1.7], "unclear"),  # the same difference three times: no interval
        ([2.5, 2.4, 2.8], "-28.3 %"),
        ([], "-"),
    ],
)
def test_a_table_claims_a_reduction_only_where_the_difference_is_clear(
    results: Results, errors: list[float], shown: str
) -> None:
    ours = [run("label-smoothing", seed, error, [4.0, error]) for seed, error in enumerate(errors)]
    no_pair = [run("label-smoothing", 7, 1.0, [4.0, 1.0])]
    summary = summarise({"plain": results["plain"], "label-smoothing": ours or no_pair})
    table = tables(summary)[0]
    assert table.rows[1][table.header.index("reduction")] == shown
    assert (summary.to_json()["methods"]["label-smoothing"]["error_reduction"] is None) == (not errors)


def test_the_columns_of_a_table_line_up() -> None:
    lines = markdown(["a", "b"], [["long name", "1"], ["x", "1234567"]]).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert lines[1] == "| --------- | ------: |"


def test_the_paired_test_is_scipys() -> None:
    ours, theirs = [1.4, 1.5, 1.3, 1.6, 1.45], [1.9, 1.7, 1.8, 1.6, 2.0]
    found = paired_difference(ours, theirs)
    expected = stats.ttest_rel(ours, theirs)
    interval = expected.confidence_interval(0.95)
    assert found is not None
    assert (found.mean, found.p, found.n) == (pytest.approx(-0.35), pytest.approx(expected.pvalue), 5)
    assert (found.low, found.high) == (pytest.approx(interval.low), pytest.approx(interval.high))


def test_one_pair_says_nothing() -> None:
    assert paired_difference([1.0], [2.0]) is None


@pytest.mark.parametrize("shift", [0.0, 0.1])
def test_the_same_difference_in_every_pair_is_no_proof(shift: float) -> None:
    found = paired_difference([1.0, 2.3, 3.9], [1.0 + shift, 2.3 + shift, 3.9 + shift])
    assert found is not None
    assert found.mean == pytest.approx(-shift)
    assert found.low is found.high is found.p is None


def test_tables_for_a_terminal_fit_80_columns(results: Results) -> None:
    long = "label-embedding@authors-text+soft_start=0.38"
    printed = show(summarise({**results, long: results["plain"]}))
    assert max(len(line) for line in printed.splitlines()) <= 80
    header = [line for line in printed.splitlines() if line.startswith("| method")]
    titles = [cell.strip() for line in header for cell in line.split("|")[2:-1]]
    assert titles == [title for table in tables(summarise(results)) for title in table.header[1:]]
    assert "| label-embedding@authors-text" in printed
    assert "| +soft_start=0.38 " in printed


def test_a_table_that_fits_is_one_table() -> None:
    assert fitted(["set", "error"], [["dev", "1.0"], ["test", "2.0"]]) == markdown(
        ["set", "error"], [["dev", "1.0"], ["test", "2.0"]]
    )
