"""A label space drawn by matplotlib: how the labels resemble each other as colours, and all of them in the plane.

Drawing goes into axes, so that notebooks, files and loggers share it. pyplot is used only where a notebook asks for a
picture of its own; figures for files and loggers leave its state alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from labelemb.labelspace.map import LabelMap, label_map
from labelemb.labelspace.most_alike import most_alike
from labelemb.support.optional import import_optional
from labelemb.support.wording import shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from labelemb.labelspace.labels import Labels
    from labelemb.labelspace.space import LabelSpace

MOST_HEATMAP_LABELS = 150
"""More labels than this cannot be read in one picture."""
MOST_MAP_NAMES = 200
SOME_SIMILARITY = 1e-12
"""Below, a share of a soft target is none: colours cannot tell such numbers apart."""
LONGEST_NAME = 40


def heatmap(space: LabelSpace, labels: Labels | None, axes: Axes | None) -> Axes:
    """`LabelSpace.heatmap`."""
    shown = heatmap_labels(space, labels)
    if axes is None:
        axes = _pyplot("heatmap()").subplots(figsize=_heatmap_size(len(shown)))[1]
    draw_heatmap(space, shown, axes)
    return axes


def heatmap_figure(space: LabelSpace, shown: Sequence[int], title: str = "") -> Figure:
    """A heatmap as a figure of its own, for a file or a logger."""
    figure: Figure = import_optional("matplotlib.figure", "a heatmap", "plot").Figure(_heatmap_size(len(shown)))
    axes = figure.subplots()
    draw_heatmap(space, shown, axes)
    axes.set_title(title)
    return figure


def heatmap_labels(space: LabelSpace, labels: Labels | None = None) -> list[int]:
    """The labels that a heatmap shows; of too many to read, those with the strongest resemblances."""
    return most_alike(space, MOST_HEATMAP_LABELS) if labels is None else space.indices(labels).tolist()


def draw_heatmap(space: LabelSpace, shown: Sequence[int], axes: Axes) -> None:
    """The rows of these labels as colours.

    The colours span the resemblances of different labels: a label's own share would outshine them all.
    """
    matrix = np.asarray(space.matrix(shown))
    low, high = colour_range(matrix)
    image = axes.imshow(matrix, cmap="viridis", vmin=low, vmax=high)
    places = _spread(len(shown), MOST_HEATMAP_LABELS)
    names = [shorten(space.names[shown[place]], LONGEST_NAME) for place in places]
    size = max(3.0, min(9.0, 500 / max(1, len(names))))
    # a name is text, never mathematics
    axes.set_xticks(places, names, rotation=90, fontsize=size, parse_math=False)
    axes.set_yticks(places, names, fontsize=size, parse_math=False)
    axes.set_xlabel("resembles")
    axes.set_ylabel("label")
    axes.get_figure().colorbar(image, ax=axes, shrink=0.8, extend="max", label="similarity")  # type: ignore[union-attr]


def colour_range(matrix: np.ndarray) -> tuple[float, float]:
    """The least and the largest similarity of two different labels; all of them where none resemble each other."""
    between = matrix[~np.eye(len(matrix), dtype=bool)]
    if not len(between) or between.max() < SOME_SIMILARITY:
        return 0.0, 1.0
    return float(between.min()), float(between.max())


def draw_space_map(space: LabelSpace, axes: Axes | None) -> Axes:
    """`LabelSpace.map`."""
    if axes is None:
        axes = _pyplot("map()").subplots(figsize=(10, 8))[1]
    draw_map(label_map(space), space.names, axes)
    return axes


def draw_map(found: LabelMap, names: Sequence[str], axes: Axes) -> None:
    """A point a label, with names as far as they fit."""
    positions = found.positions
    axes.scatter(positions[:, 0], positions[:, 1], s=12 if len(names) <= MOST_MAP_NAMES else 3, color="C0", alpha=0.7)
    for index in _spread(len(names), MOST_MAP_NAMES):
        axes.annotate(
            shorten(names[index], LONGEST_NAME),
            positions[index],
            (4, 0),
            textcoords="offset points",
            va="center",
            fontsize=7,
            parse_math=False,
        )
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_title(f"{len(names)} labels; two dimensions hold {100 * found.share:.0f} % of the differences", size=10)


def _spread(count: int, most: int) -> range:
    """At most `most` places spread over all of them, so that no part of a list goes without names."""
    return range(0, count, max(1, -(-count // most)))


def _heatmap_size(labels: int) -> tuple[float, float]:
    side = min(16.0, max(4.5, 0.16 * labels + 2))
    return side * 1.15, side


def _pyplot(method: str) -> Any:
    return import_optional("matplotlib.pyplot", method, "plot")
