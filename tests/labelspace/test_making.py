"""What a space is made from, and what is refused."""

import copy

import numpy as np
import pytest
import torch

from labelemb.labelspace import LabelSpace, LabelSpaceError, UnknownLabelError
from labelemb.labelspace.forms import DenseForm, TopKForm
from tests.helpers.spaces import dense_space, factor_space


def test_without_names_they_are_numbers():
    assert LabelSpace.from_matrix(torch.eye(3)).names == ("0", "1", "2")


def test_probabilities_are_given_back():
    matrix = torch.tensor([[0.7, 0.3, 0.0], [0.25, 0.5, 0.25], [0.0, 0.0, 1.0]])
    space = LabelSpace.from_matrix(matrix)
    torch.testing.assert_close(space.matrix(), matrix)
    assert space.rows(range(3)).isfinite().all()


@pytest.mark.parametrize(
    ("matrix", "kind", "message"),
    [
        (torch.ones(2, 3) / 3, "probability", r"\(2, 3\)"),
        (torch.ones(4), "logit", r"\(4,\)"),
        (torch.ones(0, 0), "logit", r"\(0, 0\)"),
        ([[0.5, 0.5], [float("nan"), 1.0]], "probability", "finite, found nan at"),
        ([[0.0, float("-inf")], [0.0, 0.0]], "logit", "finite, found -inf at"),
        (np.array([[1e300, 0.0], [0.0, 0.0]]), "logit", "finite"),
        ([[1.5, -0.5], [0.5, 0.5]], "probability", "negative, found -0.5"),
        ([[1.0, 0.0], [2.0, 2.0]], "probability", "row 1 .* sums to 4, not 1.*normalise"),
        ([[1.0, 0.0], [0.0, 1.0]], "cosine", "kind must be .* not 'cosine'"),
        ([["a", "b"], ["c", "d"]], "logit", "nested lists of numbers"),
    ],
)
def test_a_wrong_matrix_is_refused(matrix, kind, message):
    with pytest.raises(LabelSpaceError, match=message):
        LabelSpace.from_matrix(matrix, kind=kind)


@pytest.mark.parametrize(
    ("A", "B", "bias", "message"),
    [
        (torch.ones(3, 2), torch.ones(3, 2), None, r"\(3, 2\) and \(3, 2\)"),
        (torch.ones(3, 2), torch.ones(2, 4), None, r"\(3, 2\) and \(2, 4\)"),
        (torch.ones(3, 0), torch.ones(0, 3), None, r"\(3, 0\)"),
        (torch.ones(3, 2), torch.ones(2, 3), torch.ones(2), r"bias must be \(3,\), not \(2,\)"),
        (torch.ones(3, 2) / 0, torch.ones(2, 3), None, "A must be finite"),
        (torch.full((3, 2), 1e30), torch.full((2, 3), 1e30), None, "more than float32 holds"),
    ],
)
def test_wrong_factors_are_refused(A, B, bias, message):
    with pytest.raises(LabelSpaceError, match=message):
        LabelSpace.from_factors(A, B, bias)


@pytest.mark.parametrize(
    ("indices", "probabilities", "message"),
    [
        ([[0], [1]], [[0.5, 0.5], [0.5, 0.5]], "not .* and"),
        ([[0, 1, 0], [1, 0, 0]], [[0.1] * 3] * 2, "1 <= k <= labels"),
        ([[0], [2]], [[0.5], [0.5]], r"\[0, 2\).* found 2"),
        ([[0], [-2]], [[0.5], [0.5]], "found -2"),
        ([[0], [-1]], [[0.5], [0.5]], "unused place .* probability 0"),
        ([[0, 0], [0, 1]], [[0.5, 0.5], [0.5, 0.5]], "row 0 lists a label more than once"),
        ([[0], [1]], [[0.5], [1.5]], "row 1 sum to 1.5.*normalise"),
        ([[0, 1], [1, 0]], [[0.5, 0.5], [0.5, 0.2]], "row 1 sum to 0.7"),
        ([[0], [1]], [[0.5], [-0.5]], "negative"),
        ([[0], [1]], [[0.5], [float("inf")]], "finite"),
    ],
)
def test_wrong_largest_probabilities_are_refused(indices, probabilities, message):
    with pytest.raises(LabelSpaceError, match=message):
        LabelSpace.from_top_k(indices, probabilities)


