"""Pictures of label spaces: heatmaps, maps, and a table for notebooks."""

from labelemb.labelspace.pictures.drawing import (
    PICTURE_DPI,
    clustered_labels,
    draw_heatmap,
    draw_map,
    draw_space_map,
    heatmap,
    heatmap_figure,
    heatmap_labels,
    html_table,
)

__all__ = [
    "PICTURE_DPI",
    "clustered_labels",
    "draw_heatmap",
    "draw_map",
    "draw_space_map",
    "heatmap",
    "heatmap_figure",
    "heatmap_labels",
    "html_table",
]
