"""Pictures: which labels are shown, and that they are pictures."""

from pathlib import Path

import pytest
import torch
from matplotlib.figure import Figure
from PIL import Image, ImageColor

from labelemb import LabelSpace
from labelemb.lab.comparison import curves as plots
from labelemb.lab.comparison.curves import COLORS, plot_curves, plot_heatmap
from labelemb.lab.tasks.records import RunResult
from labelemb.labelspace.pictures import drawing
from tests.helpers.quick_runs import made_result


@pytest.fixture
def space() -> LabelSpace:
    """Six labels of which c and e, and b and f, resemble each other."""
    logits = 3 * torch.eye(6)
    for one, other in ((2, 4), (1, 5)):
        logits[one, other] = logits[other, one] = 2.0
    return LabelSpace.from_matrix(logits, list("abcdef"), kind="logit")


def test_few_labels_are_all_shown_those_that_are_alike_together(space: LabelSpace, tmp_path: Path) -> None:
    shown = plot_heatmap(space, tmp_path / "all.png")
    assert sorted(shown) == list("abcdef")
    assert abs(shown.index("c") - shown.index("e")) == abs(shown.index("b") - shown.index("f")) == 1
    Image.open(tmp_path / "all.png").verify()


def test_of_too_many_labels_those_that_resemble_others_are_shown(
    space: LabelSpace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drawing, "MOST_HEATMAP_LABELS", 4)
    assert sorted(plot_heatmap(space, tmp_path / "some.png")) == ["b", "c", "e", "f"]


def test_labels_can_be_chosen(space: LabelSpace, tmp_path: Path) -> None:
    assert plot_heatmap(space, tmp_path / "chosen.png", ["f", "a"]) == ["f", "a"]


@pytest.mark.parametrize("epochs", [1, 2, 12])
def test_curves_of_any_length_are_drawn(tmp_path: Path, epochs: int) -> None:
    def run(level: float) -> RunResult:
        return made_result(curve=[{"epoch": epoch + 1, "test_error": level / (epoch + 1)} for epoch in range(epochs)])

    plot_curves({"plain": [run(2.0), run(3.0)], "label-embedding": [run(2.0)]}, tmp_path / "curves.png")
    pixels = {color for _, color in Image.open(tmp_path / "curves.png").convert("RGB").getcolors(2**24) or ()}
    assert {ImageColor.getrgb(color) for color in COLORS[:2]} <= pixels
    assert ImageColor.getrgb(COLORS[2]) not in pixels


def test_more_methods_than_colours_differ_by_the_kind_of_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Figure] = []
    monkeypatch.setattr(plots, "save_figure", lambda figure, path: drawn.append(figure))
    run = made_result(curve=[{"epoch": 1, "test_error": 2.0}, {"epoch": 2, "test_error": 1.0}])
    plot_curves({f"method {number}": [run] for number in range(12)}, tmp_path / "curves.png")
    (axes,) = drawn[0].axes
    means = [line for line in axes.lines if str(line.get_label()).startswith("method")]
    assert len({(line.get_color(), line.get_linestyle()) for line in means}) == 12
    legend = axes.get_legend()
    assert legend is not None
    drawn[0].draw_without_rendering()
    assert legend.get_window_extent().x0 >= axes.get_window_extent().x1, "so long a legend stands beside the curves"
