"""Nothing depends on how rows are cut: halves, chunks, padding, leading dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from labelemb import LabelEmbeddingHead
from tests.helpers.cases import Case, cases

IMPLEMENTATIONS = ["autograd", "chunked"]


def take(values: dict[str, Any], index: Any) -> dict[str, Any]:
    """The keywords of a call for some of its rows."""
    return {name: value[index] if isinstance(value, Tensor) else value for name, value in values.items()}


def gradients_of(head: LabelEmbeddingHead, loss: Tensor | Sequence[Tensor]) -> dict[str, Tensor]:
    head.zero_grad()
    for part in [loss] if isinstance(loss, Tensor) else loss:
        part.backward()
    return {name: p.grad.clone() for name, p in head.named_parameters() if p.grad is not None}


def assert_equal_gradients(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    for name in expected.keys() | found.keys():
        zero = torch.zeros(())
        torch.testing.assert_close(
            found.get(name, zero).expand_as(expected.get(name, found.get(name, zero))),
            expected.get(name, zero).expand_as(found.get(name, expected.get(name, zero))),
            rtol=1e-9,
            atol=1e-11,
            msg=lambda m, n=name: f"{n}: {m}",
        )


split_free = {"cap_reduction": "mean", "embedding_reduction": "all"}


@settings(max_examples=60)
@given(case=cases(num_items=None, training=False, rows=7), cut=st.integers(1, 6))
def test_two_parts_with_num_items_give_the_gradients_of_the_whole(case: Case, cut: int) -> None:
    """Evaluation mode holds the running table still, as one update of it sees all rows."""
    case = replace(case, objective=case.objective.replace(**split_free), weight=False, sample_weight=False)
    head = case.head()
    hidden, targets, keywords = case.inputs()
    valid = targets.sum(-1) > 0 if case.soft_targets else targets != -100
    keywords["num_items"] = max(1, int(valid.sum()))
    whole = head(hidden, targets, **keywords)
    parts = [
        head(hidden[part], targets[part], **take(keywords, part)) for part in (slice(0, cut), slice(cut, case.rows))
    ]
    torch.testing.assert_close(sum(part.loss for part in parts), whole.loss, rtol=1e-10, atol=1e-12)
    expected = gradients_of(head, whole.loss)
    assert_equal_gradients(gradients_of(head, [part.loss for part in parts]), expected)


@settings(max_examples=60)
@given(case=cases(), order_seed=st.integers(0, 100))
def test_the_order_of_the_rows_does_not_matter(case: Case, order_seed: int) -> None:
    head, other = case.head(), case.head()
    hidden, targets, keywords = case.inputs()
    order = torch.randperm(case.rows, generator=torch.Generator().manual_seed(order_seed))
    first = head(hidden, targets, **keywords)
    second = other(hidden[order], targets[order], **take(keywords, order))
    torch.testing.assert_close(second.loss, first.loss, rtol=1e-10, atol=1e-12)
    assert_equal_gradients(gradients_of(other, second.loss), gradients_of(head, first.loss))
    for name, value in head.state_dict().items():
        torch.testing.assert_close(other.state_dict()[name], value, msg=name)


@settings(max_examples=60)
@given(case=cases(impl="chunked", soft_targets=False), chunk_rows=st.integers(1, 8))
def test_the_chunk_size_does_not_matter(case: Case, chunk_rows: int) -> None:
    hidden, targets, keywords = case.inputs()
    head, other = case.head(), replace(case, chunk_rows=chunk_rows).head()
    first, second = head(hidden, targets, **keywords), other(hidden, targets, **keywords)
    torch.testing.assert_close(second.loss, first.loss, rtol=1e-10, atol=1e-12)
    assert_equal_gradients(gradients_of(other, second.loss), gradients_of(head, first.loss))
    for name, value in head.state_dict().items():
        torch.testing.assert_close(other.state_dict()[name], value, msg=name)


@settings(max_examples=60)
@given(case=cases(ignored=False), padding=st.integers(1, 4))
def test_padding_rows_take_part_in_nothing(case: Case, padding: int) -> None:
    head, other = case.head(), case.head()
    hidden, targets, keywords = case.inputs()
    first = head(hidden, targets, **keywords)
    padded_hidden = torch.cat([hidden, torch.full((padding, case.in_features), 7.0)])
    nothing = torch.zeros(padding, case.num_labels) if case.soft_targets else torch.full((padding,), -100)
    padded = {
        name: torch.cat([value, torch.full((padding, *value.shape[1:]), 3.0)]) if isinstance(value, Tensor) else value
        for name, value in keywords.items()
    }
    second = other(padded_hidden, torch.cat([targets, nothing]), **padded)
    torch.testing.assert_close(second.loss, first.loss, rtol=1e-10, atol=1e-12)
    assert int(first.correct) == int(second.correct)
    assert_equal_gradients(gradients_of(other, second.loss), gradients_of(head, first.loss))
    for name, value in head.state_dict().items():
        torch.testing.assert_close(other.state_dict()[name], value, msg=name)


@pytest.mark.parametrize(("impl", "chunk_rows"), [("autograd", None), ("chunked", None), ("chunked", 2)])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_padding_rows_may_hold_anything(impl: str, chunk_rows: int | None, value: float) -> None:
    """A masked attention leaves NaN in padding; the weights must not see it."""
    case = Case(impl=impl, chunk_rows=chunk_rows)
    head = case.head()
    hidden, targets, _ = case.inputs()
    targets[2] = -100
    expected = gradients_of(head, head(hidden, targets).loss)
    hidden[2] = value
    output = head(hidden, targets)
    assert bool(output.loss.isfinite())
    assert_equal_gradients(gradients_of(head, output.loss), expected)


@pytest.mark.parametrize(("impl", "chunk_rows"), [("autograd", None), ("chunked", None), ("chunked", 2)])
@pytest.mark.parametrize("embedding", ["dense", "running"])
@pytest.mark.parametrize("value", [1e20, 3e38])
def test_padding_rows_may_overflow(impl: str, chunk_rows: int | None, embedding: str, value: float) -> None:
    """Memory that nobody filled may hold finite numbers whose logits are not."""
    case = Case(impl=impl, chunk_rows=chunk_rows, embedding=embedding, training=False)
    head = case.head().float()
    hidden, targets, _ = case.inputs()
    hidden = hidden.float()
    targets[2] = -100
    expected = gradients_of(head, head(hidden, targets).loss)
    hidden[2] = value * hidden[2].sign()
    output = head(hidden.requires_grad_(), targets)
    assert bool(output.loss.isfinite())
    found = gradients_of(head, output.loss)
    assert_equal_gradients(found, expected)
    assert hidden.grad is not None
    assert bool(hidden.grad.isfinite().all())


def reshaped(value: Any, leading: tuple[int, ...]) -> Any:
    return value.reshape(*leading, *value.shape[1:]) if isinstance(value, Tensor) else value


@pytest.mark.parametrize("leading", [(6,), (2, 3), (1, 6), (3, 1, 2)])
@pytest.mark.parametrize("impl", IMPLEMENTATIONS)
@pytest.mark.parametrize("soft_targets", [False, True])
def test_leading_dimensions_are_only_shape(leading: tuple[int, ...], impl: str, soft_targets: bool) -> None:
    case = Case(impl=impl, soft_targets=soft_targets, sample_weight=True, observed_hidden=True, ignored=True)
    head, other = case.head(), case.head()
    hidden, targets, keywords = case.inputs()
    flat = head(hidden, targets, **keywords)
    deep_hidden = reshaped(hidden, leading).requires_grad_()
    deep_keywords = {name: reshaped(value, leading) for name, value in keywords.items()}
    deep = other(deep_hidden, reshaped(targets, leading), **deep_keywords)
    torch.testing.assert_close(deep.loss, flat.loss)
    assert deep.logits is None or deep.logits.shape == (*leading, case.num_labels)
    assert_equal_gradients(gradients_of(other, deep.loss), gradients_of(head, flat.loss))
    assert deep_hidden.grad is not None
    assert deep_hidden.grad.shape == deep_hidden.shape


@pytest.mark.parametrize("leading", [(), (6,), (2, 3)])
def test_reduction_none_has_the_shape_of_the_targets(leading: tuple[int, ...]) -> None:
    head = Case().head()
    hidden = torch.randn(*leading, 3, dtype=torch.float64)
    targets = torch.zeros(leading, dtype=torch.long)
    output = head(hidden, targets, reduction="none")
    assert output.loss.shape == leading
    assert all(term.shape == leading for term in output.terms)
    torch.testing.assert_close(output.loss.mean(), head(hidden, targets).loss)


def test_a_mixture_of_two_labels_is_the_mixture_of_their_losses() -> None:
    """mixup: lambda L(a) + (1 - lambda) L(b)."""
    case = Case()
    head = case.head()
    hidden, targets, _ = case.inputs()
    others = (targets + 1) % case.num_labels
    mixed = 0.3 * torch.nn.functional.one_hot(targets, 4) + 0.7 * torch.nn.functional.one_hot(others, 4)
    expected = 0.3 * head(hidden, targets).loss + 0.7 * head(hidden, others).loss
    torch.testing.assert_close(head(hidden, mixed.double()).loss, expected)


@pytest.mark.parametrize("embedding", ["dense", "running"])
def test_no_weight_decides_what_a_soft_target_calls_right(embedding: str) -> None:
    """A row of weight 0 is right or wrong as any other, and the top label is the one with the largest share."""
    case = Case(embedding=embedding, rows=40)
    hidden, targets, _ = case.inputs()
    shares = 0.6 * torch.nn.functional.one_hot(targets, 4) + 0.4 * torch.nn.functional.one_hot((targets + 1) % 4, 4)
    for soft in (shares.double(), torch.nn.functional.one_hot(targets, 4).double()):
        plain, weighted = case.head(), case.head()
        weighted.weight = torch.tensor([0.1, 5.0, 0.0, 1.0], dtype=torch.float64)
        expected = plain(hidden, soft)
        found = weighted(hidden, soft, sample_weight=torch.arange(40) % 3)
        assert int(found.correct) == int(expected.correct) == int(plain(hidden, targets).correct)
        assert int(found.observer_correct) == int(expected.observer_correct)
