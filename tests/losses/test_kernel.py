"""A predictor trained by somebody else's kernel: the same loss and gradients as in chunks."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from torch import Tensor

from labelemb import LabelEmbeddingHead
from labelemb.embeddings.make import EmbeddingName
from tests.helpers.cases import Case, cases


def cross_entropy_rows(hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor) -> Tensor:
    """Stands in for a kernel of a GPU: it gives a loss per row and never the logits."""
    return F.cross_entropy(F.linear(hidden, weight, bias), labels, reduction="none")


@settings(max_examples=150)
@given(case=cases(impl="chunked", soft_targets=False, some_observed=True))
def test_a_kernel_gives_what_the_chunks_give(case: Case) -> None:
    case = replace(case, unseen=False, long_rows=False)
    head, other = case.head(), case.head()
    head.kernel = cross_entropy_rows
    hidden, targets, keywords = case.inputs()
    inputs = [hidden.clone().requires_grad_() for _ in range(2)]
    out, expected = head(inputs[0], targets, **keywords), other(inputs[1], targets, **keywords)
    torch.testing.assert_close(out.loss, expected.loss)
    torch.testing.assert_close(out.terms, expected.terms)
    assert out.correct is None
    assert out.logits is None
    for loss in (out.loss, expected.loss):
        if loss.requires_grad:
            (2 * loss).backward()
    for found, wanted in zip([inputs[0], *head.parameters()], [inputs[1], *other.parameters()], strict=True):
        gradients = [torch.zeros_like(one) if one.grad is None else one.grad for one in (found, wanted)]
        torch.testing.assert_close(*gradients)
    for name, value in other.state_dict().items():
        torch.testing.assert_close(head.state_dict()[name], value, msg=name)


def test_soft_targets_and_losses_per_row_do_without_the_kernel() -> None:
    def refuse(*_: object) -> Tensor:
        raise AssertionError("the kernel was called")

    head = LabelEmbeddingHead(3, 4, kernel=refuse)
    hidden, targets = torch.randn(5, 3), torch.randint(4, (5,))
    assert head(hidden, targets, reduction="none").loss.shape == (5,)
    assert head(hidden, torch.eye(4)[targets]).correct is not None
    with pytest.raises(AssertionError, match="was called"):
        head(hidden, targets)


@pytest.mark.parametrize("embedding", ["dense", "running"])
def test_rows_are_added_up_in_float32_under_autocast(embedding: EmbeddingName) -> None:
    def in_float32(hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            return cross_entropy_rows(hidden, weight, bias, labels)

    torch.manual_seed(0)
    head = LabelEmbeddingHead(3, 4, embedding=embedding, kernel=in_float32)
    head(torch.randn(50, 3), torch.randint(4, (50,)))
    head.eval()
    hidden, targets, weight = torch.randn(50, 3), torch.randint(4, (50,)), torch.rand(50)
    with torch.no_grad():
        head.predictor.bias.copy_(torch.tensor([-11.3, 5.7, 0.1, 8.9]))
    expected = head(hidden, targets, sample_weight=weight).terms
    with torch.autocast("cpu", torch.bfloat16):
        found = head(hidden, targets, sample_weight=weight).terms
    torch.testing.assert_close(found.hard, expected.hard)
    # the large biases are not rounded, but one product of weights is: a bfloat16 has 8 bits
    torch.testing.assert_close(found.soft, expected.soft, rtol=0, atol=2**-9)


def test_a_kernel_with_plain_autograd_is_refused() -> None:
    with pytest.raises(ValueError, match="kernel= would be ignored"):
        LabelEmbeddingHead(3, 4, kernel=cross_entropy_rows, impl="autograd")