@pytest.mark.parametrize(
    ("about", "error", "message"),
    [
        ({"names": ["a", "b"]}, LabelSpaceError, "2 names for 3 labels"),
        ({"names": ["a", "b", "a"]}, LabelSpaceError, "unique.*'a'"),
        ({"names": ["a", "b", 3]}, TypeError, "strings, not int"),
        ({"names": "abc"}, TypeError, "one string 'abc'"),
        ({"names": ["a", "b", "\ud800"]}, LabelSpaceError, "not valid Unicode"),
        ({"counts": [1, 2]}, LabelSpaceError, r"\(3,\).* not \(2,\)"),
        ({"counts": [1, -2, 3]}, LabelSpaceError, "negative, found -2"),
        ({"counts": [1.5, 2, 3]}, TypeError, "whole numbers"),
        ({"specials": ["pad"]}, UnknownLabelError, "'pad'"),
        ({"specials": "0"}, TypeError, "one string '0'"),
        ({"superclasses": {"few": ["0", "9"]}}, UnknownLabelError, "'9'"),
        ({"superclasses": {1: ["0"]}}, TypeError, "superclasses must be"),
        ({"objective": {"tau": float("nan")}}, LabelSpaceError, "plain, finite"),
        ({"objective": {"tau": torch.ones(1)}}, LabelSpaceError, "plain, finite"),
        ({"objective": "paper"}, TypeError, "objective must be a dict"),
    ],
)
def test_wrong_facts_about_the_labels_are_refused(about, error, message):
    with pytest.raises(error, match=message):
        LabelSpace.from_matrix(torch.eye(3), **about)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_a_space_is_a_detached_float32_copy(dtype):
    matrix = torch.eye(3, dtype=dtype, requires_grad=True)
    space = LabelSpace.from_matrix(matrix, kind="logit")
    with torch.no_grad():
        matrix.fill_(9)
    rows = space.rows(range(3))
    assert rows.dtype == torch.float32
    assert not rows.requires_grad
    torch.testing.assert_close(rows, torch.eye(3))
    rows.fill_(7)
    torch.testing.assert_close(space.rows(range(3)), torch.eye(3))


def test_arrays_and_lists_are_accepted():
    read_only = np.eye(3)[::-1]
    read_only.flags.writeable = False
    torch.testing.assert_close(LabelSpace.from_matrix(read_only, kind="logit").rows(0), torch.tensor([[0.0, 0.0, 1.0]]))
    assert LabelSpace.from_matrix([[1, 0], [0, 1]], kind="logit").num_labels == 2
    with pytest.raises(TypeError, match="real numbers"):
        LabelSpace.from_matrix(torch.eye(2, dtype=torch.complex64))


def test_a_space_can_be_copied_and_describes_itself():
    space = copy.deepcopy(factor_space())
    assert (len(space), space.num_labels, space.rank) == (6, 6, 3)
    assert dense_space().rank is None
    assert repr(space) == "LabelSpace(6 labels, factors, rank 3: 'cat', 'dog', 'car' and 3 more)"
    assert space.versions["format"] == 1
    assert space.versions["labelemb"]


def test_whole_numbers_are_taken_as_what_the_form_needs(tmp_path):
    space = LabelSpace(DenseForm(torch.tensor([[4, 1, 0], [1, 4, 0], [0, 0, 4]])), names=list("abc"))
    space.save(tmp_path / "dense.safetensors")
    assert space.nearest("a", k=1)[0].name == "b"
    indices, shares = torch.tensor([[0.0, 1.0], [1.0, 0.0], [2.0, 0.0]]), torch.tensor([[1, 0], [1, 0], [1, 0]])
    assert LabelSpace(TopKForm(indices, shares), names=list("abc")).similarity("a", "b") == pytest.approx(0)


def test_neighbours_are_shown_in_a_line_each():
    space = LabelSpace.from_matrix(torch.tensor([[4.0, 1.0], [1.0, 4.0]]), ["one\ntwo", "three\nfour"], kind="logit")
    first, second, *_ = str(space.nearest("one\ntwo", k=1)).splitlines()
    assert first == "nearest to one two:"
    assert second.startswith("  three four  ")


def test_a_long_name_does_not_widen_the_rows_of_the_others():
    names = ["cat", "long " * 60, "dog"]
    near = LabelSpace.from_matrix(torch.eye(3), names, kind="logit").nearest("cat")
    assert max(map(len, str(near).splitlines())) <= 80
    assert {neighbor.name for neighbor in near} == set(names[1:]), "the names themselves are whole"
