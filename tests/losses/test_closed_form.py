"""The closed form of few logits: where it is used, and what is left to autograd."""

from __future__ import annotations

import copy
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from labelemb import LabelEmbeddingHead, Objective
from labelemb.embeddings.base import RowGradients
from labelemb.embeddings.dense import DenseEmbedding

TERMS = ["hard", "soft", "observer", "cap", "embedding"]


def twins(**options: object) -> tuple[LabelEmbeddingHead, LabelEmbeddingHead]:
    """The same head with closed form and with plain autograd, its observer right about some labels."""
    torch.manual_seed(0)
    head = LabelEmbeddingHead(3, 4, objective=Objective(alpha=0.3), **options).double()  # type: ignore[arg-type]
    plain = copy.deepcopy(head)
    plain.impl = "autograd"
    return head, plain


def inputs() -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    return 3 * torch.randn(12, 3, dtype=torch.float64), torch.randint(4, (12,))


@pytest.mark.parametrize("embedding", ["dense", "running"])
def test_few_logits_do_not_go_through_plain_autograd(embedding: str) -> None:
    head, _ = twins(embedding=embedding)
    with patch("labelemb.heads.label_embedding.autograd_loss", side_effect=AssertionError):
        head(*inputs()).loss.backward()


@pytest.mark.parametrize("name", TERMS)
def test_a_single_term_has_the_gradients_of_autograd(name: str) -> None:
    found = []
    for head in twins():
        hidden, targets = inputs()
        term = getattr(head(hidden.requires_grad_(), targets).terms, name)
        term.backward()
        found.append([value.grad for value in (hidden, *head.parameters())])
    assert any(gradient is not None and gradient.abs().sum() > 0 for gradient in found[1])
    for gradient, expected in zip(*found, strict=True):
        nothing = torch.zeros(())
        expected = nothing if expected is None else expected
        gradient = nothing if gradient is None else gradient
        torch.testing.assert_close(gradient.sum() if expected.ndim == 0 else gradient, expected, check_dtype=False)


def test_the_loss_has_the_second_derivatives_of_autograd() -> None:
    found = []
    for head in twins():
        hidden, targets = inputs()
        loss = head(hidden.requires_grad_(), targets).loss
        (first,) = torch.autograd.grad(loss, hidden, create_graph=True)
        found.append(torch.autograd.grad(first.square().sum(), [hidden, head.predictor.weight]))
    assert found[1][0].abs().sum() > 0
    torch.testing.assert_close(found[0], found[1])


def test_backward_can_run_twice_and_adds_up() -> None:
    head, _ = twins()
    hidden, targets = inputs()
    loss = head(hidden, targets).loss
    loss.backward(retain_graph=True)
    once = [parameter.grad.clone() for parameter in head.parameters() if parameter.grad is not None]
    loss.backward()
    for parameter, gradient in zip(head.parameters(), once, strict=True):
        torch.testing.assert_close(parameter.grad, 2 * gradient)


def test_an_embedding_that_learns_in_its_own_way_takes_autograd() -> None:
    class Doubled(DenseEmbedding):
        def learn_from(
            self, labels: Tensor | None, sums: Tensor, masses: Tensor, gradients: RowGradients | None = None
        ) -> Tensor:
            return 2 * super().learn_from(labels, sums, masses, gradients)

    head, plain = twins(embedding=Doubled(4))
    terms = [one(*inputs()).terms.embedding for one in (head, plain)]
    assert terms[0] > 0
    torch.testing.assert_close(terms[0], terms[1])
