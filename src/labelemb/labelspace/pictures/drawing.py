"""Draws heatmaps and maps with matplotlib, and small HTML tables for notebooks.

Drawing goes into axes, so that notebooks, files and loggers share it. pyplot is used only where a notebook asks for a
picture of its own; figures for files and loggers leave its state alone.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from labelemb.labelspace.labels import Labels
from labelemb.labelspace.map import LabelMap, label_map
from labelemb.labelspace.neighbors import most_alike
from labelemb.labelspace.order import clustered_order
from labelemb.labelspace.pictures.fonts import NameFonts, name_fonts, quiet_fonts
from labelemb.labelspace.pictures.name_places import place_names
from labelemb.labelspace.record import LabelRecord
from labelemb.support.optional import import_optional
from labelemb.support.wording import shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_HEATMAP_LABELS = 150
"""More labels than this cannot be read in one picture."""
MOST_MAP_NAMES = 400
MAP_FONT_SIZE = 7
PICTURE_DPI = 150
"""Of pictures in files: letters are rounded to whole pixels, so that a name's width depends on it."""
SMALLEST_FONT = 3.5
SOME_SIMILARITY = 1e-12
"""Below, a share of a soft target is none: colours cannot tell such numbers apart."""
LONGEST_NAME = 40
MOST_TABLE_LABELS = 12
MOST_TABLE_ENTRIES = 2 * 10**7
"""Entries of the rows that are compared to choose the labels of a table: a second of work at most."""
LONGEST_TABLE_NAME = 24


def heatmap(record: LabelRecord, labels: Labels | None, axes: Axes | None) -> Axes:
    """`LabelSpace.heatmap`."""
    shown = heatmap_labels(record, labels) if labels is not None else clustered_labels(record)
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


def clustered_labels(record: LabelRecord) -> list[int]:
    """The labels of `heatmap_labels`, those that resemble each other side by side, as on the report page."""
    shown = heatmap_labels(record)
    return [shown[place] for place in clustered_order(np.asarray(record.matrix(shown)))]


def draw_heatmap(record: LabelRecord, shown: Sequence[int], axes: Axes) -> None:
    """The rows of these labels as colours.

    The colours span the similarities of different labels: a label's own share is much larger.
    """
    matrix = np.asarray(record.matrix(shown))
    low, high = colour_range(matrix)
    image = axes.imshow(matrix, cmap="viridis", vmin=low, vmax=high)
    box = axes.get_window_extent()
    # points of a row; the colour bar takes a part of the width
    room = min(0.8 * box.width, box.height) * 72 / axes.get_figure().dpi / max(1, len(shown))  # type: ignore[union-attr]
    size = max(SMALLEST_FONT, min(9.0, 0.85 * room))
    ticks = _spread(len(shown), min(MOST_HEATMAP_LABELS, max(1, int(len(shown) * room / size))))
    names = [shorten(record.names[shown[tick]], LONGEST_NAME) for tick in ticks]
    fonts = name_fonts(names)
    # a name is text, never mathematics
    style: dict[str, Any] = {"fontsize": size, "fontfamily": fonts.families, "parse_math": False}
    axes.set_xticks(ticks, names, rotation=90, **style)
    axes.set_yticks(ticks, names, **style)
    axes.set_xlabel("\n".join(["resembles", *([fonts.note] if fonts.note else [])]))
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
    """A point a label, with the names that find a place: inside the frame, and not on another name."""
    positions = layout.positions
    many = len(names) > MOST_MAP_NAMES
    axes.scatter(positions[:, 0], positions[:, 1], s=3 if many else 12, color="C0", alpha=0.7)
    axes.margins(0.05)
    axes.autoscale_view()  # now: names are placed by the final scale
    axes.set_xticks([])
    axes.set_yticks([])
    tried = _spread(len(names), MOST_MAP_NAMES)
    shown = [shorten(names[index], LONGEST_NAME) for index in tried]
    fonts = name_fonts(shown)
    corners = _name_corners(axes, positions[list(tried)], shown, fonts)
    for name, corner in zip(shown, corners, strict=True):
        if not np.isnan(corner[0]):
            axes.annotate(
                name,
                (0, 0),
                tuple(corner),
                xycoords="axes points",
                textcoords="axes points",
                va="bottom",
                fontsize=MAP_FONT_SIZE,
                fontfamily=fonts.families,
                parse_math=False,
            )
    left_out = len(names) - int((~np.isnan(corners[:, 0])).sum())
    words = [f"{len(names)} labels", f"two dimensions hold {100 * layout.share:.0f} % of the differences"]
    words += [f"{left_out} name{'s' * (left_out > 1)} left out for room"] * (left_out > 0)
    words += [fonts.note] * bool(fonts.note)
    axes.set_title("; ".join(words), size=10, wrap=True)


def _name_corners(axes: Axes, positions: np.ndarray, names: Sequence[str], fonts: NameFonts) -> np.ndarray:
    """Lower left corners of names in points from the lower left of the axes; NaN for those without a place."""
    box = axes.get_window_extent()
    to_points = 72 / axes.get_figure().dpi  # type: ignore[union-attr]
    points = (axes.transData.transform(positions) - (box.x0, box.y0)) * to_points
    sizes = [(width + 1, 1.25 * MAP_FONT_SIZE) for width in _name_widths(axes, names, fonts)]
    return place_names(points, sizes, (box.width * to_points, box.height * to_points))


def _name_widths(axes: Axes, names: Sequence[str], fonts: NameFonts) -> list[float]:
    """Widths of names in points: the largest of those on the screen, in a file of pixels and in one of curves."""
    agg = import_optional("matplotlib.backends.backend_agg", "map()", "plot").RendererAgg
    curves = import_optional("matplotlib.textpath", "map()", "plot").TextToPath()
    properties = import_optional("matplotlib.font_manager", "map()", "plot").FontProperties(
        family=fonts.families, size=MAP_FONT_SIZE
    )
    resolutions = {axes.get_figure().dpi, PICTURE_DPI}  # type: ignore[union-attr]
    measures = [(curves, 1.0), *((agg(1, 1, dpi), 72 / dpi) for dpi in resolutions)]
    widths = []
    with quiet_fonts():
        for name in names:
            found = [
                to_points * one.get_text_width_height_descent(name, properties, False)[0] for one, to_points in measures
            ]
            wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in name)  # curves skip fallback fonts
            widths.append(max(*found, MAP_FONT_SIZE * wide))
    return widths


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
