"""Recommends a method after a search, from the paired tests over fresh seeds; label smoothing by default."""

from dataclasses import dataclass

from labelemb.lab.comparison.summary import PairedDifference, Summary
from labelemb.lab.comparison.tables import p_value
from labelemb.lab.search.space import BASELINE, SMOOTHING
from labelemb.lab.tasks.task import MainScore

CLEAR = 0.05
"""The p-value below which a difference counts as clear."""


@dataclass(frozen=True)
class Advice:
    """The method to take, and why, in one or two sentences."""

    method: str
    reason: str


def advise(chosen: str, summary: Summary | None, main: MainScore, simpler: str | None = None) -> Advice:
    """The method to take: what the search chose only if fresh seeds say that it is better.

    Without a clear difference it is label smoothing, or plain where that is clearly ahead of label smoothing.
    `simpler` is the best method of the search that learns nothing, if it was tested too. It is taken where it is
    clearly ahead of label smoothing (or plain), and the choice is not clearly ahead of it.
    """
    test = None if summary is None else _test(summary, SMOOTHING, BASELINE)
    others = {chosen, simpler or chosen} - {BASELINE, SMOOTHING}
    if summary is None or test is None or any(_test(summary, other) is None for other in others):
        return Advice(
            SMOOTHING,
            f"Not confirmed: {chosen} has the best dev score of the search, which is optimistic, and not every "
            f"method was trained with two fresh seeds. Take {SMOOTHING}, or allow more time.",
        )
    plain_leads = _is_ahead(test, main, sign=-1)
    rival = BASELINE if plain_leads else SMOOTHING
    if chosen == rival:
        other = SMOOTHING if plain_leads else BASELINE
        compared = _words(test, main, other, sign=-1 if plain_leads else 1)
        return Advice(chosen, f"Take {chosen}, which the search chose: it is {compared}.")
    if simpler is not None and (advice := _prefer_simpler(chosen, simpler, rival, summary, main)) is not None:
        return advice
    against = _test(summary, chosen, rival)
    assert against is not None
    words = _words(against, main, rival)
    if _is_ahead(against, main):
        return Advice(chosen, f"Take {chosen}: it is {words}.{_beside(chosen, simpler, summary, main)}")
    if _is_ahead(against, main, sign=-1):
        return Advice(rival, f"Take {rival}: {chosen} is {words}.")
    taken = "label smoothing" if rival == SMOOTHING else rival
    return Advice(rival, f"No clear difference: take {taken}. {chosen} is {words}.")


def _prefer_simpler(chosen: str, simpler: str, rival: str, summary: Summary, main: MainScore) -> Advice | None:
    """To take the simpler method, if it is clearly ahead of the rival and the choice not clearly ahead of it."""
    test, lead = _test(summary, simpler, rival), _test(summary, chosen, simpler)
    if test is None or lead is None or _is_ahead(lead, main) or not _is_ahead(test, main):
        return None
    verdict = "clearly worse" if _is_ahead(lead, main, sign=-1) else "not clearly better"
    return Advice(
        simpler,
        f"Take {simpler}, the simpler method: it is {_words(test, main, rival)}. What the search chose is {verdict}: "
        f"{chosen} is {_words(lead, main, simpler)}.",
    )


def _beside(chosen: str, simpler: str | None, summary: Summary, main: MainScore) -> str:
    """A sentence that compares the choice with the simpler method; empty if none was tested."""
    lead = None if simpler is None else _test(summary, chosen, simpler)
    if simpler is None or lead is None:
        return ""
    words = f"{chosen} is {_words(lead, main, simpler)}"
    return f" {simpler} was the best method of the search that learns nothing: {words}."


def _test(summary: Summary, method: str, other: str = SMOOTHING) -> PairedDifference | None:
    values = summary.methods.get(method)
    return None if values is None else values.against.get(other)


def _is_ahead(test: PairedDifference, main: MainScore, sign: int = 1) -> bool:
    """Whether the first method of a test is clearly better; with sign -1, the second."""
    gain = sign * test.mean * (1 if main.higher_is_better else -1)
    return test.p is not None and test.p < CLEAR and gain > 0


def _words(test: PairedDifference, main: MainScore, other: str, sign: int = 1) -> str:
    """The difference of two methods: by how much the first is better or worse than the second."""
    gain = sign * test.mean * (1 if main.higher_is_better else -1)
    is_clear = _is_ahead(test, main) or _is_ahead(test, main, sign=-1)
    form = _exact if is_clear else _rounded
    interval = ""
    if test.low is not None and test.high is not None and test.p is not None:
        low, high = map(form, sorted((sign * test.low, sign * test.high)))
        interval = f" (difference {form(sign * test.mean)}, 95 % interval {low} to {high}, p {p_value(test.p)})"
    compared = f"{form(abs(gain))[1:]} points of {main.title} " + ("better than" if gain > 0 else "worse than")
    if not is_clear and not round(gain, 2):
        compared = "level with"
    return f"{compared} {other} over {test.n} fresh seeds{interval}"


def _rounded(value: float) -> str:
    return f"{value:+.2f}"


def _exact(value: float) -> str:
    """A number of a clear difference: never rounded to zero."""
    return f"{value:+.2f}" if round(value, 2) else f"{value:+.1g}"
