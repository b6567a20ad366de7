"""The numbers that say it in one look: the baseline's, and those of the best other methods."""

from typing import Any

from labelemb.lab.comparison.summary import BASELINE
from labelemb.lab.tasks.main_score import ERROR, MainScore

MOST_OTHERS = 3


def headline(summary: dict[str, Any], main: MainScore) -> list[dict[str, str]]:
    """Method, score, and in words how it stands to the baseline."""
    field = f"test_{main.reported}"
    methods = summary["methods"]
    others = [method for method in methods if method != BASELINE]
    others.sort(key=lambda method: methods[method][field]["mean"], reverse=main.higher_is_better)
    shown = [method for method in methods if method == BASELINE] + others[:MOST_OTHERS]
    baseline = methods[BASELINE][field]["mean"] if BASELINE in methods else None
    return [
        {
            "method": method,
            "value": f"{methods[method][field]['mean']:.2f}{main.unit}",
            "words": _words(methods[method], main, None if method == BASELINE else baseline),
        }
        for method in shown
    ]


def _words(values: dict[str, Any], main: MainScore, baseline: float | None) -> str:
    score = values[f"test_{main.reported}"]
    if baseline is None:
        return f"test {main.title}, {score['n']} run{'' if score['n'] == 1 else 's'}"
    if main is ERROR and values.get("error_reduction") is not None:
        reduction = values["error_reduction"]
        return f"{abs(reduction):.1f} % {'fewer' if reduction >= 0 else 'more'} errors than {BASELINE}"
    return f"{score['mean'] - baseline:+.2f}{main.unit} against {BASELINE}"
