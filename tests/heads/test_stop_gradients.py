"""What each term trains, what it must leave alone, and the limits in which terms vanish or meet."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from torch import Tensor

from labelemb import CompressedEmbedding, DenseEmbedding, LabelEmbeddingHead, Objective, RunningEmbedding
from tests.helpers.cases import Case, cases
from tests.helpers.comparison import stored_table

TRAINS = {
    "hard": {"hidden", "predictor"},
    "soft": {"hidden", "predictor"},
    "observer": {"observer"},
    "cap": {"observer"},
    "embedding": {"embedding"},
}


def parts_with_gradient(head: LabelEmbeddingHead, hidden: Tensor) -> set[str]:
    """Which of hidden, predictor, observer and embedding received a gradient that is not zero."""
    gradients = {name: parameter.grad for name, parameter in head.named_parameters()} | {"hidden": hidden.grad}
    return {name.split(".")[0] for name, value in gradients.items() if value is not None and value.abs().max() > 0}


@pytest.mark.parametrize("embedding", ["dense", "compressed", "compressed-bias"])
@pytest.mark.parametrize("term", list(TRAINS))
def test_each_term_trains_its_own_part_and_nothing_else(term: str, embedding: str) -> None:
    case = Case(Objective(alpha=0.1, correct_only=False), embedding)
    head = case.head()
    hidden, targets, keywords = case.inputs()
    hidden.requires_grad_()
    getattr(head(hidden, targets, **keywords).terms, term).backward()
    assert parts_with_gradient(head, hidden) == TRAINS[term]


def gradients(head: LabelEmbeddingHead, case: Case) -> dict[str, Tensor]:
    """The gradient of the loss on every parameter and on hidden."""
    hidden, targets, keywords = case.inputs()
    hidden.requires_grad_()
    head.zero_grad()
    head(hidden, targets, **keywords).loss.backward()
    found = {name: parameter.grad for name, parameter in head.named_parameters()} | {"hidden": hidden.grad}
    return {name: torch.zeros(()) if value is None else value.clone() for name, value in found.items()}


@pytest.mark.parametrize("impl", ["autograd", "chunked"])
def test_the_chunked_gradients_have_the_same_stops(impl: str) -> None:
    """The loss of one part must not move when only another part's parameters do."""
    case = Case(Objective(correct_only=False), impl=impl)
    head = case.head()
    before = gradients(head, case)
    with torch.no_grad():
        head.predictor.weight.add_(1.0)
    after = gradients(head, case)
    for name in ("observer.weight", "observer.bias", "embedding.weight"):
        assert torch.equal(before[name], after[name]), name
    with torch.no_grad():
        head.embedding.weight.mul_(0.5)
    assert torch.equal(gradients(head, case)["observer.weight"], before["observer.weight"])


@pytest.mark.parametrize("impl", ["autograd", "chunked"])
def test_alpha_one_removes_the_cap(impl: str) -> None:
    case = Case(Objective(alpha=1.0, cap_weight=5.0), impl=impl)
    without = replace(case, objective=Objective(alpha=1.0, cap_weight=0.0))
    hidden, targets, keywords = case.inputs()
    assert case.head()(hidden, targets, **keywords).terms.cap.item() == 0.0
    with_cap, bare = gradients(case.head(), case), gradients(without.head(), without)
    for name, value in with_cap.items():
        torch.testing.assert_close(value, bare[name], msg=name)


@pytest.mark.parametrize("impl", ["autograd", "chunked"])
def test_an_embedding_that_is_a_large_identity_turns_soft_into_hard(impl: str) -> None:
    case = Case(impl=impl)
    head = case.head()
    with torch.no_grad():
        head.embedding.weight.copy_(60.0 * torch.eye(case.num_labels))
    hidden, targets, keywords = case.inputs()
    terms = head(hidden, targets, **keywords).terms
    torch.testing.assert_close(terms.soft, terms.hard, rtol=1e-12, atol=0)


