"""A label space as a small table of HTML, as notebooks show it: a few labels whatever their number, in a second or two.

Names come from anywhere, so they are escaped; and cut, so that one of them cannot fill the page.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

import numpy as np

from labelemb.labelspace.most_alike import most_alike
from labelemb.labelspace.pictures import colour_range
from labelemb.support.wording import shorten

if TYPE_CHECKING:
    from labelemb.labelspace.space import LabelSpace

MOST_LABELS = 12
MOST_COMPARED_ENTRIES = 2 * 10**7
"""Entries of the rows that are looked at to choose the labels: a second of work at most."""
LONGEST_NAME = 24


def html_table(space: LabelSpace) -> str:
    """How a few labels resemble each other, the more the darker."""
    shown = most_alike(space, MOST_LABELS, MOST_COMPARED_ENTRIES)
    size = "" if space.rank is None else f", rank {space.rank}"
    title = f"<b>LabelSpace</b>: {space.num_labels} labels, {space.form.storage}{size}"
    if not shown:
        return f"<div>{title}</div>"
    matrix = np.asarray(space.matrix(shown))
    low, high = colour_range(matrix)
    names = [_name_cell(space, index) for index in shown]
    head = "".join(f"<th>{name}</th>" for name in names)
    body = "".join(
        f"<tr><th>{name}</th>{''.join(_cell(value, low, high) for value in row)}</tr>"
        for name, row in zip(names, matrix.tolist(), strict=True)
    )
    return f"<div>{title}{_note(space, shown)}<table><tr><td></td>{head}</tr>{body}</table></div>"


def _name_cell(space: LabelSpace, index: int) -> str:
    name = escape(shorten(space.names[index], LONGEST_NAME))
    return name if space.learned(index) else f"<i>{name}*</i>"


def _cell(value: float, low: float, high: float) -> str:
    # a transparent colour leaves the notebook's own text readable, light or dark
    shade = min(1.0, (value - low) / max(high - low, 1e-12))
    return f'<td style="background: rgba(68, 119, 170, {0.75 * shade:.2f})">{value:.3g}</td>'


def _note(space: LabelSpace, shown: list[int]) -> str:
    notes = []
    if len(shown) < space.num_labels:
        notes.append(f"shown are {len(shown)} that resemble others most")
    if not all(space.learned(index) for index in shown):
        notes.append("* never observed right: the row holds initial values")
    return f"; {'; '.join(notes)}" if notes else ""
