"""SoftTargetLoss: a learned label space in the place of `nn.CrossEntropyLoss`."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from labelemb import LabelEmbeddingHead, LabelSpace, SoftTargetLoss

NAMES = ["cat", "dog", "car"]
MATRIX = torch.tensor([[0.7, 0.2, 0.1], [0.3, 0.6, 0.1], [0.0, 0.2, 0.8]])
SPACE = LabelSpace.from_matrix(MATRIX, NAMES)


def batch(rows: int = 6) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(rows, 3, generator=generator), torch.randint(3, (rows,), generator=generator)


def test_it_is_half_cross_entropy_with_the_label_and_half_with_its_row() -> None:
    logits, targets = batch()
    expected = 0.5 * F.cross_entropy(logits, targets) + 0.5 * F.cross_entropy(logits, MATRIX[targets])
    torch.testing.assert_close(SoftTargetLoss(SPACE)(logits, targets), expected)


def test_weights_one_and_one_are_the_papers_sum() -> None:
    logits, targets = batch()
    expected = F.cross_entropy(logits, targets) + F.cross_entropy(logits, MATRIX[targets])
    loss = SoftTargetLoss(SPACE, hard_weight=1.0, soft_weight=1.0)
    torch.testing.assert_close(loss(logits, targets), expected)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weight", [None, torch.tensor([0.5, 2.0, 0.0])], ids=["unweighted", "weighted"])
def test_without_a_soft_part_it_is_cross_entropy_in_every_option(reduction: str, weight: Tensor | None) -> None:
    logits, targets = batch(9)
    targets[::4] = -7
    options = {"weight": weight, "ignore_index": -7, "reduction": reduction}
    loss = SoftTargetLoss(SPACE, hard_weight=1.0, soft_weight=0.0, **options)  # type: ignore[arg-type]
    torch.testing.assert_close(loss(logits, targets), F.cross_entropy(logits, targets, **options))  # type: ignore[arg-type]


def test_gradients_on_the_logits_are_probabilities_minus_the_mixed_target() -> None:
    logits, targets = batch()
    logits.requires_grad_()
    SoftTargetLoss(SPACE, reduction="sum")(logits, targets).backward()
    mixed = 0.5 * F.one_hot(targets, 3) + 0.5 * MATRIX[targets]
    torch.testing.assert_close(logits.grad, logits.detach().softmax(-1) - mixed)


@pytest.mark.parametrize(
    "space",
    [
        SPACE,
        LabelSpace.from_factors([[1.0], [0.5], [-1.0]], [[2.0, 1.0, -1.0]], None, NAMES),
        LabelSpace.from_top_k([[0], [1], [2]], [[0.7], [0.6], [0.8]], NAMES),
    ],
    ids=["dense", "factors", "top_k"],
)
def test_it_equals_a_head_with_the_same_fixed_space_in_every_storage(space: LabelSpace) -> None:
    hidden, targets = torch.randn(5, 4, generator=torch.Generator().manual_seed(1)), torch.tensor([0, 1, 2, 2, 0])
    head = LabelEmbeddingHead(4, 3, embedding=space)
    torch.testing.assert_close(SoftTargetLoss(space)(head(hidden), targets), head(hidden, targets).loss)


def test_any_leading_dimensions_are_rows() -> None:
    logits, targets = batch(6)
    loss = SoftTargetLoss(SPACE, reduction="none")
    shaped = loss(logits.reshape(2, 3, 3), targets.reshape(2, 3))
    assert shaped.shape == (2, 3)
    torch.testing.assert_close(shaped.flatten(), loss(logits, targets))


@pytest.mark.parametrize("extreme", [1e4, 3e38, float("inf"), float("nan")])
def test_ignored_rows_change_nothing_even_if_their_logits_are_extreme(extreme: float) -> None:
    logits, targets = batch(4)
    loss = SoftTargetLoss(SPACE)
    padded = torch.cat([logits.float(), torch.tensor([[extreme, -extreme, 0.0]] * 2)]).requires_grad_()
    found = loss(padded, torch.cat([targets, torch.tensor([-100, -100])]))
    torch.testing.assert_close(found, loss(logits.float(), targets))
    found.backward()
    assert padded.grad is not None
    assert bool(padded.grad.isfinite().all())


@pytest.mark.parametrize("targets", [torch.tensor([-100, -100]), torch.zeros(0, dtype=torch.long)])
def test_a_batch_without_a_valid_row_gives_zero_and_no_nan(targets: Tensor) -> None:
    logits = torch.randn(len(targets), 3, requires_grad=True)
    loss = SoftTargetLoss(SPACE)(logits, targets)
    loss.backward()
    assert loss.item() == 0.0
    assert logits.grad is not None
    assert float(logits.grad.abs().sum()) == 0.0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_logits_are_computed_in_float32(dtype: torch.dtype) -> None:
    logits, targets = batch()
    loss = SoftTargetLoss(SPACE)(logits.to(dtype), targets)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, SoftTargetLoss(SPACE)(logits.to(dtype).float(), targets))


def test_autocast_does_not_round_the_rows_of_factors() -> None:
    generator = torch.Generator().manual_seed(0)
    factors = torch.randn(3, 2, generator=generator), torch.randn(2, 3, generator=generator)
    loss = SoftTargetLoss(LabelSpace.from_factors(*factors))
    expected = loss(*batch())
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(loss(*batch()), expected)


def test_copies_and_state_dicts_carry_the_space_and_nothing_is_trained() -> None:
    logits, targets = batch()
    loss = SoftTargetLoss(SPACE, weight=torch.tensor([1.0, 2.0, 3.0]))
    assert list(loss.parameters()) == []
    expected = loss(logits, targets)
    assert torch.equal(copy.deepcopy(loss)(logits, targets), expected)
    other = SoftTargetLoss(LabelSpace.from_matrix(torch.eye(3), NAMES), weight=torch.ones(3))
    other.load_state_dict(loss.state_dict())
    assert torch.equal(other(logits, targets), expected)


def test_reordering_the_space_is_reordering_the_logits() -> None:
    logits, targets = batch()
    order = [2, 0, 1]
    reordered = SoftTargetLoss(SPACE.reorder([NAMES[index] for index in order]))
    moved = torch.tensor([order.index(int(target)) for target in targets])
    torch.testing.assert_close(reordered(logits[:, order], moved), SoftTargetLoss(SPACE)(logits, targets))


def test_logits_of_another_number_of_labels_are_refused_with_both_shapes() -> None:
    with pytest.raises(ValueError, match=r"\(2, 4\) and targets \(2,\), but \(\.\.\., 3\)"):
        SoftTargetLoss(SPACE)(torch.zeros(2, 4), torch.tensor([0, 1]))
    with pytest.raises(ValueError, match=r"\(2, 3\) and targets \(1,\)"):
        SoftTargetLoss(SPACE)(torch.zeros(2, 3), torch.tensor([0]))


def test_an_unknown_reduction_and_a_wrong_weight_are_refused() -> None:
    with pytest.raises(ValueError, match="reduction is 'average'"):
        SoftTargetLoss(SPACE, reduction="average")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"weight has shape \(2,\), but must be \(3,\)"):
        SoftTargetLoss(SPACE, weight=torch.ones(2))


@pytest.mark.parametrize("name", ["hard_weight", "soft_weight"])
@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_weights_of_the_parts_are_finite_and_0_or_more(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{name} is {value}"):
        SoftTargetLoss(SPACE, **{name: value})  # type: ignore[arg-type]
