"""Plots in files: test scores over the epochs, heatmaps and maps of labels."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from labelemb import LabelSpace
from labelemb.lab.tasks import task_of_result
from labelemb.lab.tasks.records import RunResult
from labelemb.labelspace.labels import Labels
from labelemb.labelspace.map import LabelMap
from labelemb.labelspace.pictures import PICTURE_DPI, clustered_labels, draw_map, heatmap_figure, heatmap_labels
from labelemb.labelspace.pictures.fonts import quiet_fonts
from labelemb.support.files import write_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LINES = ("-", "--", ":", "-.")
"""Beyond the colours: each begins anew with another kind of line."""
ENTRIES_INSIDE = 6
"""A longer legend stands beside the curves and not across them."""
COLORS = ("#5c6773", "#0072b2", "#d55e00", "#00875f", "#b04f8b", "#a87500", "#2f8fc4", "#000000")
"""Okabe and Ito's, which colour-blind readers tell apart; the baseline, which comes first, is grey."""


def save_figure(figure: "Figure", path: Path) -> None:
    """Write a figure in the format of the file's ending."""
    buffer = io.BytesIO()
    with quiet_fonts():
        figure.savefig(buffer, format=path.suffix.removeprefix(".") or "png", dpi=PICTURE_DPI, bbox_inches="tight")
    write_bytes(path, buffer.getvalue())


def plot_curves(results: dict[str, list[RunResult]], path: Path) -> None:
    """The test score over the epochs: every run light, the mean of a method dark."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    main = task_of_result(next(run for runs in results.values() for run in runs)).main
    score = main.curve_field
    figure = Figure(figsize=(7, 4.5))
    axes = figure.subplots()
    for number, (method, runs) in enumerate(results.items()):
        color, line = COLORS[number % len(COLORS)], LINES[number // len(COLORS) % len(LINES)]
        marker = "o" if len(runs[0].curve) == 1 else None  # a line through one point is not visible
        epochs = [point.epoch for point in runs[0].curve]
        curves = np.array([[getattr(point, score) for point in run.curve] for run in runs])
        for curve in curves:
            axes.plot(epochs, curve, color=color, linestyle=line, alpha=0.2, linewidth=0.8, marker=marker)
        title = f"{method} ({len(runs)})"
        axes.plot(epochs, curves.mean(0), color=color, linestyle=line, linewidth=1.8, marker=marker, label=title)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("epoch")
    axes.set_ylabel(main.curve_axis)
    if not main.higher_is_better:
        axes.set_ylim(*_readable_range(results))
    axes.grid(alpha=0.3)
    if len(results) > ENTRIES_INSIDE:
        axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    else:
        axes.legend(frameon=False)
    save_figure(figure, path)


def _readable_range(results: dict[str, list[RunResult]]) -> tuple[float, float]:
    """Limits of the errors that leave out the highest of the first epochs, so that later ones can be told apart."""
    curves = [[point.test_error for point in run.curve] for runs in results.values() for run in runs]
    low, high = min(map(min, curves)), max(max(curve[len(curve) // 5 :]) for curve in curves)
    margin = 0.05 * (high - low) or 0.5
    return max(0.0, low - margin), high + margin


def plot_heatmap(space: LabelSpace, path: Path, labels: Labels | None = None, title: str = "") -> list[str]:
    """The rows of the label space as colours; gives the labels shown."""
    shown = clustered_labels(space) if labels is None else heatmap_labels(space, labels)
    save_figure(heatmap_figure(space, shown, title), path)
    return [space.names[index] for index in shown]


def plot_map(label_map: LabelMap, names: Sequence[str], path: Path) -> None:
    """Labels as points in the plane, with names as far as they fit."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 8))
    draw_map(label_map, names, figure.subplots())
    save_figure(figure, path)
