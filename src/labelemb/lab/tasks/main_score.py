"""The one score of a task that selects the reported evaluation and stands first in tables."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class MainScore:
    """`evaluated` is its name in the evaluations of a training, `reported` in a result, both after dev_ or test_."""

    title: str
    evaluated: str
    reported: str
    higher_is_better: bool
    unit: str = ""

    def at_least_as_good(self, value: float, other: float) -> bool:
        return value >= other if self.higher_is_better else value <= other

    @property
    def axis(self) -> str:
        """What stands beside a scale of reported test scores."""
        return f"test {self.title}" + (f" ({self.unit.strip()})" if self.unit else "")

    @property
    def curve_axis(self) -> str:
        """The same of the scores during a training."""
        return self.axis if self.evaluated == self.reported else f"{self.axis}, greedy"

    def show(self, value: float) -> str:
        return f"{self.title} {value:.2f}{self.unit}"


ERROR = MainScore("error", "error", "error", higher_is_better=False, unit=" %")
BLEU = MainScore("BLEU", "bleu_greedy", "bleu", higher_is_better=True)
ROUGE = MainScore("ROUGE-1", "rouge1_greedy", "rouge1", higher_is_better=True)
MAIN_SCORES = {score.reported: score for score in (ERROR, BLEU, ROUGE)}


def main_score(task: str, metric: str) -> MainScore:
    """Of a recipe: its task, and for text its metric."""
    return ERROR if task == "classification" else MAIN_SCORES[metric]


def main_score_of(result: Mapping[str, Any]) -> MainScore:
    """Of a run's result."""
    return MAIN_SCORES[result.get("main_score", ERROR.reported)]


def describe_scores(result: Mapping[str, Any]) -> str:
    """A run's result in a line: the reported test score, and the dev score that chose it."""
    main = main_score_of(result)
    beam = "" if main is ERROR else f" (beam {result['beam']})"
    parts = [f"test {main.show(result[f'test_{main.reported}'])}{beam}"]
    dev = result.get(f"dev_{main.evaluated}")
    if dev is not None:
        parts.append(f"dev {main.show(dev)}{'' if main is ERROR else ' (greedy)'}")
    return ", ".join(parts)
