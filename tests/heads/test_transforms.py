"""Second derivatives, compilation and the function transforms of torch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap

from labelemb import (
    Head,
    HeadOutput,
    LabelEmbeddingHead,
    Objective,
    OnlineSmoothingHead,
    PlainHead,
)
from tests.helpers.cases import Case
from tests.helpers.comparison import loss_and_gradients

EMBEDDINGS = ["dense", "compressed", "compressed-bias", "running", "fixed"]


@pytest.mark.parametrize("embedding", EMBEDDINGS)
@pytest.mark.parametrize("mass_floor", [0.0, 0.6])
def test_the_reference_can_be_differentiated_twice(embedding: str, mass_floor: float) -> None:
    """Over hidden and predictor, where no stop-gradient makes the numerical derivative see more than autograd."""
    case = Case(Objective(mass_floor=mass_floor), embedding, rows=3, training=False)
    head = case.head()
    hidden, targets, _ = case.inputs()
    weight = head.predictor.weight.detach().clone().requires_grad_()

    def loss(h: Tensor, w: Tensor) -> Tensor:
        output: HeadOutput = functional_call(head, {"predictor.weight": w}, (h, targets))
        return output.loss

    assert torch.autograd.gradgradcheck(loss, (hidden.requires_grad_(), weight))


def test_the_second_derivative_reaches_the_embedding() -> None:
    case = Case(rows=3)
    head = case.head()
    hidden, _, _ = case.inputs()
    targets = head.observer(hidden).argmax(-1)

    def loss(table: Tensor) -> Tensor:
        output: HeadOutput = functional_call(head, {"embedding.weight": table}, (hidden, targets))
        return output.terms.embedding

    assert torch.autograd.gradgradcheck(loss, (head.embedding.weight.detach().clone().requires_grad_(),))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("embedding", ["dense", "compressed", "running"])
def test_autograd_compiles_as_one_graph(backend: str, embedding: str) -> None:
    case = Case(Objective(mass_floor=0.5, soft_start=3), embedding, ignored=True, updates=4, progress=0.5)
    head = case.head()
    hidden, targets, keywords = case.inputs()
    expected = head(hidden, targets, **keywords)
    expected.loss.backward()
    wanted = {n: p.grad.clone() for n, p in head.named_parameters() if p.grad is not None}

    torch.compiler.reset()
    other = case.head()
    output = torch.compile(other, fullgraph=True, backend=backend)(hidden, targets, **keywords)
    output.loss.backward()
    torch.testing.assert_close(output.loss, expected.loss)
    for name, parameter in other.named_parameters():
        if name in wanted:
            torch.testing.assert_close(parameter.grad, wanted[name], msg=name)
    for name, value in head.state_dict().items():
        torch.testing.assert_close(other.state_dict()[name], value, msg=name)


def test_autograd_compiles_with_its_own_update_counter() -> None:
    torch.compiler.reset()
    case = Case(Objective(soft_start=2))
    hidden, targets, _ = case.inputs()
    compiled = torch.compile(case.head(), fullgraph=True, backend="eager")
    assert [compiled(hidden, targets).terms.soft.item() > 0 for _ in range(3)] == [False, False, True]


def test_autograd_compiles_with_total_steps_in_place_of_progress() -> None:
    torch.compiler.reset()
    case = Case(Objective(mass_floor=1.0, soft_weight=0.9))
    hidden, targets, _ = case.inputs()
    head = case.head()
    counting = LabelEmbeddingHead(
        3, 4, objective=case.objective, embedding=copy.deepcopy(head.embedding), impl="autograd", total_steps=4
    ).double()
    counting.load_state_dict(head.state_dict(), strict=False)
    compiled = torch.compile(counting, fullgraph=True, backend="eager")
    for step in range(3):
        expected = head(hidden, targets, progress=step / 4).loss
        torch.testing.assert_close(compiled(hidden, targets).loss, expected)


def test_autograd_compiles_with_soft_targets() -> None:
    torch.compiler.reset()
    case = Case(soft_targets=True)
    hidden, targets, _ = case.inputs()
    head = case.head()
    compiled = torch.compile(head, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(hidden, targets).loss, head(hidden, targets).loss)


@pytest.mark.parametrize("kind", [LabelEmbeddingHead, PlainHead])
def test_a_compiled_head_takes_a_num_items_that_changes(kind: type[Head]) -> None:
    torch.compiler.reset()
    head = kind(3, 4).eval()
    hidden, targets = torch.randn(6, 3), torch.randint(4, (6,))
    compiled = torch.compile(head, fullgraph=True, backend="eager")
    for num_items in (3, 7, 9, 2.5):
        expected = head(hidden, targets, num_items=num_items).loss
        torch.testing.assert_close(compiled(hidden, targets, num_items=num_items).loss, expected)


@pytest.mark.parametrize("backend", ["aot_eager", "aot_eager_decomp_partition"])
@pytest.mark.parametrize(
    "make",
    [
        lambda: PlainHead(3, 4, label_smoothing=0.9, mass_floor=0.9, total_steps=3),
        lambda: OnlineSmoothingHead(3, 4, rows_per_epoch=10, mass_floor=0.5, total_steps=3),
    ],
    ids=["clock", "matrix of the last epoch"],
)
def test_compiled_gradients_are_those_of_the_state_before_the_call(make: Callable[[], Head], backend: str) -> None:
    """A compiled backward pass computes cheap values again: the call has changed what they were made from by then."""
    torch.compiler.reset()
    head = make()
    other = copy.deepcopy(head)
    compiled = torch.compile(other, fullgraph=True, backend=backend)
    for _ in range(3):
        hidden, targets = torch.randn(12, 3), torch.randint(4, (12,))
        wanted = torch.autograd.grad(head(hidden, targets).loss, head.predictor.weight)
        found = torch.autograd.grad(compiled(hidden, targets).loss, other.predictor.weight)
        torch.testing.assert_close(found, wanted)


def test_a_compiled_head_does_without_its_kernel() -> None:
    def kernel(hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor) -> Tensor:
        raise AssertionError("a compiled head takes plain autograd")

    torch.compiler.reset()
    head = LabelEmbeddingHead(3, 4, kernel=kernel).eval()
    hidden, targets = torch.randn(6, 3), torch.randint(4, (6,))
    found = torch.compile(head, fullgraph=True, backend="eager")(hidden, targets).loss
    head.kernel = None
    torch.testing.assert_close(found, head(hidden, targets).loss)


@pytest.mark.parametrize("embedding", ["dense", "running"])
def test_a_compiled_step_may_return_terms_beside_the_loss(embedding: str) -> None:
    case = Case(embedding=embedding)
    hidden, targets, _ = case.inputs()
    head, other = case.head(), case.head()

    def step(hidden: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
        output = other(hidden, targets)
        return output.loss, *output.terms, output.terms.hard.detach()

    torch.compiler.reset()
    found = torch.compile(step, fullgraph=True, backend="aot_eager")(hidden, targets)
    found[0].backward()
    expected = head(hidden, targets)
    torch.testing.assert_close(found, (expected.loss, *expected.terms, expected.terms.hard.detach()))


TRANSFORMED: list[dict[str, Any]] = [
    {},
    {"impl": "autograd"},
    {"impl": "chunked"},
    {"embedding": "running"},
    {"kernel": lambda *_: pytest.fail("a transformed head takes plain autograd")},
]


def transformable(labels: int, options: dict[str, Any]) -> tuple[LabelEmbeddingHead, Tensor, Tensor]:
    torch.manual_seed(0)
    head = LabelEmbeddingHead(3, labels, **options).eval()
    return head, torch.randn(6, 3), torch.randint(labels, (6,))


def expected_gradients(head: LabelEmbeddingHead, hidden: Tensor, targets: Tensor) -> dict[str, Tensor]:
    head.impl, head.kernel = "autograd", None
    return loss_and_gradients(head, hidden, targets)[1]


@pytest.mark.parametrize("labels", [4, 100])
@pytest.mark.parametrize("options", TRANSFORMED)
def test_torch_func_differentiates_a_head_in_eval_mode(labels: int, options: dict[str, Any]) -> None:
    head, hidden, targets = transformable(labels, options)

    def loss(parameters: dict[str, Tensor]) -> Tensor:
        output: HeadOutput = functional_call(head, parameters, (hidden, targets))
        return output.loss

    found = grad(loss)({name: p.detach() for name, p in head.named_parameters()})
    wanted = expected_gradients(head, hidden, targets)
    for name, value in found.items():
        torch.testing.assert_close(value, wanted.get(name, torch.zeros_like(value)), msg=name)


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("labels", [4, 100])
def test_vmap_gives_the_gradients_of_single_rows_in_eval_mode(labels: int) -> None:
    head, hidden, targets = transformable(labels, {})

    def loss(parameters: dict[str, Tensor], row: Tensor, target: Tensor) -> Tensor:
        output: HeadOutput = functional_call(head, parameters, (row.unsqueeze(0), target.unsqueeze(0)))
        return output.loss

    parameters = {name: p.detach() for name, p in head.named_parameters()}
    found = vmap(grad(loss), (None, 0, 0))(parameters, hidden, targets)
    for row in range(len(targets)):
        wanted = expected_gradients(head, hidden[row : row + 1], targets[row : row + 1])
        for name, value in found.items():
            torch.testing.assert_close(value[row], wanted.get(name, torch.zeros_like(value[row])), msg=name)
