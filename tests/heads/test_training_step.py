"""A whole training step where torch changes how it runs: compiled, in mixed precision, exported, saved and copied."""

from __future__ import annotations

import copy
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from labelemb import LabelEmbeddingHead, Objective, attach, predictor_only

X = torch.randn(24, 6, generator=torch.Generator().manual_seed(0))
Y = torch.arange(24) % 5
OPTIONS: dict[str, dict[str, Any]] = {
    "dense": {},
    "compressed": {"embedding": "compressed", "rank": 2},
    "recommended": {"embedding": "running", "objective": Objective.rising_floor()},
    "chunked": {"impl": "chunked"},
    "some rows": {"embedding": "running", "observe_rows": 8},
}


def make_model(**options: Any) -> nn.Module:
    torch.manual_seed(0)
    return attach(nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 5)), "2", **options)


def train(model: nn.Module, call: Any, steps: int = 3, autocast: bool = False) -> list[float]:
    """The losses of some steps of Adam; `call` is the model or its compiled form."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    head: Any = model[2]  # type: ignore[index]
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        progress = {"progress": step / steps} if head.objective.mass_floor else {}
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            loss: Tensor = call(X, targets=Y, **progress).loss
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def check_compiled(backend: str, options: dict[str, Any]) -> None:
    """The same losses, parameters and counts as without, from one graph; from two where the progress varies."""
    plain, model = make_model(**options), make_model(**options)
    expected = train(plain, plain)
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()
    found = train(model, torch.compile(model, backend=backend, fullgraph=True))
    assert found == pytest.approx(expected, rel=1e-4)
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], value, rtol=1e-3, atol=1e-4, msg=name)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == (2 if "objective" in options else 1)


@pytest.mark.parametrize("name", ["dense", "recommended", "compressed", "some rows"])
def test_a_compiled_model_trains_as_it_does_uncompiled(name: str) -> None:
    check_compiled("aot_eager", OPTIONS[name])


@pytest.mark.slow  # it compiles for half a minute
@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a C++ compiler")
def test_inductor_trains_the_same_model() -> None:
    check_compiled("inductor", {})


def test_a_compiled_step_with_the_optimiser_in_it_is_the_plain_step() -> None:
    """The backward pass and the optimiser stay outside the graphs, as torch leaves them; the numbers do not change."""
    plain, model = make_model(), make_model()
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.1) for one in (plain, model)]

    def step(one: nn.Module, optimizer: torch.optim.Optimizer) -> Tensor:
        out = one(X, targets=Y)
        out.loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return out.loss.detach()

    torch.compiler.reset()
    compiled = torch.compile(step, backend="eager")
    for _ in range(2):
        torch.testing.assert_close(compiled(model, optimizers[1]), step(plain, optimizers[0]))


@pytest.mark.parametrize("chunk_rows", [None, 7])
@pytest.mark.parametrize("name", OPTIONS)
def test_bfloat16_autocast_trains_float32_parameters(name: str, chunk_rows: int | None) -> None:
    model = make_model(**OPTIONS[name])
    head: Any = model[2]  # type: ignore[index]
    head.chunk_rows = chunk_rows
    losses = train(model, model, autocast=True)
    plain = make_model(**OPTIONS[name])
    assert losses == pytest.approx(train(plain, plain), rel=0.05)
    for parameter_name, parameter in model.named_parameters():
        assert parameter.dtype == torch.float32, parameter_name
        if parameter.grad is not None:
            assert parameter.grad.dtype == torch.float32, parameter_name
            assert parameter.grad.isfinite().all(), parameter_name


@pytest.mark.parametrize("strict", [False, True])
def test_an_exported_program_gives_the_models_answers_for_batches_of_any_size(strict: bool) -> None:
    model = make_model().eval()
    sizes = ({0: torch.export.Dim("batch")},)
    program = torch.export.export(predictor_only(model), (X,), dynamic_shapes=sizes, strict=strict)
    assert list(program.state_dict) == ["0.weight", "0.bias", "2.weight", "2.bias"], "training parts are left out"
    for rows in (2, 24):
        torch.testing.assert_close(program.module()(X[:rows]), model(X[:rows]))


def test_an_attached_model_can_be_exported_as_it_is_with_its_training_parts_as_dead_weight() -> None:
    model = make_model().eval()
    program = torch.export.export(model, (X,))
    torch.testing.assert_close(program.module()(X), model(X))
    assert "2.observer.weight" in program.state_dict


@pytest.mark.parametrize("name", OPTIONS)
def test_saved_weights_are_plain_tensors_that_go_on_training_where_they_stopped(name: str, tmp_path: Path) -> None:
    model = make_model(**OPTIONS[name])
    train(model, model)
    torch.save(model.state_dict(), tmp_path / "model.pt")
    other = make_model(**OPTIONS[name])
    other.load_state_dict(torch.load(tmp_path / "model.pt", weights_only=True))
    assert torch.equal(other(X), model(X))
    assert train(other, other) == train(model, model)


def test_a_whole_model_can_be_pickled() -> None:
    """By torch.save of the module, which torch loads only from sources that are trusted."""
    import pickle

    model = make_model()
    other = pickle.loads(pickle.dumps(model))
    assert isinstance(other[2], LabelEmbeddingHead)
    assert train(other, other) == train(model, model)


def parametrized_observer_gradients(impl: Any) -> dict[str, Tensor | None]:
    torch.manual_seed(0)
    head = LabelEmbeddingHead(6, 5, impl=impl)
    nn.utils.parametrizations.weight_norm(head.observer)
    head(X, Y).loss.backward()
    return {name: parameter.grad for name, parameter in head.named_parameters()}


@pytest.mark.parametrize("impl", ["auto", "chunked"])
def test_an_observer_that_computes_its_weights_is_trained(impl: str) -> None:
    expected, found = parametrized_observer_gradients("autograd"), parametrized_observer_gradients(impl)
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, msg=lambda m, n=name: f"{n}: {m}")


def replica(module: nn.Module) -> nn.Module:
    """What `nn.DataParallel` calls on each device, made as torch's `replicate` does, which needs GPUs."""
    copied: Any = module._replicate_for_data_parallel()  # type: ignore[operator]
    copied._former_parameters = {}
    for name, parameter in module._parameters.items():
        value = None if parameter is None else parameter.clone()
        setattr(copied, name, value)
        if value is not None:
            copied._former_parameters[name] = value
    copied._modules = {name: child and replica(child) for name, child in module._modules.items()}
    return copied


@pytest.mark.parametrize("impl", ["auto", "autograd", "chunked"])
@pytest.mark.parametrize("name", ["dense", "compressed"])
def test_replicas_of_data_parallel_train_the_head(name: str, impl: Any) -> None:
    torch.manual_seed(0)
    head = LabelEmbeddingHead(6, 5, **OPTIONS[name], impl=impl)
    same = copy.deepcopy(head)
    replica(head)(X, Y).loss.backward()
    same(X, Y).loss.backward()
    for (part, parameter), other in zip(head.named_parameters(), same.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, other.grad, msg=lambda m, n=part: f"{n}: {m}")
