"""Pictures of a label space: a heatmap and a map drawn by matplotlib, and a small table of HTML for notebooks.

Drawing goes into axes, so that notebooks, files and loggers share it. pyplot is used only where a notebook asks for a
picture of its own; figures for files and loggers leave its state alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from labelemb.labelspace.labels import Labels
from labelemb.labelspace.map import LabelMap, label_map
from labelemb.labelspace.neighbors import most_alike
from labelemb.labelspace.record import LabelRecord
from labelemb.support.optional import import_optional
from labelemb.support.wording import shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_HEATMAP_LABELS = 150
"""More labels than this cannot be read in one picture."""
MOST_MAP_NAMES = 200
SOME_SIMILARITY = 1e-12
"""Below, a share of a soft target is none: colours cannot tell such numbers apart."""
LONGEST_NAME = 40
MOST_TABLE_LABELS = 12
MOST_TABLE_ENTRIES = 2 * 10**7
"""Entries of the rows that are compared to choose the labels of a table: a second of work at most."""
LONGEST_TABLE_NAME = 24


def heatmap(record: LabelRecord, labels: Labels | None, axes: Axes | None) -> Axes:
    """`LabelSpace.heatmap`."""
    shown = heatmap_labels(record, labels)
    if axes is None:
        axes = _pyplot("heatmap()").subplots(figsize=_heatmap_size(len(shown)))[1]
    draw_heatmap(record, shown, axes)
    return axes


def heatmap_figure(record: LabelRecord, shown: Sequence[int], title: str = "") -> Figure:
    """A heatmap as a figure of its own, for a file or a logger."""
    figure: Figure = import_optional("matplotlib.figure", "a heatmap", "plot").Figure(_heatmap_size(len(shown)))
    axes = figure.subplots()
    draw_heatmap(record, shown, axes)
    axes.set_title(title)
    return figure


def heatmap_labels(record: LabelRecord, labels: Labels | None = None) -> list[int]:
    """The labels that a heatmap shows; of too many to read, those with the strongest resemblances."""
    return most_alike(record, MOST_HEATMAP_LABELS) if labels is None else record.indices(labels).tolist()


def draw_heatmap(record: LabelRecord, shown: Sequence[int], axes: Axes) -> None:
    """The rows of these labels as colours.

    The colours span the similarities of different labels: a label's own share is much larger.
    """
    matrix = np.asarray(record.matrix(shown))
    low, high = colour_range(matrix)
    image = axes.imshow(matrix, cmap="viridis", vmin=low, vmax=high)
    ticks = _spread(len(shown), MOST_HEATMAP_LABELS)
    names = [shorten(record.names[shown[tick]], LONGEST_NAME) for tick in ticks]
    size = max(3.0, min(9.0, 500 / max(1, len(names))))
    # a name is text, never mathematics
    axes.set_xticks(ticks, names, rotation=90, fontsize=size, parse_math=False)
    axes.set_yticks(ticks, names, fontsize=size, parse_math=False)
    axes.set_xlabel("resembles")
    axes.set_ylabel("label")
    axes.get_figure().colorbar(image, ax=axes, shrink=0.8, extend="max", label="similarity")  # type: ignore[union-attr]


def colour_range(matrix: np.ndarray) -> tuple[float, float]:
    """The least and the largest similarity of two different labels; all of them where none resemble each other."""
    between = matrix[~np.eye(len(matrix), dtype=bool)]
    if not len(between) or between.max() < SOME_SIMILARITY:
        return 0.0, 1.0
    return float(between.min()), float(between.max())


def draw_space_map(record: LabelRecord, axes: Axes | None) -> Axes:
    """`LabelSpace.map`."""
    if axes is None:
        axes = _pyplot("map()").subplots(figsize=(10, 8))[1]
    draw_map(label_map(record), record.names, axes)
    return axes


def draw_map(layout: LabelMap, names: Sequence[str], axes: Axes) -> None:
    """A point a label, with names as far as they fit."""
    positions = layout.positions
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
    axes.set_title(f"{len(names)} labels; two dimensions hold {100 * layout.share:.0f} % of the differences", size=10)


def html_table(record: LabelRecord) -> str:
    """How a few labels resemble each other, as HTML: the more, the darker. Names are escaped and cut."""
    shown = most_alike(record, MOST_TABLE_LABELS, MOST_TABLE_ENTRIES)
    size = "" if record.rank is None else f", rank {record.rank}"
    title = f"<b>LabelSpace</b>: {record.num_labels} labels, {record.form.storage}{size}"
    if not shown:
        return f"<div>{title}</div>"
    matrix = np.asarray(record.matrix(shown))
    low, high = colour_range(matrix)
    names = [_name_cell(record, index) for index in shown]
    head = "".join(f"<th>{name}</th>" for name in names)
    body = "".join(
        f"<tr><th>{name}</th>{''.join(_cell(value, low, high) for value in row)}</tr>"
        for name, row in zip(names, matrix.tolist(), strict=True)
    )
    return f"<div>{title}{_table_note(record, shown)}<table><tr><td></td>{head}</tr>{body}</table></div>"


def _name_cell(record: LabelRecord, index: int) -> str:
    name = escape(shorten(record.names[index], LONGEST_TABLE_NAME))
    return name if record.learned(index) else f"<i>{name}*</i>"


def _cell(value: float, low: float, high: float) -> str:
    # a transparent colour leaves the notebook's own text readable, light or dark
    shade = min(1.0, (value - low) / max(high - low, 1e-12))
    return f'<td style="background: rgba(68, 119, 170, {0.75 * shade:.2f})">{value:.3g}</td>'


def _table_note(record: LabelRecord, shown: list[int]) -> str:
    notes = []
    if len(shown) < record.num_labels:
        notes.append(f"shown are {len(shown)} that resemble others most")
    if not all(record.learned(index) for index in shown):
        notes.append("* never observed right: the row holds initial values")
    return f"; {'; '.join(notes)}" if notes else ""


def _spread(count: int, most: int) -> range:
    """At most `most` indices spread over all of them, so that no part of a list goes without names."""
    return range(0, count, max(1, -(-count // most)))


def _heatmap_size(labels: int) -> tuple[float, float]:
    side = min(16.0, max(4.5, 0.16 * labels + 2))
    return side * 1.15, side


def _pyplot(method: str) -> Any:
    return import_optional("matplotlib.pyplot", method, "plot")
