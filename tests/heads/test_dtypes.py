"""Half precision, autocast, copies, saved state, second derivatives and compilation."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap

from labelemb import (
    ConfidencePenaltyHead,
    Head,
    HeadOutput,
    LabelEmbeddingHead,
    Objective,
    OnlineSmoothingHead,
    PlainHead,
    RunningEmbedding,
    TeacherFreeHead,
)
from tests.helpers.comparison import Case

IMPLEMENTATIONS = ["autograd", "chunked"]
EMBEDDINGS = ["dense", "compressed", "compressed-bias", "running", "fixed"]
PEERS = [
    lambda: PlainHead(3, 4, label_smoothing=0.1),
    lambda: OnlineSmoothingHead(3, 4, rows_per_epoch=10),
    lambda: ConfidencePenaltyHead(3, 4),
    lambda: TeacherFreeHead(3, 4),
]


def single(case: Case) -> tuple[LabelEmbeddingHead, Tensor, Tensor]:
    """Head and inputs in float32."""
    hidden, targets, _ = case.inputs()
    return case.head().float(), hidden.float(), targets


def loss_and_gradients(head: Head, hidden: Tensor, targets: Tensor) -> tuple[HeadOutput, dict[str, Tensor]]:
    hidden = hidden.detach().clone().requires_grad_()
    head.zero_grad()
    output = head(hidden, targets)
    output.loss.backward()
    found = {n: p.grad.clone() for n, p in head.named_parameters() if p.grad is not None}
    return output, found | {"hidden": hidden.grad}


@pytest.mark.parametrize("impl", IMPLEMENTATIONS)
@pytest.mark.parametrize("embedding", EMBEDDINGS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_inputs_are_computed_in_float32(impl: str, embedding: str, dtype: torch.dtype) -> None:
    head, hidden, targets = single(Case(embedding=embedding, impl=impl, training=False))
    half = hidden.to(dtype)
    output, found = loss_and_gradients(head, half, targets)
    expected, wanted = loss_and_gradients(head, half.float(), targets)
    assert output.loss.dtype == torch.float32
    assert found["hidden"].dtype == dtype
    torch.testing.assert_close(output.loss, expected.loss, rtol=1e-5, atol=1e-6)
    for name, value in wanted.items():
        tolerance = 1e-2 if name == "hidden" else 1e-5
        torch.testing.assert_close(found[name].float(), value, rtol=tolerance, atol=1e-3 * tolerance, msg=name)


@pytest.mark.parametrize("impl", IMPLEMENTATIONS)
@pytest.mark.parametrize("embedding", EMBEDDINGS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_head_in_half_precision_stays_near_its_float32_self(impl: str, embedding: str, dtype: torch.dtype) -> None:
    head, hidden, targets = single(Case(embedding=embedding, impl=impl, training=False))
    expected, wanted = loss_and_gradients(head, hidden, targets)
    output, found = loss_and_gradients(head.to(dtype), hidden.to(dtype), targets)
    assert output.loss.dtype == torch.float32
    torch.testing.assert_close(output.loss, expected.loss, rtol=3e-2, atol=3e-2)
    for name, value in wanted.items():
        assert found[name].dtype == dtype, name
        torch.testing.assert_close(found[name].float(), value, rtol=0.1, atol=0.05, msg=name)


@pytest.mark.parametrize("impl", IMPLEMENTATIONS)
@pytest.mark.parametrize("embedding", EMBEDDINGS)
def test_autocast_gives_a_float32_loss_and_gradients_of_the_parameters_type(impl: str, embedding: str) -> None:
    head, hidden, targets = single(Case(embedding=embedding, impl=impl, training=False))
    expected, wanted = loss_and_gradients(head, hidden, targets)
    hidden = hidden.requires_grad_()
    head.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        output = head(hidden.to(torch.bfloat16), targets)
    output.loss.backward()
    assert output.loss.dtype == torch.float32
    torch.testing.assert_close(output.loss, expected.loss, rtol=3e-2, atol=3e-2)
    for name, parameter in head.named_parameters():
        if name in wanted:
            assert parameter.grad is not None, name
            assert parameter.grad.dtype == torch.float32
            torch.testing.assert_close(parameter.grad, wanted[name], rtol=0.1, atol=0.05, msg=name)


@pytest.mark.parametrize("impl", ["auto", *IMPLEMENTATIONS])
@pytest.mark.parametrize(("of_hidden", "of_head"), [("float64", "float32"), ("float32", "float64")])
def test_autocast_takes_float64_beside_float32(impl: str, of_hidden: str, of_head: str) -> None:
    torch.manual_seed(0)
    head = LabelEmbeddingHead(3, 4, impl=impl).eval().to(getattr(torch, of_head))
    hidden, targets = torch.randn(5, 3, dtype=getattr(torch, of_hidden)), torch.randint(4, (5,))
    expected = head(hidden, targets).loss
    with torch.autocast("cpu", torch.bfloat16):
        assert head(hidden).shape == (5, 4)
        output = head(hidden, targets)
    output.loss.backward()
    torch.testing.assert_close(output.loss, expected, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("impl", ["auto", *IMPLEMENTATIONS])
@pytest.mark.parametrize("labels", [4, 100])
def test_a_head_on_the_meta_device_tells_shapes(impl: str, labels: int) -> None:
    with torch.device("meta"):
        head = LabelEmbeddingHead(3, labels, impl=impl)
        output = head(torch.randn(5, 3), torch.zeros(5, dtype=torch.long))
    output.loss.backward()
    assert output.loss.shape == ()
    assert head.predictor.weight.grad.shape == (labels, 3)


@pytest.mark.parametrize("impl", ["auto", *IMPLEMENTATIONS])
def test_the_first_scale_of_a_grad_scaler_is_not_too_large_for_float16(impl: str) -> None:
    torch.manual_seed(0)
    head = LabelEmbeddingHead(8, 5, impl=impl)
    with torch.autocast("cpu", torch.float16):
        loss = head(torch.randn(64, 8), torch.randint(5, (64,))).loss
    torch.amp.GradScaler("cpu").scale(loss).backward()
    for name, parameter in head.named_parameters():
        assert bool(parameter.grad.isfinite().all()), name


@pytest.mark.parametrize("labels", [20, 300])
@pytest.mark.parametrize("impl", ["auto", *IMPLEMENTATIONS])
def test_a_scaled_loss_keeps_small_gradients_from_vanishing_in_float16(impl: str, labels: int) -> None:
    """Each row counts for one of half a million, so that without the scale its gradient would be 0 in float16."""
    torch.manual_seed(0)
    scale = 32768.0
    head = LabelEmbeddingHead(64, labels, objective=Objective(correct_only=False), impl=impl)
    hidden, targets = torch.randn(200, 64).half(), torch.randint(labels, (200,))

    def gradients(inputs: Tensor) -> dict[str, Tensor]:
        head.zero_grad()
        (head(inputs, targets, num_items=500_000).loss * scale).backward()
        assert inputs.grad is not None
        return {name: p.grad.clone() for name, p in head.named_parameters()} | {"hidden": inputs.grad.float()}

    wanted = gradients(hidden.float().requires_grad_())
    with torch.autocast("cpu", torch.float16):
        found = gradients(hidden.clone().requires_grad_())
    for name, value in wanted.items():
        assert float((found[name] - value).norm() / value.norm()) < 0.01, name


@pytest.mark.parametrize("make", PEERS)
def test_the_peers_compute_in_float32_as_well(make: object) -> None:
    torch.manual_seed(0)
    head: Head = make()  # type: ignore[operator]
    hidden, targets = torch.randn(5, 3).bfloat16(), torch.tensor([0, 1, 2, 3, -100])
    output, _ = loss_and_gradients(head, hidden, targets)
    assert output.loss.dtype == torch.float32
    with torch.autocast("cpu", torch.bfloat16):
        assert head(hidden, targets).loss.dtype == torch.float32


def test_confident_half_precision_logits_keep_their_small_probabilities() -> None:
    """log-softmax of bfloat16 logits in bfloat16 would round the loss of a confident row to steps of a percent."""
    head = PlainHead(1, 2, bias=False).to(torch.bfloat16)
    with torch.no_grad():
        head.predictor.weight.copy_(torch.tensor([[6.0], [0.0]]))
    loss = head(torch.ones(1, 1, dtype=torch.bfloat16), torch.tensor([0])).loss
    assert loss.item() == pytest.approx(0.0024756851, rel=1e-4)


@pytest.mark.parametrize("impl", IMPLEMENTATIONS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_running_table_learns_in_float32_whatever_the_heads_type(impl: str, dtype: torch.dtype) -> None:
    """A mean over an epoch moves by less than half precision can hold."""
    torch.manual_seed(0)
    embedding = RunningEmbedding(4, rows_per_epoch=1_000_000)
    head = LabelEmbeddingHead(3, 4, embedding=embedding, objective=Objective(correct_only=False), impl=impl)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.copy_(parameter.to(dtype))
    half = copy.deepcopy(head).to(dtype)
    for _ in range(50):
        hidden, targets = torch.randn(200, 3).to(dtype), torch.randint(4, (200,))
        head(hidden.float(), targets)
        half(hidden, targets)
    everything = torch.arange(4)
    moved = head.embedding.probabilities(everything) - torch.eye(4)
    assert float(moved.abs().max()) > 0.005
    found = half.embedding.probabilities(everything).float() - torch.eye(4)
    torch.testing.assert_close(found, moved, rtol=0.05, atol=1e-3)


def test_online_smoothing_sums_an_epoch_in_float32_whatever_the_heads_type() -> None:
    """In bfloat16 a sum stops growing at some hundreds of rows, and the means of a long epoch would shrink to zero."""
    torch.manual_seed(0)
    head = OnlineSmoothingHead(3, 4, rows_per_epoch=8000).to(torch.bfloat16)
    for _ in range(1000):
        hidden = torch.randn(8, 3).bfloat16()
        head(hidden, head(hidden).argmax(-1))
    assert not bool(head.first_epoch)
    torch.testing.assert_close(head.targets.float().sum(1), torch.ones(4), rtol=0.02, atol=0)


def trained(case: Case) -> LabelEmbeddingHead:
    """A head whose counters and running table have moved."""
    head = case.head()
    hidden, targets, keywords = case.inputs()
    for _ in range(2):
        head(hidden, targets, **keywords)
    return head


def state_case(embedding: str) -> Case:
    objective = Objective(soft_start=2, mass_floor=0.5)
    return Case(objective, embedding, weight=True, progress=0.5)


@pytest.mark.parametrize("embedding", EMBEDDINGS)
def test_a_deep_copy_gives_the_same_numbers_and_lives_its_own_life(embedding: str) -> None:
    case = state_case(embedding)
    head = trained(case)
    hidden, targets, keywords = case.inputs()
    other = copy.deepcopy(head)
    before = {name: value.clone() for name, value in head.state_dict().items()}
    assert torch.equal(other.eval()(hidden, targets, **keywords).loss, head.eval()(hidden, targets, **keywords).loss)
    other.train()(hidden, targets, **keywords).loss.backward()
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(1.0)
    for name, value in head.state_dict().items():
        assert torch.equal(value, before[name]), name


@pytest.mark.parametrize("embedding", EMBEDDINGS)
def test_the_state_dict_carries_everything_that_training_changes(embedding: str) -> None:
    case = state_case(embedding)
    head = trained(case)
    hidden, targets, keywords = case.inputs()
    fresh = case.head()
    with torch.no_grad():
        for parameter in fresh.parameters():
            parameter.zero_()
    fresh.load_state_dict(head.state_dict(), strict=True)
    for _ in range(2):
        first, second = head(hidden, targets, **keywords), fresh(hidden, targets, **keywords)
        assert torch.equal(first.loss, second.loss)


@pytest.mark.parametrize("make", PEERS)
def test_the_peers_state_dict_carries_everything_as_well(make: object) -> None:
    torch.manual_seed(0)
    head, fresh = make(), make()  # type: ignore[operator]
    hidden, targets = torch.randn(12, 3), torch.randint(4, (12,))
    head(hidden, targets)
    fresh.load_state_dict(head.state_dict(), strict=True)
    for _ in range(3):
        assert torch.equal(head(hidden, targets).loss, fresh(hidden, targets).loss)
    assert torch.equal(copy.deepcopy(head)(hidden, targets).loss, head(hidden, targets).loss)


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
