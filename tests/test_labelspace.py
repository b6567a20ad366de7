"""What a label space answers, in all three storage forms."""

import copy
import math

import numpy as np
import pytest
import torch

from labelemb.labelspace import LabelSpace, LabelSpaceError, UnknownLabelError

NAMES = ["cat", "dog", "car", "truck", "pad", "空 白"]


def dense_space(**about):
    generator = torch.Generator().manual_seed(1)
    return LabelSpace.from_matrix(torch.randn(6, 6, generator=generator) * 2, NAMES, kind="logit", **about)


def factor_space(**about):
    generator = torch.Generator().manual_seed(2)
    A, B, bias = (torch.randn(*shape, generator=generator) for shape in ((6, 3), (3, 6), (6,)))
    return LabelSpace.from_factors(A, B, bias, NAMES, **about)


def top_k_space(**about):
    indices = [[0, 1, 2], [1, 0, 5], [2, 3, -1], [3, 2, 4], [4, 0, 1], [5, 4, 3]]
    probabilities = [
        [0.6, 0.2, 0.05], [0.7, 0.15, 0.1], [0.5, 0.25, 0.0], [0.8, 0.14, 0.06], [0.4, 0.3, 0.2], [0.9, 0.05, 0.01],
    ]  # fmt: skip
    return LabelSpace.from_top_k(indices, probabilities, NAMES, **about)


ALL_FORMS = pytest.mark.parametrize("make", [dense_space, factor_space, top_k_space])


def naive_rows(space):
    """The (m, m) logits, straight from the definitions, in float64."""
    tensors = {name: tensor.double() for name, tensor in space.form.tensors().items()}
    if "logits" in tensors:
        return tensors["logits"]
    if "A" in tensors:
        return (tensors["A"] @ tensors["B"] + tensors["bias"]).relu()
    rows = []
    for indices, probabilities in zip(
        tensors["indices"].int().tolist(), tensors["probabilities"].tolist(), strict=True
    ):
        listed = {index: value for index, value in zip(indices, probabilities, strict=True) if index >= 0}
        share = max(0.0, 1 - sum(listed.values())) / max(1, 6 - len(listed))
        rows.append([math.log(max(listed.get(label, share), 1.2e-38)) for label in range(6)])
    return torch.tensor(rows, dtype=torch.float64)


