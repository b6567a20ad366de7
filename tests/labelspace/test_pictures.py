"""A label space in a notebook: a table, pictures and a data frame, for three labels and for very many."""

from __future__ import annotations

import sys
import warnings
from html.parser import HTMLParser

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from labelemb import LabelSpace, LabelSpaceError
from labelemb.labelspace import map as label_map_module
from labelemb.labelspace import neighbors
from labelemb.labelspace.neighbors import most_alike
from labelemb.labelspace.pictures import drawing, fonts
from labelemb.labelspace.pictures.fonts import name_fonts

matplotlib.use("Agg")  # no window


def pets() -> LabelSpace:
    matrix = [[0.7, 0.2, 0.1], [0.3, 0.6, 0.1], [0.1, 0.2, 0.7]]
    return LabelSpace.from_matrix(matrix, ["cat", "dog", "car"], counts=[5, 5, 0])


def pairs_of(labels: int) -> LabelSpace:
    """Labels 0 and 1, 2 and 3, ... resemble each other, later pairs more."""
    logits = 6 * torch.eye(labels)
    for first in range(0, labels - 1, 2):
        logits[first, first + 1] = logits[first + 1, first] = 3 + first / labels
    return LabelSpace.from_matrix(logits, kind="logit")


class Cells(HTMLParser):
    """The text of every cell, and every tag."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_a_notebook_shows_names_and_similarities() -> None:
    shown = Cells(pets()._repr_html_())
    assert [text for text in shown.texts if text in ("cat", "dog")] == ["cat", "dog", "cat", "dog"]
    assert {"0.7", "0.2", "0.3"} <= set(shown.texts)
    assert any("3 labels, dense" in text for text in shown.texts)


def test_a_label_that_was_never_observed_right_is_marked_in_the_table() -> None:
    page = pets()._repr_html_()
    assert "<i>car*</i>" in page
    assert "never observed right" in page


def test_names_cannot_leave_their_cells() -> None:
    names = ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "long " * 1000]
    page = LabelSpace.from_matrix(torch.eye(3), names)._repr_html_()
    assert set(Cells(page).tags) <= {"div", "b", "table", "tr", "th", "td", "i"}
    assert len(page) < 3000


@pytest.mark.parametrize("labels", [1, 2, 13, 400])
def test_the_table_has_a_dozen_labels_at_most(labels: int) -> None:
    page = LabelSpace.from_matrix(torch.eye(labels), kind="logit")._repr_html_()
    assert Cells(page).tags.count("td") == min(labels, 12) ** 2 + 1
    assert ("resemble others most" in page) == (labels > 12)


def test_the_table_of_special_labels_alone_is_its_title() -> None:
    space = LabelSpace.from_matrix(torch.eye(2), ["<pad>", "<unk>"], specials=["<pad>", "<unk>"])
    assert Cells(space._repr_html_()).tags == ["div", "b"]


@pytest.mark.parametrize("form", ["factors", "top_k"])
def test_a_million_labels_are_looked_at_in_few_rows(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    labels = 1_000_000
    generator = torch.Generator().manual_seed(0)
    if form == "factors":
        A, B = torch.randn(labels, 2, generator=generator), torch.randn(2, labels, generator=generator)
        space = LabelSpace.from_factors(A, B)
    else:
        indices = (torch.arange(labels)[:, None] + torch.arange(2)) % labels
        space = LabelSpace.from_top_k(indices, torch.tensor([0.6, 0.3]).repeat(labels, 1))
    asked: list[int] = []
    rows = type(space.form).rows
    monkeypatch.setattr(type(space.form), "rows", lambda self, piece: (asked.append(len(piece)), rows(self, piece))[1])
    assert len(space._repr_html_()) < 20_000
    assert sum(asked) < 50
    with pytest.raises(LabelSpaceError, match=r"1000000 x 1000000 takes 4000.0 GB .*: pass labels="):
        space.to_pandas()
    assert space.to_pandas(labels=[0, 7]).shape == (2, 2)


def test_of_many_labels_the_strongest_pairs_are_shown_together() -> None:
    assert most_alike(pairs_of(20), 4) == [16, 17, 18, 19]
    assert most_alike(pairs_of(20), 5) == [14, 16, 17, 18, 19]
    assert most_alike(pairs_of(20), 20) == list(range(20))


def test_of_very_many_labels_those_observed_most_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbors, "MOST_COMPARED_LABELS", 4)
    space = LabelSpace(pairs_of(20).form, counts=[9, 9, 8, 8] + [1] * 16)
    assert most_alike(space, 2) == [2, 3]
    assert most_alike(pairs_of(20), 2) == [2, 3], "without counts, the first"


def test_a_heatmap_has_the_rows_of_the_labels_that_were_asked_for() -> None:
    space = pets()
    axes = space.heatmap(labels=["car", 0])
    np.testing.assert_allclose(axes.images[0].get_array(), space.matrix(["car", "cat"]).numpy())
    assert [text.get_text() for text in axes.get_yticklabels()] == ["car", "cat"]


def test_a_heatmap_goes_into_the_axes_that_are_given() -> None:
    axes = Figure().subplots()
    assert pets().heatmap(ax=axes) is axes
    assert axes.images[0].get_array().shape == (3, 3)
    assert axes.images[0].get_clim() == pytest.approx((0.1, 0.3)), "the colours span different labels"


def test_a_heatmap_of_too_many_labels_shows_the_strongest_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "MOST_HEATMAP_LABELS", 4)
    axes = pairs_of(20).heatmap(ax=Figure().subplots())
    assert sorted(text.get_text() for text in axes.get_yticklabels()) == ["16", "17", "18", "19"]
    axes = pairs_of(20).heatmap(labels=range(10), ax=Figure().subplots())
    assert axes.images[0].get_array().shape == (10, 10), "labels that were asked for are all drawn"
    assert [text.get_text() for text in axes.get_yticklabels()] == ["0", "3", "6", "9"], "with the names that fit"


def test_a_heatmap_puts_labels_that_are_alike_side_by_side() -> None:
    kinds = torch.arange(9) % 3
    space = LabelSpace.from_matrix(3.0 * (kinds[:, None] == kinds[None]).float(), kind="logit")
    shown = [int(text.get_text()) for text in space.heatmap(ax=Figure().subplots()).get_yticklabels()]
    assert sorted(shown) == list(range(9))
    assert (np.diff(kinds[shown].numpy()) != 0).sum() == 2
    chosen = space.heatmap(labels=range(9), ax=Figure().subplots()).get_yticklabels()
    assert [text.get_text() for text in chosen] == [str(label) for label in range(9)], "chosen labels keep their order"


def drawn_boxes(axes: Axes, texts: list[Text]) -> np.ndarray:
    """(left, bottom, right, top) of texts in pixels, as they are drawn."""
    canvas = FigureCanvasAgg(axes.figure)
    canvas.draw()
    return np.array([text.get_window_extent(canvas.get_renderer()).extents for text in texts])


def overlapping(boxes: np.ndarray) -> int:
    left, bottom, right, top = boxes.T[:, :, None]
    meet = (left < right.T) & (right > left.T) & (bottom < top.T) & (top > bottom.T)
    return int(np.triu(meet, 1).sum())


@pytest.mark.parametrize("dpi", [100, drawing.PICTURE_DPI])
@pytest.mark.parametrize("names", ["label_{}_with_a_name", "{}_0123456789_0123456789", "天气预报天气{}"])
def test_names_on_a_map_neither_overlap_nor_leave_the_frame(names: str, dpi: int) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(80, 80, generator=generator)
    space = LabelSpace.from_matrix(logits, [names.format(label) for label in range(80)], kind="logit")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # letters that no font has
        axes = space.map(ax=Figure(figsize=(6, 5), dpi=100).subplots())
        axes.figure.set_dpi(dpi)  # as savefig does
        boxes = drawn_boxes(axes, axes.texts)
    frame = axes.get_window_extent()
    assert 10 < len(boxes) < 80
    assert f"{80 - len(boxes)} names left out for room" in axes.get_title()
    assert overlapping(boxes) == 0
    assert (boxes[:, :2] >= (frame.x0 - 1, frame.y0 - 1)).all()
    assert (boxes[:, 2:] <= (frame.x1 + 1, frame.y1 + 1)).all()


def test_one_name_that_is_left_out_is_one_name() -> None:
    names = ["cat", "dog", "a name that fits no picture"]
    axes = LabelSpace.from_matrix(torch.eye(3), names, kind="logit").map(ax=Figure(figsize=(1, 1)).subplots())
    assert "; 1 name left out for room" in axes.get_title()


def test_names_of_a_heatmap_in_small_axes_do_not_overlap() -> None:
    axes = pairs_of(120).heatmap(ax=Figure(figsize=(4, 3)).subplots())
    assert overlapping(drawn_boxes(axes, axes.get_yticklabels())) == 0


def test_letters_that_no_font_has_are_mentioned() -> None:
    assert name_fonts(["cat", "café"], ()).note == ""
    missing = name_fonts(["猫", "cat", "犬"], ["no such font"])
    assert missing.incomplete == 2
    assert missing.note.startswith("2 names have letters that no installed font shows: install one")
    assert len(missing.families) == 1
    emoji = name_fonts(["\U0001fae8"], ())
    assert emoji.note == "1 name has letters that no installed font shows", "Noto Sans CJK has no emoji"


def test_letters_that_no_font_has_are_drawn_without_a_line_for_each(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(drawing, "name_fonts", lambda names: name_fonts(names, ()))
    space = LabelSpace.from_matrix(torch.eye(3), ["猫", "犬", "車"], kind="logit")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        axes = space.map(ax=Figure().subplots())
    assert "3 names have letters that no installed font shows" in axes.get_title()
    assert not caplog.records


def test_a_font_installed_after_matplotlib_listed_the_fonts_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    manager = matplotlib.font_manager.fontManager
    new = next(font for font in manager.ttflist if font.name == "cmr10")  # ships with matplotlib
    monkeypatch.setattr(manager, "ttflist", [font for font in manager.ttflist if font.name != "cmr10"])
    monkeypatch.setattr(matplotlib.font_manager, "findSystemFonts", lambda: [new.fname])
    fonts._font.cache_clear()
    fonts._add_new_fonts.cache_clear()
    monkeypatch.setattr(fonts, "_lacking", lambda font, letters: set() if font.family_name == "cmr10" else letters)
    assert name_fonts(["猫"], ["cmr10"]) == (["DejaVu Sans", "cmr10"], 0, False)
    fonts._font.cache_clear()


def test_a_font_that_has_the_letters_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    class Font:
        family_name = "usual"

        def __init__(self, letters: str) -> None:
            self.letters = letters

        def get_char_index(self, code: int) -> int:
            return int(chr(code) in self.letters)

    installed = {None: Font("cat"), "Hei": Font("猫"), "Gothic": Font("猫犬")}
    monkeypatch.setattr(fonts, "_font", installed.get)
    assert fonts.name_fonts(["猫", "cat"], ["absent", "Hei", "Gothic"]).families == ["usual", "Hei"]
    assert fonts.name_fonts(["犬 cat"], ["Hei", "Gothic"]) == (["usual", "Gothic"], 0, False)


def test_an_unknown_label_is_an_error_before_anything_is_drawn() -> None:
    axes = Figure().subplots()
    with pytest.raises(LabelSpaceError, match="unknown label 'cta'"):
        pets().heatmap(["cta"], ax=axes)
    assert not axes.images


def test_a_map_has_a_point_and_a_name_for_each_label() -> None:
    space = pets()
    axes = space.map(ax=Figure().subplots())
    np.testing.assert_allclose(axes.collections[0].get_offsets(), label_map_module.label_map(space).positions)
    assert [text.get_text() for text in axes.texts] == ["cat", "dog", "car"]
    assert axes.get_title().startswith("3 labels; two dimensions hold")


def test_without_axes_a_picture_of_its_own_is_made() -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    for axes in (pets().map(), pets().heatmap()):
        assert axes.figure.number in pyplot.get_fignums()
        pyplot.close(axes.figure)


def test_names_are_text_and_never_mathematics() -> None:
    space = LabelSpace.from_matrix(torch.eye(3), ["$x_", r"$\frac$", "a\nb"], kind="logit")
    for draw in (space.heatmap, space.map):
        figure = Figure()
        draw(ax=figure.subplots())
        figure.canvas.draw()


def test_a_map_of_too_many_labels_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(label_map_module, "MOST_WHOLE_ROWS", 10)
    monkeypatch.setattr(label_map_module, "MOST_LABELS", 15)
    with pytest.raises(LabelSpaceError, match=r"a map of 20 labels takes too long \(at most 15\): use select\(\)"):
        pairs_of(20).map(ax=Figure().subplots())


def test_a_data_frame_is_the_matrix_with_names() -> None:
    frame = pets().to_pandas()
    assert frame.loc["cat", "dog"] == pytest.approx(0.2)
    assert list(frame.index) == list(frame.columns) == ["cat", "dog", "car"]
    part = pets().to_pandas(labels=["car", "cat"], kind="logit")
    assert list(part.index) == ["car", "cat"]
    assert part.loc["car", "cat"] == pytest.approx(np.log(0.1))


@pytest.mark.parametrize(
    ("package", "call"),
    [("matplotlib", "heatmap"), ("matplotlib", "map"), ("pandas", "to_pandas")],
)
def test_a_missing_package_is_one_line_that_names_the_extra(
    package: str, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, module)
    find = sys.meta_path[:]

    class Missing:
        @staticmethod
        def find_spec(name: str, *rest: object) -> None:
            if name.partition(".")[0] == package:
                raise ModuleNotFoundError(f"No module named {package!r}", name=package)

    monkeypatch.setattr(sys, "meta_path", [Missing, *find])
    with pytest.raises(ImportError) as caught:
        getattr(pets(), call)()
    assert str(caught.value) == f"{call}() needs the package {package}: pip install 'labelemb[plot]'"
    assert "LabelSpace" in pets()._repr_html_(), "the table needs no package"
