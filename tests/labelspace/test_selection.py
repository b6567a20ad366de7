"""A part of a space, and all of it in another order."""

import pytest
import torch

from labelemb.labelspace import LabelSpace, LabelSpaceError
from tests.helpers.spaces import ALL_FORMS, NAMES, dense_space


@ALL_FORMS
def test_reordering_the_labels_changes_no_answer(make):
    space = make(counts=range(6), specials=["pad"], superclasses={"animals": ["cat", "dog"]}, objective={"tau": 2.0})
    space.log_normalisers()
    names = ["truck", "空 白", "cat", "pad", "car", "dog"]
    moved = space.reorder(names)
    order = [NAMES.index(name) for name in names]
    assert moved.names == tuple(names)
    assert moved.counts.tolist() == order
    assert (moved.specials, moved.superclasses, moved.objective) == (
        space.specials,
        space.superclasses,
        space.objective,
    )
    torch.testing.assert_close(moved.matrix(), space.matrix()[order][:, order], atol=1e-7, rtol=1e-5)
    for symmetric in (False, True):
        for label in names:
            before, after = (one.nearest(label, k=5, symmetric=symmetric) for one in (space, moved))
            assert [name for name, _ in before] == [name for name, _ in after]
            assert [value for _, value in before] == pytest.approx([value for _, value in after], rel=1e-5)
    torch.testing.assert_close(moved.reorder(NAMES).rows(range(6)), space.rows(range(6)))


def test_reorder_names_what_is_missing_and_what_is_unknown():
    with pytest.raises(LabelSpaceError, match="missing 'pad'; unknown 'mouse'"):
        dense_space().reorder(["cat", "dog", "car", "truck", "mouse", "空 白"])
    with pytest.raises(LabelSpaceError, match=r"'a0'.*'a4' and 995 more"):
        dense_space().reorder([*NAMES, *(f"a{number}" for number in range(1000))])
    with pytest.raises(LabelSpaceError, match="'cat'"):
        dense_space().reorder(["cat", *NAMES])


@ALL_FORMS
def test_a_selection_is_conditioned_on_the_chosen_labels(make):
    space = make(counts=range(6), specials=["pad"], superclasses={"animals": ["cat", "dog"], "rest": ["pad", "空 白"]})
    part = space.select(["truck", "cat", 2])
    assert part.names == ("truck", "cat", "car")
    assert part.counts.tolist() == [3, 0, 2]
    assert part.specials == ()
    assert part.superclasses == {"animals": ["cat"]}
    assert part.rank == space.rank
    chosen = space.matrix(["truck", "cat", "car"])
    torch.testing.assert_close(part.matrix(), chosen / chosen.sum(1, keepdim=True), atol=1e-6, rtol=1e-5)


def test_a_row_that_gave_the_selection_nothing_becomes_even():
    space = LabelSpace.from_top_k([[0, 1, 2], [0, 1, 2], [2, 1, 0]], [[0, 0, 1], [0, 1, 0], [1, 0, 0]])
    part = space.select([0, 1])
    torch.testing.assert_close(part.distribution(0), torch.tensor([0.5, 0.5]))
    torch.testing.assert_close(part.distribution(1), torch.tensor([0.0, 1.0]))
    assert part.nearest(0).note == "no label is similar"


def test_a_selection_needs_different_labels():
    with pytest.raises(LabelSpaceError, match="at least one"):
        dense_space().select([])
    with pytest.raises(LabelSpaceError, match="'cat'"):
        dense_space().select(["cat", 0])
