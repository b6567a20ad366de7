"""The map of labels as a picture."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from labelemb.lab.label_map import LabelMap
from labelemb.lab.plots import save_figure

MOST_NAMES = 200
"""More names than this cannot be read in one picture; the points are all drawn."""


def plot_map(label_map: LabelMap, names: Sequence[str], path: Path) -> None:
    """A point a label, with names as far as they fit."""
    positions = label_map.positions
    figure = Figure(figsize=(10, 8))
    axes = figure.subplots()
    axes.scatter(positions[:, 0], positions[:, 1], s=12 if len(names) <= MOST_NAMES else 3, color="C0", alpha=0.7)
    # spread over the list, so that no part of it goes without names
    for index in range(0, len(names), -(-len(names) // MOST_NAMES)):
        # a name is text, never mathematics
        name = names[index].replace("$", r"\$")
        axes.annotate(name, positions[index], (4, 0), textcoords="offset points", va="center", fontsize=7)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_title(
        f"{len(names)} labels; two dimensions hold {100 * label_map.share:.0f} % of the differences", size=10
    )
    save_figure(figure, path)
