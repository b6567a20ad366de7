"""The cards at the top of the page: the score of the baseline and of the best other methods."""

from labelemb.lab.comparison.summary import BASELINE, FEWEST_SEEDS, MethodSummary, Summary
from labelemb.lab.tasks.task import MainScore

MOST_CARDS = 4


def headline(summary: Summary) -> list[dict[str, str]]:
    """Method, score, and in words how it compares to the baseline; in the order of the tables."""
    main, baseline = summary.task.main, summary.methods.get(BASELINE)
    return [
        {
            "method": method,
            "value": f"{values.scores[main.test_field].mean or 0.0:.2f}{main.unit}",
            "words": _runs(values, main) if baseline in (None, values) else difference_words(values, baseline, main),
        }
        for method, values in list(summary.methods.items())[:MOST_CARDS]
    ]


def _runs(values: MethodSummary, main: MainScore) -> str:
    return f"test {main.title}, {_count(values.scores[main.test_field].n, 'run')}"


def difference_words(values: MethodSummary, baseline: MethodSummary, main: MainScore) -> str:
    """The difference to the baseline with its interval, and whether it is clear."""
    against = values.against_plain
    if against is None:
        theirs, ours = (
            dict(zip(side.seeds, side.scores[main.test_field].values, strict=True)) for side in (baseline, values)
        )
        pairs = [(score, theirs[seed]) for seed, score in ours.items() if seed in theirs]
        if not pairs:
            return f"no seed in common with {BASELINE}"
        return _unclear(f"{(pairs[0][0] or 0.0) - (pairs[0][1] or 0.0):+.2f}", 1)
    interval = "" if against.low is None else f" (95 % interval {against.low:+.2f} to {against.high:+.2f})"
    number = f"{against.mean:+.2f}{interval}"
    if not against.is_clear:
        return _unclear(number, against.n)
    reduction = values.error_reduction
    if main.reported != "error" or reduction is None:
        return f"{number} against {BASELINE}, {_count(against.n, 'seed')}"
    more = f"{abs(reduction):.1f} % {'fewer' if reduction >= 0 else 'more'} errors than {BASELINE}"
    return f"{more}: {number}, {_count(against.n, 'seed')}"


def _unclear(number: str, seeds: int) -> str:
    few = f", too few: at least {FEWEST_SEEDS}" if seeds < FEWEST_SEEDS else ""
    return f"no clear difference to {BASELINE}: {number}, {_count(seeds, 'seed')}{few}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
