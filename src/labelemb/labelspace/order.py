"""The clustered order of labels, which puts similar labels next to each other."""

import numpy as np

from labelemb.support.optional import import_optional

SMALLEST = 1e-12


def clustered_order(matrix: np.ndarray) -> list[int]:
    """An order of the rows of a similarity matrix: average linkage, with like rows side by side."""
    if len(matrix) < 3:
        return list(range(len(matrix)))
    hierarchy = import_optional("scipy.cluster.hierarchy", "a clustered heatmap", "plot")
    squareform = import_optional("scipy.spatial.distance", "a clustered heatmap", "plot").squareform
    logs = np.log(np.maximum(np.asarray(matrix, dtype=np.float64), SMALLEST))
    likeness = (logs + logs.T) / 2
    distance = likeness.max() - likeness
    np.fill_diagonal(distance, 0)
    condensed = squareform(distance, checks=False)
    linked = hierarchy.linkage(condensed, "average")
    order: list[int] = hierarchy.leaves_list(hierarchy.optimal_leaf_ordering(linked, condensed)).tolist()
    return order if order[0] < order[-1] else order[::-1]
