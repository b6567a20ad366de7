"""The table and the plot of the trials of a search."""

from collections.abc import Sequence
from pathlib import Path

from labelemb.lab.comparison.curves import COLORS, save_figure
from labelemb.lab.comparison.tables import Row
from labelemb.lab.search.study import Trial
from labelemb.lab.tasks.task import MainScore

STATES = {"complete": "trained", "pruned": "stopped early", "failed": "failed", "running": "not finished"}
MARKERS = {"complete": "o", "pruned": "x"}


def ranked(trials: Sequence[Trial], main: MainScore) -> list[Trial]:
    """Trials from the best to the worst: complete ones by their score, then those stopped early, then the rest."""
    sign = -1 if main.higher_is_better else 1
    order = list(STATES)
    return sorted(trials, key=lambda trial: (order.index(trial.state), sign * (trial.score or 0.0), trial.number))


def trial_table(trials: Sequence[Trial], main: MainScore) -> tuple[Row, list[Row]]:
    """Header and rows of the trials, the best first."""
    rows = [
        [trial.method, _score(trial), str(trial.epochs), STATES[trial.state], str(trial.number)]
        for trial in ranked(trials, main)
    ]
    return ["method", f"best dev {main.title}", "epochs", "state", "trial"], rows


def plot_trials(trials: Sequence[Trial], main: MainScore, path: Path) -> None:
    """The best dev score of each trial in the order of the search, and the best of all so far."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(7, 4.5))
    axes = figure.subplots()
    kinds = list(dict.fromkeys(trial.method.partition("@")[0] for trial in trials))
    for kind, color in zip(kinds, (COLORS * len(kinds))[: len(kinds)], strict=True):
        for state, marker in MARKERS.items():
            shown = [
                trial
                for trial in trials
                if trial.method.partition("@")[0] == kind and trial.state == state and trial.score is not None
            ]
            label = f"{kind}, stopped early" if state == "pruned" else kind
            if shown:
                numbers, scores = zip(*((trial.number, trial.score or 0.0) for trial in shown), strict=True)
                axes.scatter(numbers, scores, color=color, marker=marker, label=label, zorder=3)
    complete = [trial for trial in trials if trial.state == "complete" and trial.score is not None]
    best = [_best([one.score or 0.0 for one in complete[: index + 1]], main) for index in range(len(complete))]
    axes.step(
        [trial.number for trial in complete], best, where="post", color="#5c6773", linewidth=1, label="best so far"
    )
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("trial")
    axes.set_ylabel(f"best dev {main.title}" + (f" ({main.unit.strip()})" if main.unit else ""))
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    save_figure(figure, path)


def _score(trial: Trial) -> str:
    return "-" if trial.score is None else f"{trial.score:.2f}"


def _best(scores: Sequence[float], main: MainScore) -> float:
    return max(scores) if main.higher_is_better else min(scores)