@ALL_FORMS
def test_rows_are_the_logits_of_the_definition(make):
    space = make()
    expected = naive_rows(space)
    rows = space.rows(range(6))
    assert rows.dtype == torch.float32
    # 1 - (sum of float32 probabilities) leaves noise where nothing is left, so compare probabilities there
    torch.testing.assert_close(rows.double().softmax(1), expected.softmax(1), atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(space.rows(["dog", 3])[1], rows[3])
    torch.testing.assert_close(space.rows(torch.tensor([1, 1])), rows[[1, 1]])
    assert space.rows("dog").shape == (1, 6)


@ALL_FORMS
def test_distribution_similarity_and_matrix_agree(make):
    space = make()
    expected = naive_rows(space).softmax(1).float()
    torch.testing.assert_close(space.distribution("car"), expected[2], atol=1e-6, rtol=1e-5)
    assert space.similarity("car", "truck") == pytest.approx(float(expected[2, 3]), rel=1e-5)
    torch.testing.assert_close(space.matrix(), expected, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(space.matrix(["truck", 0]), expected[[3, 0]][:, [3, 0]], atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(space.matrix(kind="logit"), space.rows(range(6)))


def test_matrix_is_the_same_in_blocks(monkeypatch):
    space = factor_space()
    whole, normalisers = space.matrix([4, 1, 5, 0]), space.form.log_normalisers()
    monkeypatch.setattr("labelemb.labelspace.forms.BLOCK_NUMBERS", 13)
    torch.testing.assert_close(space.matrix([4, 1, 5, 0]), whole)
    torch.testing.assert_close(space.form.log_normalisers(), normalisers)


@ALL_FORMS
def test_nearest_sorts_the_row_and_leaves_out_the_label_itself(make):
    space = make()
    for label in range(6):
        distribution = space.distribution(label)
        neighbors = space.nearest(label, k=3)
        similarities = [neighbor.similarity for neighbor in neighbors]
        assert neighbors.label == NAMES[label]
        assert NAMES[label] not in [neighbor.name for neighbor in neighbors]
        assert similarities == sorted(similarities, reverse=True)
        for name, similarity in neighbors:
            assert similarity == pytest.approx(float(distribution[space.index(name)]), rel=1e-4)
        rest = set(range(6)) - {label} - {space.index(name) for name, _ in neighbors}
        if len(neighbors) == 3:
            assert all(float(distribution[other]) <= similarities[-1] * 1.0001 for other in rest)


@ALL_FORMS
def test_symmetric_nearest_averages_both_log_probabilities(make):
    space = make()
    logarithms = naive_rows(space).log_softmax(1)
    expected = ((logarithms + logarithms.T) / 2).exp()
    for label in range(6):
        neighbors = space.nearest(label, k=5, symmetric=True)
        found = [space.index(name) for name, _ in neighbors]
        assert found == sorted(found, key=lambda other: -float(expected[label, other]))
        for name, similarity in neighbors:
            assert similarity == pytest.approx(float(expected[label, space.index(name)]), rel=1e-4)


@ALL_FORMS
def test_symmetric_nearest_is_symmetric(make):
    space = make()
    pairs = {
        (label, name): similarity
        for label in NAMES
        for name, similarity in space.nearest(label, k=5, symmetric=True)
    }  # fmt: skip
    assert pairs
    for (label, name), similarity in pairs.items():
        assert pairs[name, label] == pytest.approx(similarity, rel=1e-5)


def test_ties_are_broken_by_the_order_of_the_labels():
    space = LabelSpace.from_matrix(torch.eye(5), kind="logit")
    assert [name for name, _ in space.nearest("2", k=3)] == ["0", "1", "3"]
    assert [name for name, _ in space.nearest("2", k=3, symmetric=True)] == ["0", "1", "3"]


def test_specials_are_left_out_of_the_neighbors_but_have_some():
    space = dense_space(specials=["pad", 5])
    assert space.specials == ("pad", "空 白")
    neighbors = space.nearest("cat", k=5)
    assert {name for name, _ in neighbors} == {"dog", "car", "truck"}
    assert neighbors.note == "there are only 3 other labels"
    assert len(space.nearest("pad", k=9)) == 4


def test_entries_that_relu_made_zero_are_not_similar():
    # row 0 is (2, 1, 0, 0): only label 1 is similar to label 0
    A = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])
    B = torch.tensor([[2.0, 1.0, -1.0, -3.0], [0.0, 0.0, -1.0, -1.0]])
    space = LabelSpace.from_factors(A, B)
    neighbors = space.nearest(0, k=2)
    assert [name for name, _ in neighbors] == ["1"]
    assert neighbors.note == "only 1 label is similar"
    assert neighbors[0].similarity == pytest.approx(math.e / (math.e**2 + math.e + 2))
    none = space.nearest(1, k=2)
    assert list(none) == []
    assert none.note == "no label is similar"
    # 1 says nothing about 0, but 0 is similar to 1: that is enough for the symmetric list
    assert [name for name, _ in space.nearest(1, k=4, symmetric=True)] == ["0"]


def test_labels_outside_the_stored_largest_are_not_similar():
    space = top_k_space()
    neighbors = space.nearest("car", k=4)
    assert [name for name, _ in neighbors] == ["truck"]
    assert neighbors.note == "only 1 label is similar"
    assert [name for name, _ in space.nearest("car", k=4, symmetric=True)] == ["truck", "cat"]


def test_a_label_that_was_never_observed_right_is_marked():
    space = dense_space(counts=[3, 0, 1, 1, 1, 1])
    assert space.learned("cat")
    assert not space.learned(1)
    neighbors = space.nearest("dog")
    assert not neighbors.learned
    assert neighbors.note == "never observed right: its neighbours mean nothing"
    assert neighbors.note in str(neighbors)
    assert space.nearest("cat").learned
    assert dense_space().learned("dog")  # without counts nobody knows otherwise


def test_neighbors_print_one_line_each():
    space = LabelSpace.from_matrix([[0.7, 0.2, 0.1], [0.3, 0.6, 0.1], [0.1, 0.2, 0.7]], ["cat", "hound", "car"])
    assert str(space.nearest("cat", k=3)) == (
        "nearest to cat:\n  hound  0.2\n  car    0.1\n  (there are only 2 other labels)"
    )
    assert space.nearest("cat", k=2).note == ""


def test_k_below_one_is_an_error():
    with pytest.raises(LabelSpaceError, match="at least 1, not 0"):
        dense_space().nearest("cat", k=0)


@ALL_FORMS
def test_reordering_the_labels_changes_no_answer(make):
    space = make(counts=range(6), specials=["pad"], groups={"animals": ["cat", "dog"]}, objective={"tau": 2.0})
    space.log_normalisers()
    names = ["truck", "空 白", "cat", "pad", "car", "dog"]
    moved = space.reorder(names)
    order = [NAMES.index(name) for name in names]
    assert moved.names == tuple(names)
    assert moved.counts.tolist() == order
    assert (moved.specials, moved.groups, moved.objective) == (space.specials, space.groups, space.objective)
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
    space = make(counts=range(6), specials=["pad"], groups={"animals": ["cat", "dog"], "rest": ["pad", "空 白"]})
    part = space.select(["truck", "cat", 2])
    assert part.names == ("truck", "cat", "car")
    assert part.counts.tolist() == [3, 0, 2]
    assert part.specials == ()
    assert part.groups == {"animals": ["cat"]}
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


def test_labels_are_names_or_indices():
    space = dense_space()
    assert space.index("car") == space.index(2) == space.index(np.int64(2)) == space.index(torch.tensor(2)) == 2
    for wrong in (6, -1):
        with pytest.raises(UnknownLabelError, match=rf"{wrong} is outside \[0, 6\)"):
            space.index(wrong)
        with pytest.raises(UnknownLabelError, match=rf"{wrong} is outside \[0, 6\)"):
            space.rows(torch.tensor([0, wrong]))
    for wrong in (1.5, True, None):
        with pytest.raises(TypeError, match="name or an index"):
            space.index(wrong)
    with pytest.raises(TypeError, match="whole numbers"):
        space.rows(torch.tensor([0.0]))


def test_an_unknown_name_suggests_the_closest():
    with pytest.raises(KeyError) as caught:
        dense_space().nearest("Trukc")
    assert isinstance(caught.value, ValueError)
    assert str(caught.value) == "unknown label 'Trukc' among 6; did you mean 'truck'?"
    with pytest.raises(UnknownLabelError, match=r"^unknown label 'qqqqqqq' among 6$"):
        dense_space().index("qqqqqqq")


def test_suggestions_compare_few_names_however_many_there_are(monkeypatch):
    compared = []
    original = __import__("difflib").get_close_matches
    monkeypatch.setattr(
        "labelemb.labelspace.names.difflib.get_close_matches",
        lambda word, names, **options: compared.extend(names) or original(word, names, **options),
    )
    names = [f"item {number:05}" for number in range(30_000)]
    names[20_000] = "elephant"
    space = LabelSpace.from_factors(torch.ones(30_000, 1), torch.ones(1, 30_000), names=names)
    with pytest.raises(UnknownLabelError, match="did you mean 'elephant'"):
        space.index("elefant")
    with pytest.raises(UnknownLabelError, match="unknown label 'xx"):
        space.index("x" * 100_000)
    assert 0 < len(compared) <= 400


def test_fifty_thousand_labels_never_make_a_full_matrix(monkeypatch):
    count = 50_000
    generator = torch.Generator().manual_seed(0)
    A, B = torch.randn(count, 100, generator=generator), torch.randn(100, count, generator=generator)
    largest = 0
    original = torch.Tensor.__matmul__

    def watched(left, right):
        nonlocal largest
        product = original(left, right)
        largest = max(largest, product.numel())
        return product

    monkeypatch.setattr(torch.Tensor, "__matmul__", watched)
    space = LabelSpace.from_factors(A, B)
    assert len(space.nearest("7")) == 5
    assert space.matrix(["7", "8"]).shape == (2, 2)
    assert largest <= 2 * count
    assert max(len(piece) for piece in space.form.blocks(torch.arange(count))) * count <= 2**24
    with pytest.raises(LabelSpaceError, match=r"10\.0 GB .*labels="):
        space.matrix()
    assert largest <= 2 * count


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
        ({"groups": {"few": ["0", "9"]}}, UnknownLabelError, "'9'"),
        ({"groups": {1: ["0"]}}, TypeError, "groups must be"),
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
