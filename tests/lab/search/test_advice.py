"""What to take after a search: never more than the fresh seeds say."""

from collections.abc import Sequence

import pytest

from labelemb.lab.comparison.summary import Summary, summarise
from labelemb.lab.search.advice import advise
from labelemb.lab.tasks.classification import Classification
from tests.helpers.quick_runs import made_result

CHOSEN = "online-smoothing@0.6"
SIMPLER = "label-smoothing@rising"
NOISE = (0.0, 0.1, -0.1, 0.05, -0.05)
OTHER_NOISE = (0.1, -0.1, 0.0, -0.05, 0.05)
THIRD_NOISE = (-0.05, 0.0, 0.05, 0.1, -0.1)
MAIN = Classification.main


def summary_from(errors: dict[str, Sequence[float]]) -> Summary:
    """The summary of methods from their errors, one for each seed."""
    results = {
        method: [
            made_result(method=method, seed=seed, test_error=error, curve=[{"epoch": 1, "test_error": error}])
            for seed, error in enumerate(values)
        ]
        for method, values in errors.items()
    }
    return summarise(results)


def summary_of(**means: float) -> Summary:
    names = {"plain": "plain", "smoothing": "label-smoothing@0.1", "chosen": CHOSEN, "simpler": SIMPLER}
    noises = (OTHER_NOISE, NOISE, OTHER_NOISE, THIRD_NOISE)
    pairs = zip(means.items(), noises, strict=False)
    return summary_from({names[key]: [mean + each for each in noise] for (key, mean), noise in pairs})


@pytest.mark.parametrize(
    ("errors", "method", "begins"),
    [
        ({"plain": 12.0, "smoothing": 11.0, "chosen": 9.0}, CHOSEN, f"Take {CHOSEN}"),
        ({"plain": 12.0, "smoothing": 11.0, "chosen": 10.99}, "label-smoothing@0.1", "No clear difference"),
        ({"plain": 12.0, "smoothing": 11.0, "chosen": 13.0}, "label-smoothing@0.1", "Take label-smoothing@0.1"),
        ({"plain": 9.0, "smoothing": 11.0, "chosen": 9.01}, "plain", "No clear difference: take plain"),
        ({"plain": 11.0, "smoothing": 11.01, "chosen": 11.0}, "label-smoothing@0.1", "No clear difference"),
    ],
)
def test_what_fresh_seeds_say_decides(errors: dict[str, float], method: str, begins: str) -> None:
    advice = advise(CHOSEN, summary_of(**errors), MAIN)
    assert advice.method == method
    assert advice.reason.startswith(begins)
    assert advice.reason.count("over 5 fresh seeds") == 1


@pytest.mark.parametrize(("error", "words"), [(11.2, "0.20 points of error worse than"), (11.0, "level with")])
def test_equal_errors_are_called_level_and_not_worse(error: float, words: str) -> None:
    reason = advise(CHOSEN, summary_of(plain=12.0, smoothing=11.0, chosen=error), MAIN).reason
    assert f"{CHOSEN} is {words} label-smoothing@0.1 over 5 fresh seeds" in reason


def test_a_clear_lead_is_never_called_level() -> None:
    smoothed = [11.0 + each for each in NOISE]
    leads = (0.003, 0.0035, 0.004, 0.0045, 0.005)
    chosen = [error - lead for error, lead in zip(smoothed, leads, strict=True)]
    summary = summary_from({"plain": [12.0 + each for each in NOISE], "label-smoothing@0.1": smoothed, CHOSEN: chosen})
    advice = advise(CHOSEN, summary, MAIN)
    assert advice.method == CHOSEN
    words = "0.004 points of error better than label-smoothing@0.1 over 5 fresh seeds"
    assert f"is {words} (difference -0.004, 95 % interval -0.005 to -0.003, p <0.001)" in advice.reason


