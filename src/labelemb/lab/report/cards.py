"""The cards at the top of the page: the baseline's score, and those of the best other methods."""

from labelemb.lab.comparison.summary import BASELINE, MethodSummary, Summary
from labelemb.lab.tasks.task import MainScore

MOST_OTHERS = 3


def headline(summary: Summary) -> list[dict[str, str]]:
    """Method, score, and in words how it compares to the baseline."""
    main, methods = summary.task.main, summary.methods

    def mean(method: str) -> float:
        return methods[method].scores[main.test_field].mean or 0.0

    others = sorted((method for method in methods if method != BASELINE), key=mean, reverse=main.higher_is_better)
    shown = [method for method in methods if method == BASELINE] + others[:MOST_OTHERS]
    baseline = mean(BASELINE) if BASELINE in methods else None
    return [
        {
            "method": method,
            "value": f"{mean(method):.2f}{main.unit}",
            "words": _words(methods[method], main, None if method == BASELINE else baseline),
        }
        for method in shown
    ]


def _words(values: MethodSummary, main: MainScore, baseline: float | None) -> str:
    score = values.scores[main.test_field]
    if baseline is None:
        return f"test {main.title}, {score.n} run{'' if score.n == 1 else 's'}"
    reduction = values.error_reduction
    if main.reported == "error" and reduction is not None:
        return f"{abs(reduction):.1f} % {'fewer' if reduction >= 0 else 'more'} errors than {BASELINE}"
    return f"{(score.mean or 0.0) - baseline:+.2f}{main.unit} against {BASELINE}"
