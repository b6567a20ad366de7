"""What a label space answers, in all three storage forms."""

import math

import numpy as np
import pytest
import torch

from labelemb.labelspace import LabelSpace, LabelSpaceError, UnknownLabelError
from tests.helpers.spaces import ALL_FORMS, NAMES, dense_space, factor_space, top_k_space


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
        "labelemb.support.wording.difflib.get_close_matches",
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
