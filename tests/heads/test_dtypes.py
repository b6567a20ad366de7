"""Half precision, autocast and other types of numbers."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from labelemb import (
    Head,
    LabelEmbeddingHead,
    Objective,
    OnlineSmoothingHead,
    PlainHead,
    RunningEmbedding,
)
from tests.helpers.all_heads import PEERS
from tests.helpers.cases import Case
from tests.helpers.comparison import loss_and_gradients

IMPLEMENTATIONS = ["autograd", "chunked"]
EMBEDDINGS = ["dense", "compressed", "compressed-bias", "running", "fixed"]


def single(case: Case) -> tuple[LabelEmbeddingHead, Tensor, Tensor]:
    """Head and inputs in float32."""
    hidden, targets, _ = case.inputs()
    return case.head().float(), hidden.float(), targets


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
def test_the_peers_compute_in_float32_as_well(make: Callable[[], Head]) -> None:
    torch.manual_seed(0)
    head = make()
    hidden, targets = torch.randn(5, 3).bfloat16(), torch.tensor([0, 1, 2, 3, -100])
    output, _ = loss_and_gradients(head, hidden, targets)
    assert output.loss.dtype == torch.float32
    with torch.autocast("cpu", torch.bfloat16):
        assert head(hidden, targets).loss.dtype == torch.float32


@pytest.mark.parametrize("make", PEERS)
def test_autocast_rounds_the_logits_of_peers_and_nothing_else(make: Callable[[], Head]) -> None:
    """Logits that bfloat16 holds: the loss with soft targets is the same, up to float32."""
    torch.manual_seed(0)
    head = make()
    if isinstance(head, OnlineSmoothingHead):
        head.targets.copy_(torch.randn(4, 4).softmax(1))
        head.first_epoch.fill_(False)
    with torch.no_grad():
        head.predictor.weight.copy_(torch.eye(4, 3))
        head.predictor.bias.zero_()
    hidden, targets = torch.randn(9, 3).bfloat16().float(), torch.rand(9, 4).softmax(1)
    expected = head.eval()(hidden, targets).loss
    with torch.autocast("cpu", torch.bfloat16):
        found = head(hidden, targets).loss
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=0)


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
