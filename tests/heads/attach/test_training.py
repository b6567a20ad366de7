"""attach: a model's last linear layer becomes a head, and the model stays what it was."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import prune

from labelemb import Head, HeadOutput, LabelEmbeddingHead, Objective, PlainHead, attach, predictor_only
from tests.helpers.attached import Net, Plain, X, Y, plain_model


def test_without_targets_the_model_gives_what_it_gave_before() -> None:
    model = plain_model()
    before = model(X)
    attached = attach(model, "fc")
    assert attached is model
    assert torch.equal(model(X), before)
    assert torch.equal(model(X, targets=None), before)


def test_with_targets_it_gives_what_the_head_gives_for_the_hidden_state() -> None:
    head = LabelEmbeddingHead.from_linear(plain_model().fc)
    model = attach(plain_model(), "fc")
    out = model(X, targets=Y)
    assert isinstance(out, HeadOutput)
    torch.testing.assert_close(out.loss, head(model.body(X).relu(), Y).loss)
    torch.testing.assert_close(out.logits, model(X))


def test_the_old_layer_is_the_predictor_and_the_observer_starts_as_its_copy() -> None:
    model = plain_model()
    layer = model.fc
    attach(model, "fc")
    head: Any = model.fc
    assert head.predictor is layer
    assert torch.equal(head.observer.weight, layer.weight)
    assert head.observer.weight is not layer.weight


def weight_norm_by_hooks(layer: nn.Linear) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch prefers the parametrization
        nn.utils.weight_norm(layer)


def pruned(layer: nn.Linear) -> None:
    for name in ("weight", "bias"):
        prune.l1_unstructured(layer, name, amount=0.5)


@pytest.mark.parametrize("impl", ["autograd", "chunked"])
@pytest.mark.parametrize("change", [weight_norm_by_hooks, nn.utils.parametrizations.weight_norm, pruned])
def test_a_layer_that_computes_its_weights_trains_as_it_would_alone(change: Callable[..., Any], impl: str) -> None:
    models = [plain_model(), plain_model()]
    for model in models:
        change(model.fc)
        with torch.no_grad():
            next(model.fc.parameters()).mul_(2)  # which the weights of the last call do not know
    plain, model = models
    expected = plain(X)
    attach(model, "fc", impl=impl, objective=Objective(hard_weight=1.0, soft_weight=0.0))
    head: Any = model.fc
    torch.testing.assert_close(head.observer(model.body(X).relu()), expected)
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in models]
    for _ in range(2):
        nn.functional.cross_entropy(plain(X), Y).backward()
        model(X, targets=Y).loss.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    torch.testing.assert_close(model(X), plain(X))
    torch.testing.assert_close(head.export_predictor()(plain.body(X).relu()), plain(X))


def test_options_go_to_the_new_head() -> None:
    head: Any = attach(
        plain_model(), "fc", embedding="compressed", rank=2, objective=Objective.paper(), ignore_index=-1
    ).fc
    assert head.embedding.rank == 2
    assert head.objective == Objective.paper()
    assert head.ignore_index == -1


def test_a_given_head_may_take_over_the_layer() -> None:
    model = plain_model()
    layer, expected = model.fc, model(X)
    attach(model, "fc", PlainHead.from_linear(layer))
    assert model.fc.predictor is layer
    assert torch.equal(model(X), expected)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("head", [None, LabelEmbeddingHead(8, 3, embedding="running")])
def test_the_head_is_in_the_mode_of_the_layer(head: Head | None, training: bool) -> None:
    """Else an evaluation right after `attach` would train the table."""
    model = attach(plain_model().train(training), "fc", head)
    assert all(module.training == training for module in model.modules())


def test_any_head_of_the_right_sizes_may_be_given() -> None:
    head = PlainHead(8, 3, label_smoothing=0.1)
    model = attach(plain_model(), "fc", head)
    expected = nn.functional.cross_entropy(model(X), Y, label_smoothing=0.1)
    torch.testing.assert_close(model(X, targets=Y).loss, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_given_head_goes_to_the_layers_device_and_keeps_its_precision(dtype: torch.dtype) -> None:
    model = attach(plain_model().to("meta", dtype), "fc", LabelEmbeddingHead(8, 3))
    assert {tensor.device.type for tensor in (*model.parameters(), *model.buffers())} == {"meta"}
    assert {parameter.dtype for parameter in model.fc.parameters()} == {torch.float32}


def test_a_layer_inside_a_submodule_is_found_by_its_path() -> None:
    model = attach(Net(), "classifier.1")
    assert isinstance(model.classifier[1], LabelEmbeddingHead)
    assert isinstance(model(X, targets=Y), HeadOutput)


@pytest.mark.parametrize("layer", ["fc", "heads.main"])
def test_a_layer_with_two_names_is_replaced_under_both(layer: str) -> None:
    model: Any = plain_model()
    model.heads = nn.ModuleDict({"main": model.fc})
    saved, expected = copy.deepcopy(model.state_dict()), model(X)
    attach(model, layer)
    assert model.fc is model.heads["main"]
    assert torch.equal(model(X, targets=Y).logits, expected)
    model.load_state_dict(saved)
    plain: Any = predictor_only(model)
    assert plain.fc is plain.heads["main"]
    assert torch.equal(plain(X), expected)


def test_a_second_positional_argument_stays_the_models_own() -> None:
    model, mask = Net(), torch.tensor([1.0, 0.0, 1.0, 1.0])
    expected = model(X, mask)
    attach(model, "classifier.1")
    assert torch.equal(model(X, mask), expected)
    for out in (model(X, mask, targets=Y), model(X, mask=mask, targets=Y)):
        assert isinstance(out, HeadOutput)
        torch.testing.assert_close(out.logits, expected)


def test_targets_are_keyword_only() -> None:
    with pytest.raises(
        TypeError, match=r"Plain takes 1 positional arguments, but 2 were given: pass targets by keyword"
    ):
        attach(plain_model(), "fc")(X, Y)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sample_weight": torch.ones(5)}, "sample_weight= is an argument of the head's loss: pass targets= beside it"),
        ({"targets": Y, "observed_hidden": X}, "observed_hidden= is for a head that you call yourself"),
    ],
)
def test_arguments_of_a_head_that_the_call_cannot_use_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=f"^{message}"):
        attach(plain_model(), "fc")(X, **arguments)


def test_a_model_that_takes_any_argument_gets_those_that_are_not_for_the_head() -> None:
    class Open(Plain):
        def forward(self, *args: Tensor, **kwargs: Any) -> Any:
            self.seen = (len(args), sorted(kwargs))
            return super().forward(args[0])

    model = attach(Open(), "fc")
    model(X, X, progress=0.5, observed_hidden=X)
    assert model.seen == (2, ["observed_hidden", "progress"])


def test_the_heads_call_options_are_passed_on() -> None:
    head = LabelEmbeddingHead.from_linear(plain_model().fc)
    model = attach(plain_model(), "fc")
    weights = torch.tensor([1.0, 0.0, 2.0, 1.0, 0.5])
    out = model(X, targets=Y, sample_weight=weights, num_items=10)
    expected = head(model.body(X).relu(), Y, sample_weight=weights, num_items=10)
    torch.testing.assert_close(out.loss, expected.loss)
    assert model(X, targets=Y, reduction="none").loss.shape == (5,)
    recommended = attach(plain_model(), "fc", embedding="running", objective=Objective.rising_floor())
    assert isinstance(recommended(X, targets=Y, progress=0.3), HeadOutput)


def test_the_heads_call_options_do_not_reach_the_model_where_targets_are_none() -> None:
    model = attach(plain_model(), "fc", embedding="running", objective=Objective.rising_floor())
    expected, weights = model(X), torch.ones(5)
    logits = model(X, targets=None, sample_weight=weights, num_items=5, progress=0.3, reduction="none")
    assert torch.equal(logits, expected)


def test_a_training_step_moves_body_predictor_observer_and_embedding() -> None:
    model = attach(plain_model(), "fc", embedding="dense")
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    model(X, targets=Y).loss.backward()
    optimizer.step()
    for name in ("body.weight", "fc.predictor.weight", "fc.observer.weight", "fc.embedding.weight"):
        assert not torch.equal(dict(model.named_parameters())[name], before[name]), name


def test_copies_of_an_attached_model_stay_apart() -> None:
    model = attach(plain_model(), "fc")
    other = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    first, second = model(X, targets=Y), other(X, targets=Y)
    assert isinstance(second, HeadOutput)
    assert second.logits is not None
    assert second.logits.abs().sum() == 0
    assert first.logits is not None
    assert first.logits.abs().sum() > 0
    assert isinstance(model(X), Tensor)


def test_a_state_dict_loads_into_another_attached_model() -> None:
    model, other = attach(plain_model(0), "fc"), attach(plain_model(1), "fc")
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(X), model(X))


def test_an_error_inside_the_model_leaves_no_targets_behind() -> None:
    model = attach(plain_model(), "fc")
    with pytest.raises(ValueError, match="four features"):
        model(torch.randn(5, 3), targets=Y)
    assert isinstance(model(X), Tensor)


def test_a_head_that_never_has_all_logits_in_memory_trains_the_model() -> None:
    model = Net()
    attach(model, "classifier.1", impl="chunked")
    head: Any = model.classifier[1]
    head.chunk_rows = 2
    out = model(X, targets=Y)
    assert out.logits is None
    out.loss.backward()
    assert model.body.weight.grad is not None


def test_eval_mode_gives_logits_and_losses_that_count_nothing() -> None:
    model = attach(plain_model(), "fc").eval()
    model(X, targets=Y)
    head: Any = model.fc
    assert int(head.counts.sum()) == 0
