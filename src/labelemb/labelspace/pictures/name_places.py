"""Places the names of the points of a map without overlaps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

GAP = 4.0
"""Points between a point and its name."""


def place_names(points: np.ndarray, sizes: Sequence[tuple[float, float]], frame: tuple[float, float]) -> np.ndarray:
    """The lower left corner of each name, NaN for names that are left out.

    `points` (names, 2) and `sizes` (width, height of each name) are in the unit of `frame`, the width and height of the
    picture. A name goes to the first free place around its point; one that covers no point is preferred. Earlier names
    come first.
    """
    corners = np.full((len(points), 2), np.nan)
    boxes = np.empty((0, 4))
    for index, (point, size) in enumerate(zip(points, sizes, strict=True)):
        free = [box for box in _around(point, size) if _inside(box, frame) and not _hits(box, boxes)]
        if free:
            clear = [box for box in free if not _covers(box, points)]
            best = (clear or free)[0]
            corners[index] = best[:2]
            boxes = np.vstack([boxes, best])
    return corners


def _around(point: np.ndarray, size: tuple[float, float]) -> Iterator[np.ndarray]:
    """Boxes (left, bottom, right, top) around a point: right, left, above, below, then the corners."""
    (x, y), (width, height) = point, size
    for across, up in ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (1, -1), (-1, 1), (-1, -1)):
        left = x + (across - 1) * width / 2 + across * GAP
        bottom = y + (up - 1) * height / 2 + up * GAP
        yield np.array([left, bottom, left + width, bottom + height])


def _inside(box: np.ndarray, frame: tuple[float, float]) -> bool:
    return bool(box[0] >= 0 and box[1] >= 0 and box[2] <= frame[0] and box[3] <= frame[1])


def _hits(box: np.ndarray, others: np.ndarray) -> bool:
    apart = (box[0] >= others[:, 2]) | (box[2] <= others[:, 0]) | (box[1] >= others[:, 3]) | (box[3] <= others[:, 1])
    return not bool(apart.all())


def _covers(box: np.ndarray, points: np.ndarray) -> bool:
    x, y = points[:, 0], points[:, 1]
    return bool(((x > box[0]) & (x < box[2]) & (y > box[1]) & (y < box[3])).any())
