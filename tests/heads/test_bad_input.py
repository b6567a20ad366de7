"""Bad input gives one clear error; odd but legal input gives numbers, never NaN."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from labelemb import (
    CompressedEmbedding,
    ConfidencePenaltyHead,
    DenseEmbedding,
    LabelEmbeddingHead,
    LabelSpace,
    Objective,
    OnlineSmoothingHead,
    PlainHead,
    RunningEmbedding,
    TeacherFreeHead,
)
from tests.helpers.all_heads import HIDDEN, LABELS, heads
from tests.helpers.cases import Case

IMPLEMENTATIONS = ["autograd", "chunked"]
WAYS = [("autograd", None), ("chunked", None), ("chunked", 2)]
"""Implementations with their chunk sizes."""
EMBEDDINGS = ["dense", "compressed", "compressed-bias", "running", "fixed"]


@pytest.mark.parametrize(
    ("hidden", "targets", "keywords", "said"),
    [
        (torch.zeros(2, 5), LABELS, {}, "5"),
        (HIDDEN, torch.tensor([0, 1, 2]), {}, "3"),
        (HIDDEN, torch.tensor([[0], [1]]), {}, "2, 1"),
        (HIDDEN, torch.tensor([0, 4]), {}, "4"),
        (HIDDEN, torch.tensor([0, -1]), {}, "-1"),
        (HIDDEN, torch.tensor([0.0, 1.0]), {}, "(2,)"),
        (HIDDEN, torch.full((2, 3), 1 / 3), {}, "(2, 3)"),
        (HIDDEN, torch.tensor([[1.5, -0.5, 0.0, 0.0]] * 2), {}, "-0.5"),
        (HIDDEN, torch.tensor([[0.5, 0.2, 0.0, 0.0]] * 2), {}, "0.7"),
        (HIDDEN, torch.tensor([[float("nan"), 0.5, 0.5, 0.0]] * 2), {}, "nan"),
        (HIDDEN, LABELS, {"sample_weight": torch.ones(3)}, "3"),
        (HIDDEN, LABELS, {"sample_weight": torch.tensor([1.0, -2.0])}, "-2"),
        (HIDDEN, LABELS, {"sample_weight": torch.tensor([1.0, float("inf")])}, "inf"),
        (HIDDEN, LABELS, {"sample_weight": torch.tensor([float("nan"), 1.0])}, "nan"),
        (HIDDEN, LABELS, {"observed_hidden": torch.zeros(2, 4)}, "4"),
        (HIDDEN, LABELS, {"num_items": 0}, "0"),
        (HIDDEN, LABELS, {"num_items": torch.tensor(0)}, "0"),
        (HIDDEN, LABELS, {"num_items": torch.tensor(-1.0)}, "-1"),
        (HIDDEN, LABELS, {"num_items": torch.tensor(float("nan"))}, "nan"),
        (HIDDEN, LABELS, {"reduction": "average"}, "average"),
    ],
)
def test_a_bad_call_is_an_error_that_quotes_the_value(
    hidden: Tensor, targets: Tensor, keywords: dict[str, Any], said: str
) -> None:
    for head in heads():
        with pytest.raises((ValueError, TypeError)) as caught:
            head(hidden, targets, **keywords)
        assert said in str(caught.value), f"{type(head).__name__}: {caught.value}"
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: LabelEmbeddingHead(3, 4, impl="quick"), "quick"),
        (lambda: LabelEmbeddingHead(0, 4), "0"),
        (lambda: LabelEmbeddingHead(3, 1), "1"),
        (lambda: LabelEmbeddingHead(3, 4, embedding="compressed", rank=0), "0"),
        (lambda: CompressedEmbedding(4, rank=-1), "-1"),
        (lambda: LabelEmbeddingHead(3, 4, weight=torch.ones(5)), "5"),
        (lambda: LabelEmbeddingHead(3, 4, weight=torch.tensor([1.0, -2.0, 1.0, 1.0])), "weight"),
        (lambda: LabelEmbeddingHead(3, 4, embedding=DenseEmbedding(5)), "5"),
        (lambda: LabelEmbeddingHead(3, 4, embedding=LabelSpace.from_matrix(torch.eye(5), kind="logit")), "5"),
        (lambda: LabelEmbeddingHead(3, 4, embedding="sparse"), "sparse"),
        (lambda: LabelEmbeddingHead(3, 4, embedding=3), "int"),
        (lambda: LabelEmbeddingHead(3, 4, embedding="compressed"), "rank="),
        (lambda: RunningEmbedding(4, prior_rows=-1), "-1"),
        (
            lambda: LabelEmbeddingHead(4, 3, embedding="dense", prior_rows=3),
            "prior_rows=3 is an option of embedding=\"running\", but embedding is 'dense'",
        ),
        (lambda: RunningEmbedding(4, rows_per_epoch=0), "0"),
        (lambda: Objective(alpha=0.0), "0.0"),
        (lambda: Objective(alpha=1.01), "1.01"),
        (lambda: Objective(alpha=float("nan")), "nan"),
        (lambda: Objective(tau=0.0), "0.0"),
        (lambda: Objective(tau=-2.0), "-2.0"),
        (lambda: Objective(tau=float("nan")), "nan"),
        (lambda: Objective(cap_power=3), "3"),
        (lambda: Objective(cap_power=0), "0"),
        (lambda: Objective(hard_weight=-1.0), "-1.0"),
        (lambda: Objective(cap_weight=float("nan")), "nan"),
        (lambda: Objective(cap_reduction="max"), "max"),  # type: ignore[arg-type]
        (lambda: Objective(embedding_reduction="sum"), "sum"),  # type: ignore[arg-type]
        (lambda: Objective(soft_start=-1), "-1"),
        (lambda: Objective(soft_start=1.0), "1.0"),
        (lambda: Objective(soft_start=True), "True"),
        (lambda: Objective(mass_floor=1.5), "1.5"),
        (lambda: PlainHead(3, 4, label_smoothing=1.5), "1.5"),
        (lambda: OnlineSmoothingHead(3, 4, rows_per_epoch=0), "0"),
        (lambda: OnlineSmoothingHead(3, 4, rows_per_epoch=float("nan")), "nan"),
        (lambda: RunningEmbedding(4, rows_per_epoch=float("nan")), "nan"),
        (lambda: ConfidencePenaltyHead(3, 4, penalty=float("inf")), "inf"),
        (lambda: ConfidencePenaltyHead(3, 4, penalty=-0.1), "-0.1"),
        (lambda: TeacherFreeHead(3, 4, correct_probability=1.5), "1.5"),
        (lambda: TeacherFreeHead(3, 4, temperature=0.0), "0.0"),
    ],
)
def test_a_bad_option_is_an_error_that_quotes_the_value(make: Any, said: str) -> None:
    with pytest.raises((ValueError, TypeError)) as caught:
        make()
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: LabelEmbeddingHead(3, 4, embedding="dense", rank=2), "rank=2 .*compressed., but .* 'dense'"),
        (lambda: LabelEmbeddingHead(3, 4, embedding=DenseEmbedding(4), rank=2), "rank=2 .* a DenseEmbedding"),
        (
            lambda: LabelEmbeddingHead(3, 4, embedding="dense", rows_per_epoch=9),
            "rows_per_epoch=9 .* embedding=.running.",
        ),
        (lambda: LabelEmbeddingHead(3, 4, embedding=RunningEmbedding(4), rows_per_epoch=9), "rows_per_epoch=9"),
        (lambda: LabelEmbeddingHead(3, 4, total_steps=9), "total_steps=9 would be ignored"),
        (lambda: LabelEmbeddingHead(3, 4, impl="autograd", chunk_rows=9), "chunk_rows is 9"),
        (lambda: Objective(hard_weight=0.5, mass_floor=0.5), "hard_weight is 0.5, but must be None with a mass floor"),
        (lambda: PlainHead(3, 4, mass_floor=0.5), "mass_floor=0.5 would be ignored"),
        (lambda: PlainHead(3, 4, label_smoothing=0.1, total_steps=9), "total_steps=9 would be ignored"),
        (lambda: OnlineSmoothingHead(3, 4, rows_per_epoch=9, hard_weight=0.5, mass_floor=0.5), "hard_weight is 0.5"),
    ],
)
def test_an_option_that_would_be_ignored_is_an_error(make: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make()


def test_a_dense_embedding_over_two_gigabytes_names_the_size_and_the_way_out() -> None:
    with pytest.raises(ValueError, match=r'9\.3 GB.*pass embedding="compressed", rank=100 or embedding="running"'):
        LabelEmbeddingHead(4, 50_000, embedding="dense")


@pytest.mark.parametrize("index", range(len(heads())))
@pytest.mark.parametrize("targets", [torch.zeros(0, dtype=torch.long), torch.full((3,), -100), torch.zeros(3, 4)])
def test_no_valid_row_gives_zero_loss_and_zero_gradients(index: int, targets: Tensor) -> None:
    """An empty batch, or one in which every row is ignored."""
    head = heads()[index]
    hidden = torch.randn(len(targets), 3, requires_grad=True)
    output = head(hidden, targets)
    output.loss.backward()
    assert output.loss.item() == 0.0
    assert all(term.item() == 0.0 for term in output.terms)
    assert int(output.correct) == 0
    for name, parameter in head.named_parameters():
        assert parameter.grad is None or float(parameter.grad.abs().sum()) == 0.0, name
    assert hidden.grad is None or float(hidden.grad.abs().sum()) == 0.0


def test_a_count_of_no_valid_rows_may_divide_their_loss() -> None:
    for head in heads():
        assert head(HIDDEN, torch.full((2,), -100), num_items=torch.tensor(0)).loss.item() == 0.0


def test_num_items_may_be_a_tensor_of_one_entry() -> None:
    for head in heads():
        head.eval()
        torch.testing.assert_close(
            head(HIDDEN, LABELS, num_items=torch.tensor([3])).loss, head(HIDDEN, LABELS, num_items=3).loss
        )


@pytest.mark.parametrize("embedding", ["dense", "running"])
@pytest.mark.parametrize(
    ("impl", "reduction"), [("auto", "mean"), ("autograd", "mean"), ("chunked", "mean"), ("auto", "none")]
)
def test_an_empty_batch_of_more_labels_than_are_learned_at_once_gives_zero(
    impl: Any, reduction: Any, embedding: Any
) -> None:
    head = LabelEmbeddingHead(3, 100, embedding=embedding, impl=impl)
    hidden = torch.randn(0, 3, requires_grad=True)
    loss = head(hidden, torch.zeros(0, dtype=torch.long), reduction=reduction).loss
    loss.sum().backward()
    assert loss.shape == ((0,) if reduction == "none" else ())
    assert loss.sum().item() == 0.0


@pytest.mark.parametrize("impl", IMPLEMENTATIONS)
def test_no_valid_row_leaves_the_running_table_alone(impl: str) -> None:
    head = Case(embedding="running", impl=impl).head()
    table = head.embedding.table.clone()
    head(torch.randn(3, 3, dtype=torch.float64), torch.full((3,), -100)).loss.backward()
    torch.testing.assert_close(head.embedding.table, table, rtol=0, atol=0)


def observer_right_nowhere(impl: str, reduction: str) -> tuple[LabelEmbeddingHead, Tensor, Tensor]:
    case = Case(Objective(embedding_reduction=reduction), impl=impl)  # type: ignore[arg-type]
    head = case.head()
    hidden, _, _ = case.inputs()
    return head, hidden, head.observer(hidden).argmin(-1)


@pytest.mark.parametrize("impl", IMPLEMENTATIONS)
@pytest.mark.parametrize("reduction", ["all", "correct"])
def test_an_observer_that_is_right_nowhere_teaches_the_embedding_nothing(impl: str, reduction: str) -> None:
    head, hidden, targets = observer_right_nowhere(impl, reduction)
    output = head(hidden, targets)
    output.loss.backward()
    assert bool(output.loss.isfinite())
    assert int(output.observer_correct) == 0
    assert output.terms.embedding.item() == 0.0
    gradient = head.embedding.weight.grad
    assert gradient is None or float(gradient.abs().sum()) == 0.0


def embedding_gradients(case: Case, hidden: Tensor, targets: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    head = case.head()
    output = head(hidden, targets, num_items=6)
    output.loss.backward()
    found = {n: p.grad for n, p in head.embedding.named_parameters() if p.grad is not None}
    return output.loss, found


@pytest.mark.parametrize(("impl", "chunk_rows"), WAYS)
@pytest.mark.parametrize("embedding", ["dense", "compressed", "compressed-bias"])
@pytest.mark.parametrize("correct_only", [True, False])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_non_finite_rows_show_in_the_loss_and_do_not_reach_the_embedding(
    impl: str, chunk_rows: int | None, embedding: str, correct_only: bool, value: float
) -> None:
    case = Case(Objective(correct_only=correct_only), embedding, impl, chunk_rows)
    hidden, targets, _ = case.inputs()
    without = targets.clone()
    without[2] = -100
    _, expected = embedding_gradients(case, hidden, without)
    hidden[2] = value
    loss, found = embedding_gradients(case, hidden, targets)
    assert not bool(loss.isfinite())
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize(("impl", "chunk_rows"), WAYS)
@pytest.mark.parametrize("correct_only", [True, False])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_non_finite_rows_do_not_reach_the_running_table(
    impl: str, chunk_rows: int | None, correct_only: bool, value: float
) -> None:
    case = Case(Objective(correct_only=correct_only), "running", impl, chunk_rows)
    head = case.head()
    hidden, targets, _ = case.inputs()
    hidden[2] = value
    assert not bool(head(hidden, targets).loss.isfinite())
    assert bool(head.embedding.table.isfinite().all())
    assert bool(head.embedding.mass.isfinite().all())
    torch.testing.assert_close(head.embedding.table.sum(1), torch.ones(4, dtype=torch.float64))


@pytest.mark.parametrize("impl", IMPLEMENTATIONS)
@pytest.mark.parametrize("embedding", EMBEDDINGS)
def test_huge_logits_stay_finite(impl: str, embedding: str) -> None:
    """Confident, wrong and far away: the loss is large, not infinite, and gradients exist."""
    case = Case(embedding=embedding, impl=impl)
    head = case.head()
    hidden, targets, _ = case.inputs()
    output = head(1e6 * hidden, targets)
    output.loss.backward()
    assert bool(output.loss.isfinite())
    for name, parameter in head.named_parameters():
        assert parameter.grad is None or bool(parameter.grad.isfinite().all()), name


@pytest.mark.parametrize("impl", IMPLEMENTATIONS)
def test_zero_weights_for_all_rows_give_zero(impl: str) -> None:
    case = Case(impl=impl)
    hidden, targets, _ = case.inputs()
    output = case.head()(hidden, targets, sample_weight=torch.zeros(len(targets)))
    assert output.loss.item() == 0.0