def test_a_small_p_value_is_not_printed_as_zero() -> None:
    reason = advise(CHOSEN, summary_of(plain=12.0, smoothing=11.0, chosen=5.0), MAIN).reason
    assert "p <0.001" in reason
    assert "0.000" not in reason


@pytest.mark.parametrize(
    ("plain", "smoothing", "chosen", "simpler", "method", "begins", "verdict"),
    [
        (12, 11, 9, 9.01, SIMPLER, f"Take {SIMPLER}, the simpler", f"not clearly better: {CHOSEN} is 0.01 points"),
        (
            12,
            11,
            9,
            8,
            SIMPLER,
            f"Take {SIMPLER}, the simpler",
            f"clearly worse: {CHOSEN} is 1.00 points of error worse",
        ),
        (12, 11, 11.01, 9, SIMPLER, f"Take {SIMPLER}, the simpler", f"clearly worse: {CHOSEN} is 2.01 points"),
        (
            9,
            11,
            7,
            7.01,
            SIMPLER,
            f"Take {SIMPLER}, the simpler method: it is 1.99 points of error better than plain",
            "",
        ),
        (12, 11, 9, 10, CHOSEN, f"Take {CHOSEN}: ", f"1.00 points of error better than {SIMPLER}"),
        (12, 11, 9, 11, CHOSEN, f"Take {CHOSEN}: ", f"2.00 points of error better than {SIMPLER}"),
        (12, 11, 10.99, 11, "label-smoothing@0.1", "No clear difference: take label smoothing", ""),
        (9, 11, 9.01, 9.01, "plain", "No clear difference: take plain", ""),
    ],
)
def test_a_simpler_method_that_does_as_well_is_taken(
    plain: float, smoothing: float, chosen: float, simpler: float, method: str, begins: str, verdict: str
) -> None:
    summary = summary_of(plain=plain, smoothing=smoothing, chosen=chosen, simpler=simpler)
    advice = advise(CHOSEN, summary, MAIN, simpler=SIMPLER)
    assert advice.method == method
    assert advice.reason.startswith(begins)
    assert verdict in advice.reason


def test_a_simpler_method_that_is_not_ahead_of_label_smoothing_is_not_taken() -> None:
    lead, spread = [11.0 + each for each in NOISE], (-0.4, 0.4, -1.0, 1.0, -0.2)
    summary = summary_from(
        {
            "plain": [12.0 + each for each in NOISE],
            "label-smoothing@0.1": lead,
            CHOSEN: [error - 0.2 + 0.01 * each for error, each in zip(lead, OTHER_NOISE, strict=True)],
            SIMPLER: [error - 0.2 + each for error, each in zip(lead, spread, strict=True)],
        }
    )
    advice = advise(CHOSEN, summary, MAIN, simpler=SIMPLER)
    assert advice.method == CHOSEN
    assert f"{SIMPLER} was the best method of the search that learns nothing" in advice.reason


def test_a_simpler_method_without_two_fresh_seeds_is_not_passed_over() -> None:
    summary = summary_of(plain=12.0, smoothing=11.0, chosen=9.0)
    assert advise(CHOSEN, summary, MAIN, simpler=SIMPLER).reason.startswith("Not confirmed")


def test_a_search_that_chose_a_baseline_needs_no_third_method() -> None:
    assert advise("plain", summary_of(plain=9.0, smoothing=11.0), MAIN).method == "plain"
    assert advise("plain", summary_of(plain=11.0, smoothing=11.01), MAIN).method == "label-smoothing@0.1"
    assert advise("label-smoothing@0.1", summary_of(plain=12.0, smoothing=11.0), MAIN).method == "label-smoothing@0.1"


def test_without_two_fresh_seeds_nothing_is_claimed() -> None:
    advice = advise(CHOSEN, None, MAIN)
    assert advice.method == "label-smoothing@0.1"
    assert advice.reason.startswith("Not confirmed")
    assert advise(CHOSEN, summary_of(plain=12.0, smoothing=11.0), MAIN).reason.startswith("Not confirmed")