def permute_labels(head: LabelEmbeddingHead, order: Tensor) -> None:
    """Rename label order[i] to i, in every place that knows labels."""
    embedding = head.embedding
    with torch.no_grad():
        for layer in (head.predictor, head.observer):
            if layer is not None:
                for parameter in layer.parameters():
                    parameter.copy_(parameter[order])
        if head.weight is not None:
            head.weight.copy_(head.weight[order])
        if isinstance(embedding, DenseEmbedding):
            embedding.weight.copy_(embedding.weight[order][:, order])
        elif isinstance(embedding, CompressedEmbedding):
            embedding.A.copy_(embedding.A[order])
            embedding.B.copy_(embedding.B[:, order])
            if embedding.bias is not None:
                embedding.bias.copy_(embedding.bias[order])
        elif isinstance(embedding, RunningEmbedding):
            embedding.mass.copy_(embedding.mass[order])
            if embedding.top_k is None:
                embedding.table.copy_(embedding.table[order][:, order])
            else:
                embedding.top_labels.copy_(torch.argsort(order)[embedding.top_labels[order]])
                embedding.top_probabilities.copy_(embedding.top_probabilities[order])


LABEL_AXES = {"embedding.weight": (0, 1), "embedding.B": (1,), "hidden": ()}
"""Which axes of a tensor count labels, where it is not the first."""


@settings(max_examples=80)
@given(case=cases(soft_targets=False))
def test_permuting_the_labels_permutes_everything(case: Case) -> None:
    """Also with ties in z2, which a plain argmax would break by the order of the labels."""
    if case.embedding.startswith("fixed"):
        case = replace(case, embedding="dense")
    order = torch.randperm(case.num_labels, generator=torch.Generator().manual_seed(case.seed))
    renamed = torch.argsort(order)  # renamed[old] = new

    class Permuted(Case):
        def inputs(self):  # type: ignore[no-untyped-def]
            hidden, targets, keywords = super().inputs()
            valid = targets != -100
            targets[valid] = renamed[targets[valid]]
            return hidden, targets, keywords

    head, other = case.head(), case.head()
    permute_labels(other, order)
    permuted = Permuted(**vars(case))
    expected, found = gradients(head, case), gradients(other, permuted)
    for name, value in expected.items():
        for axis in LABEL_AXES.get(name, (0,)):
            value = value.index_select(axis, order) if value.dim() else value
        torch.testing.assert_close(found[name], value, rtol=1e-9, atol=1e-11, msg=lambda m, n=name: f"{n}: {m}")
    if isinstance(head.embedding, RunningEmbedding):
        torch.testing.assert_close(stored_table(other.embedding), stored_table(head.embedding)[order][:, order])


PARTS = [
    "predictor.weight",
    "predictor.bias",
    "observer.weight",
    "observer.bias",
    "embedding.A",
    "embedding.B",
    "hidden",
]


@pytest.mark.parametrize("frozen", PARTS)
def test_freezing_one_part_leaves_the_gradients_of_the_others(frozen: str) -> None:
    found = {}
    for impl in ("autograd", "chunked"):
        case = Case(Objective(correct_only=False), "compressed", impl)
        head = case.head()
        hidden, targets, _ = case.inputs()
        leaves = dict(head.named_parameters()) | {"hidden": hidden.requires_grad_()}
        leaves[frozen].requires_grad_(False)
        head(hidden, targets).loss.backward()
        found[impl] = {name: leaf.grad for name, leaf in leaves.items() if name != frozen}
        assert leaves[frozen].grad is None
    for name, gradient in found["autograd"].items():
        assert gradient is not None, name
        torch.testing.assert_close(found["chunked"][name], gradient, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("ignored", [False, True])
@pytest.mark.parametrize("with_loss", [False, True])
def test_logits_that_come_with_the_loss_can_be_trained_through(ignored: bool, with_loss: bool) -> None:
    """A user's own regulariser on out.logits reaches hidden and predictor."""
    found = {}
    for impl in ("autograd", "auto"):
        case = Case(impl=impl, ignored=ignored)
        head = case.head()
        hidden, targets, _ = case.inputs()
        output = head(hidden.requires_grad_(), targets)
        assert output.logits is not None
        torch.testing.assert_close(output.logits, head.predictor(hidden))
        ((output.loss if with_loss else 0.0) + output.logits.square().mean()).backward()
        found[impl] = [hidden.grad, head.predictor.weight.grad, head.predictor.bias.grad]
    for gradient, expected in zip(found["auto"], found["autograd"], strict=True):
        torch.testing.assert_close(gradient, expected)


@pytest.mark.parametrize("impl", ["autograd", "chunked"])
def test_without_gradients_the_numbers_are_the_same(impl: str) -> None:
    case = Case(impl=impl, training=False)
    head = case.head()
    hidden, targets, _ = case.inputs()
    loss = head(hidden, targets).loss
    with torch.no_grad():
        quiet = head(hidden, targets).loss
    assert not quiet.requires_grad
    torch.testing.assert_close(quiet, loss.detach(), rtol=0, atol=0)
