"""Pictures: test error over the epochs, and how labels resemble each other."""

import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from labelemb import LabelSpace
from labelemb.lab.files import write_bytes
from labelemb.lab.main_score import ERROR, main_score_of

MOST_HEATMAP_LABELS = 150
"""More labels than this cannot be read in one picture."""
MOST_COMPARED_LABELS = 2000
"""Labels that are asked for their nearest neighbour to choose those in the picture."""


def save_figure(figure: Figure, path: Path) -> None:
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # a box in the picture says the same
        figure.savefig(buffer, format=path.suffix.removeprefix(".") or "png", dpi=150, bbox_inches="tight")
    write_bytes(path, buffer.getvalue())


def plot_curves(results: dict[str, list[dict[str, Any]]], path: Path) -> None:
    """The test score over the epochs: every run light, the mean of a method dark."""
    main = main_score_of(next(run for runs in results.values() for run in runs))
    score = f"test_{main.evaluated}"
    figure = Figure(figsize=(7, 4.5))
    axes = figure.subplots()
    for number, (method, runs) in enumerate(results.items()):
        color = f"C{number % 10}"
        for run in runs:
            epochs = [point["epoch"] for point in run["curve"]]
            axes.plot(epochs, [point[score] for point in run["curve"]], color=color, alpha=0.2, linewidth=0.8)
        curves = np.array([[point[score] for point in run["curve"]] for run in runs])
        axes.plot(epochs, curves.mean(0), color=color, linewidth=1.8, label=f"{method} ({len(runs)})")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("epoch")
    axes.set_ylabel("test error (%)" if main is ERROR else f"test {main.title}, greedy")
    if main is ERROR:
        axes.set_ylim(*_readable_range(results))
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    save_figure(figure, path)


def _readable_range(results: dict[str, list[dict[str, Any]]]) -> tuple[float, float]:
    """The first epochs may run off the picture, so that the later ones can be told apart."""
    errors = [point["test_error"] for runs in results.values() for run in runs for point in run["curve"]]
    later = [
        point["test_error"]
        for runs in results.values()
        for run in runs
        for point in run["curve"][len(run["curve"]) // 5 :]
    ]
    low, high = min(errors), max(later)
    margin = 0.05 * (high - low) or 0.5
    return max(0.0, low - margin), high + margin


def plot_heatmap(space: LabelSpace, path: Path, labels: list[str] | None = None, title: str = "") -> list[str]:
    """The rows of the label space as colours; gives the labels shown.

    Where there are too many labels to read, those with the strongest resemblances are shown. The colours span the
    resemblances of different labels: a label's own share would outshine them all.
    """
    shown = labels if labels is not None else most_alike(space, MOST_HEATMAP_LABELS)
    matrix = np.asarray(space.matrix(shown))
    between = matrix[~np.eye(len(shown), dtype=bool)]
    low, high = (between.min(), between.max()) if len(between) else (0.0, 1.0)
    side = min(16.0, max(4.5, 0.16 * len(shown) + 2))
    figure = Figure(figsize=(side * 1.15, side))
    axes = figure.subplots()
    image = axes.imshow(matrix, cmap="viridis", vmin=float(low), vmax=float(high))
    size = max(3.0, min(9.0, 500 / max(1, len(shown))))
    axes.set_xticks(range(len(shown)), shown, rotation=90, fontsize=size)
    axes.set_yticks(range(len(shown)), shown, fontsize=size)
    axes.set_xlabel("resembles")
    axes.set_ylabel("label")
    axes.set_title(title)
    figure.colorbar(image, ax=axes, shrink=0.8, extend="max", label="similarity")
    save_figure(figure, path)
    return shown


def most_alike(space: LabelSpace, most: int) -> list[str]:
    """All names but specials, in the order of the space; of too many, those with the strongest nearest neighbour."""
    names = list(space.names)
    numbers = [number for number, name in enumerate(names) if name not in space.specials]
    if len(numbers) <= most:
        return [names[number] for number in numbers]
    if len(names) > MOST_COMPARED_LABELS and space.counts is not None:
        # in a vocabulary the rare words have learned little, and asking all of them would take minutes
        numbers = sorted(numbers, key=(-space.counts).tolist().__getitem__)[:MOST_COMPARED_LABELS]
    strongest = []
    for number in numbers:
        neighbors = space.nearest(number, k=1)
        strongest.append((neighbors[0].similarity if len(neighbors) else 0.0, number))
    chosen = sorted(number for _, number in sorted(strongest, reverse=True)[:most])
    return [names[number] for number in chosen]
