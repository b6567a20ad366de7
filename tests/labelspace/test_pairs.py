"""Pairs, groups and changes of labels: against a plain computation over the whole matrix."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from labelemb import LabelSpace, LabelSpaceError
from labelemb.labelspace import changes

NAMES = ["cat", "dog", "wolf", "car", "truck", "PAD"]


def animals(counts: list[int] | None = None) -> LabelSpace:
    """Cat, dog and wolf are alike, car and truck too; a wolf looks like a dog more than a dog like a wolf."""
    matrix = torch.full((6, 6), 0.01)
    for a, b, value in ((0, 1, 0.2), (1, 0, 0.2), (1, 2, 0.1), (2, 1, 0.4), (3, 4, 0.3), (4, 3, 0.3), (3, 5, 0.2)):
        matrix[a, b] = value
    matrix += torch.diag(1 - matrix.sum(dim=1))
    return LabelSpace.from_matrix(matrix, NAMES, specials=["PAD"], counts=counts)


def large(labels: int = 300, seed: int = 0) -> LabelSpace:
    return LabelSpace.from_matrix(
        4 * torch.randn(labels, labels, generator=torch.Generator().manual_seed(seed)), kind="logit"
    )


def expected_likeness(space: LabelSpace, a: int, b: int) -> float:
    matrix = space.matrix().double()
    return math.sqrt(matrix[a, b] * matrix[b, a] / (matrix[a, a] * matrix[b, b]))


def test_the_pairs_that_are_most_alike_come_first_with_both_directions() -> None:
    space = animals()
    pairs = space.pairs(2)
    assert [(pair.first, pair.second) for pair in pairs] == [("car", "truck"), ("dog", "wolf")]
    for pair in pairs:
        assert pair.forward == pytest.approx(space.similarity(pair.first, pair.second), rel=1e-5)
        assert pair.backward == pytest.approx(space.similarity(pair.second, pair.first), rel=1e-5)
        expected = expected_likeness(space, space.index(pair.first), space.index(pair.second))
        assert pair.likeness == pytest.approx(expected, rel=1e-5)


def test_pairs_are_those_of_the_whole_matrix() -> None:
    space = large(15)  # fewer than the nearest that are looked at, so that no pair is missed
    every = sorted(itertools.combinations(range(15), 2), key=lambda pair: -expected_likeness(space, *pair))
    found = [(space.index(pair.first), space.index(pair.second)) for pair in space.pairs(10**6)]
    assert found == every


def test_specials_are_in_no_pair() -> None:
    assert not [pair for pair in animals().pairs(100) if "PAD" in pair[:2]]


def test_one_sided_pairs_go_from_the_label_that_gives_more() -> None:
    best = animals().pairs(3, kind="one-sided")[0]
    assert (best.first, best.second) == ("wolf", "dog")
    assert best.forward - best.backward == pytest.approx(0.3, rel=1e-4)
    space = large()
    matrix = space.matrix()
    differences = matrix - matrix.T
    top = space.pairs(5, kind="one-sided")
    assert [pair.forward - pair.backward for pair in top] == pytest.approx(
        differences.flatten().topk(5).values.tolist(), rel=1e-4
    )


def test_pairs_of_labels_that_nobody_observed_right_are_marked() -> None:
    pairs = animals(counts=[3, 1, 0, 2, 2, 0]).pairs(2)
    assert [pair.learned for pair in pairs] == [True, False]
    assert "never observed right, so that their pairs mean nothing: 'wolf'" in str(pairs)


@pytest.mark.parametrize("form", ["factors", "top_k"])
def test_pairs_need_no_matrix_of_all_labels(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("labelemb.labelspace.forms.BLOCK_NUMBERS", 2000)
    generator = torch.Generator().manual_seed(0)
    if form == "factors":
        space = LabelSpace.from_factors(
            torch.randn(500, 4, generator=generator), torch.randn(4, 500, generator=generator)
        )
    else:
        indices = (torch.arange(500)[:, None] + torch.arange(4)) % 500
        space = LabelSpace.from_top_k(indices, torch.tensor([0.4, 0.3, 0.2, 0.1]).expand(500, 4))
    rows = type(space.form).rows

    def few(self: object, labels: torch.Tensor) -> torch.Tensor:
        assert len(labels) <= 4
        return rows(self, labels)  # type: ignore[arg-type]

    monkeypatch.setattr(type(space.form), "rows", few)
    for kind in ("alike", "one-sided"):
        space.pairs(5, kind=kind)  # type: ignore[arg-type]  # one of two words
    space.groups(0.1)


def test_a_table_prints_and_becomes_html_and_a_data_frame() -> None:
    hostile = LabelSpace.from_matrix(animals().matrix(), ["<b>cat", "d\x1b[2Jog", "\u202ewolf", "a" * 100, "t", "P"])
    pairs = hostile.pairs(4)
    text = str(pairs)
    assert text == repr(pairs)
    assert text.splitlines()[0].split() == ["label", "resembles", "likeness", "there", "back"]
    assert all(line.isprintable() for line in text.splitlines())
    assert "a" * 50 not in text
    page = pairs._repr_html_()
    assert "&lt;b&gt;cat" in page
    assert "<b>" not in page
    frame = pairs.to_pandas()
    assert list(frame.columns) == ["first", "second", "likeness", "forward", "backward", "learned"]
    assert frame["first"].tolist() == [pair.first for pair in pairs]
    assert pairs[:2] == list(pairs)[:2]


def test_groups_are_linked_by_pairs_above_the_threshold() -> None:
    space = animals()
    groups = space.groups(0.2)
    assert [group.labels for group in groups] == [("cat", "dog", "wolf"), ("car", "truck")]
    links = [expected_likeness(space, 0, 1), expected_likeness(space, 1, 2)]
    assert groups[0].weakest == pytest.approx(min(links), rel=1e-5)
    assert groups[0].likeness == pytest.approx(np.mean(links), rel=1e-5)
    assert len(space.groups(max(links) + 0.01)) == 1
    assert len(space.groups(5.0)) == 0
    assert "no pair of labels has a likeness of 5 or more" in str(space.groups(5.0))
    assert list(groups.to_pandas().columns) == ["labels", "likeness", "weakest"]


def test_changes_name_the_neighbours_gained_and_lost_and_the_rank_correlation() -> None:
    here, there = large(seed=1), large(seed=2)
    found = here.compare(there, k=3)
    assert len(found) == 300
    for row in found[:5]:
        before = {near.name for near in here.nearest(row.label, k=3)}
        after = {near.name for near in there.nearest(row.label, k=3)}
        assert set(row.gained) == after - before
        assert set(row.lost) == before - after
        others = [index for index in range(300) if index != here.index(row.label)]
        rows = [space.rows(row.label)[0][others].numpy() for space in (here, there)]
        assert row.correlation == pytest.approx(spearmanr(*rows).statistic, abs=1e-6)
    assert found.correlation == pytest.approx(np.mean([row.correlation for row in found]))
    assert found[0].correlation == min(row.correlation for row in found if row.correlation is not None)


def test_a_space_is_not_changed_against_itself_in_another_order() -> None:
    space = animals()
    found = space.compare(space.reorder(list(reversed(NAMES))))
    assert all(not row.gained and not row.lost for row in found)
    assert found.correlation == pytest.approx(1)
    assert found[-1][:4] == ("PAD", (), (), None), "a row whose entries are all the same has no ranks"


def test_labels_of_one_space_alone_are_listed() -> None:
    space = animals()
    found = space.select(["cat", "dog", "wolf", "car"]).compare(space.select(["dog", "cat", "wolf", "truck"]))
    assert (found.only_here, found.only_there) == (("car",), ("truck",))
    assert {row.label for row in found} == {"cat", "dog", "wolf"}
    assert "only here: 'car'; only there: 'truck'" in str(found)


def test_of_many_labels_the_rows_observed_most_are_correlated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "MOST_CORRELATED_LABELS", 2)
    found = animals(counts=[1, 9, 2, 8, 3, 0]).compare(animals())
    assert [row.label for row in found if row.correlation is not None] == ["dog", "car"]
    assert len(found) == 6


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda space: space.pairs(0), "k must be at least 1, not 0"),
        (lambda space: space.pairs(kind="close"), 'kind must be "alike" or "one-sided", not \'close\''),
        (lambda space: space.groups(0), "threshold must be a likeness above 0, not 0"),
        (lambda space: space.groups(math.nan), "threshold must be a likeness above 0, not nan"),
        (lambda space: space.compare(animals(), k=0), "k must be at least 1"),
        (lambda space: space.compare(large(4)), "the spaces have no label in common: 'cat'"),
    ],
)
def test_mistakes_are_named(call: object, message: str) -> None:
    with pytest.raises(LabelSpaceError) as caught:
        call(animals())  # type: ignore[operator]
    assert message in str(caught.value)


def test_too_many_labels_to_compare_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("labelemb.labelspace.pairs.LARGEST_COST", 10)
    with pytest.raises(LabelSpaceError, match=r"pairs of 6 labels take too long: use select\(\) first"):
        animals().pairs()
