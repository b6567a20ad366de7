"""attach: a model's last linear layer becomes a head, and the model stays what it was."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from labelemb import Head, HeadOutput, LabelEmbeddingHead, Objective, PlainHead, attach, predictor_only


class Net(nn.Module):
    """A model with its last layer inside a submodule, something behind that layer, and an argument of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 8)
        self.classifier = nn.Sequential(nn.ReLU(), nn.Linear(8, 3))

    def forward(self, x: Tensor, scale: float = 1.0) -> Tensor:
        return self.classifier(self.body(x)) * scale


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 8)
        self.fc = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[-1] != 4:
            raise ValueError("four features, please")
        return self.fc(self.body(x).relu())


X = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
Y = torch.tensor([0, 1, 2, 0, 1])


def plain_model(seed: int = 0) -> Plain:
    torch.manual_seed(seed)
    return Plain()


def test_without_targets_the_model_gives_what_it_gave_before() -> None:
    model = plain_model()
    before = model(X)
    attached = attach(model, "fc")
    assert attached is model
    assert torch.equal(model(X), before)
    assert torch.equal(model(X, None), before)


def test_with_targets_it_gives_what_the_head_gives_for_the_hidden_state() -> None:
    head = LabelEmbeddingHead.from_linear(plain_model().fc)
    model = attach(plain_model(), "fc")
    out = model(X, Y)
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


def test_options_go_to_the_new_head() -> None:
    head: Any = attach(plain_model(), "fc", rank=2, objective=Objective.paper(), ignore_index=-1).fc
    assert head.embedding.rank == 2
    assert head.objective == Objective.paper()
    assert head.ignore_index == -1


def test_any_head_of_the_right_sizes_may_be_given() -> None:
    head = PlainHead(8, 3, label_smoothing=0.1)
    model = attach(plain_model(), "fc", head)
    expected = nn.functional.cross_entropy(model(X), Y, label_smoothing=0.1)
    torch.testing.assert_close(model(X, Y).loss, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_given_head_goes_to_the_layers_device_and_keeps_its_precision(dtype: torch.dtype) -> None:
    model = attach(plain_model().to("meta", dtype), "fc", LabelEmbeddingHead(8, 3))
    assert {tensor.device.type for tensor in (*model.parameters(), *model.buffers())} == {"meta"}
    assert {parameter.dtype for parameter in model.fc.parameters()} == {torch.float32}


def test_a_layer_inside_a_submodule_is_found_by_its_path() -> None:
    model = attach(Net(), "classifier.1")
    assert isinstance(model.classifier[1], LabelEmbeddingHead)
    assert isinstance(model(X, targets=Y), HeadOutput)


def test_an_argument_of_the_models_own_stays_its_own() -> None:
    model = Net()
    expected = model(X, 2.0)
    attach(model, "classifier.1")
    assert torch.equal(model(X, 2.0), expected)  # the second positional argument is still `scale`
    assert isinstance(model(X, 2.0, Y), HeadOutput)  # one more than forward takes: the targets
    assert isinstance(model(X, scale=2.0, targets=Y), HeadOutput)


def test_the_heads_call_options_are_passed_on() -> None:
    head = LabelEmbeddingHead.from_linear(plain_model().fc)
    model = attach(plain_model(), "fc")
    weights = torch.tensor([1.0, 0.0, 2.0, 1.0, 0.5])
    out = model(X, Y, sample_weight=weights, num_items=10)
    expected = head(model.body(X).relu(), Y, sample_weight=weights, num_items=10)
    torch.testing.assert_close(out.loss, expected.loss)
    assert model(X, Y, reduction="none").loss.shape == (5,)
    recommended = attach(plain_model(), "fc", objective=Objective.recommended())
    assert isinstance(recommended(X, Y, progress=0.3), HeadOutput)


def test_the_heads_call_options_do_not_reach_the_model_where_targets_are_none() -> None:
    model = attach(plain_model(), "fc", objective=Objective.recommended())
    expected, weights = model(X), torch.ones(5)
    for logits in (
        model(X, None, progress=0.3, step=2),
        model(X, targets=None, sample_weight=weights, num_items=5, reduction="none"),
    ):
        assert torch.equal(logits, expected)


def test_a_training_step_moves_body_predictor_observer_and_embedding() -> None:
    model = attach(plain_model(), "fc")
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    model(X, Y).loss.backward()
    optimizer.step()
    for name in ("body.weight", "fc.predictor.weight", "fc.observer.weight", "fc.embedding.weight"):
        assert not torch.equal(dict(model.named_parameters())[name], before[name]), name


def test_copies_of_an_attached_model_stay_apart() -> None:
    model = attach(plain_model(), "fc")
    other = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    first, second = model(X, Y), other(X, Y)
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
        model(torch.randn(5, 3), Y)
    assert isinstance(model(X), Tensor)


def test_what_the_model_does_behind_its_last_layer_sees_logits_of_the_right_shape() -> None:
    """Also where the chunked implementation never had all logits in memory."""
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
    model(X, Y)
    head: Any = model.fc
    assert int(head.counts.sum()) == 0


@pytest.mark.parametrize(
    ("layer", "head", "options", "message"),
    [
        ("fd", None, {}, r"no layer 'fd'; its linear layers: body, fc"),
        (None, None, {}, r"name the layer to replace; its linear layers: body, fc"),
        ("", None, {}, r"no layer ''"),
        ("body", PlainHead(8, 3), {}, r"the head is 8 -> 3, but layer 'body' 4 -> 8"),
        ("fc", PlainHead(8, 3), {"rank": 2}, r"options \['rank'\] go to a new head, but head= was given"),
    ],
)
def test_a_wrong_place_or_head_is_refused_and_the_model_kept(
    layer: str | None, head: Head | None, options: dict[str, Any], message: str
) -> None:
    model = plain_model()
    with pytest.raises(ValueError, match=message):
        attach(model, layer, head, **options)
    assert isinstance(model.fc, nn.Linear)


def test_only_a_linear_layer_can_be_replaced_and_only_once() -> None:
    model = Net()
    with pytest.raises(ValueError, match=r"'classifier.0' is a ReLU, but only an nn.Linear"):
        attach(model, "classifier.0")
    attach(model, "classifier.1")
    with pytest.raises(ValueError, match="is a head already"):
        attach(model, "classifier.1")


def test_the_predictor_alone_is_a_plain_model_with_the_same_answers() -> None:
    model = attach(plain_model(), "fc")
    plain = predictor_only(model)
    assert type(plain.fc) is nn.Linear
    assert [name for name, _ in plain.named_parameters()] == ["body.weight", "body.bias", "fc.weight", "fc.bias"]
    assert torch.equal(plain(X), model(X))
    with pytest.raises(TypeError):
        plain(X, Y)  # nothing of the attachment is left
    with torch.no_grad():
        plain.fc.weight.zero_()
    assert isinstance(model(X, Y), HeadOutput)
    assert model(X).abs().sum() > 0


def test_the_predictor_alone_may_be_calibrated() -> None:
    model = attach(plain_model(), "fc")
    head: Any = model.fc
    head.temperature.fill_(0.5)
    torch.testing.assert_close(predictor_only(model, fold_temperature=True)(X), 2 * model(X))


def test_heads_that_a_model_has_of_its_own_become_linear_layers_as_well() -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = LabelEmbeddingHead(4, 3), PlainHead(4, 2)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return self.first(x), self.second(x)

    model = Own()
    plain = predictor_only(model)
    assert not any(isinstance(module, Head) for module in plain.modules())
    for expected, found in zip(model(X), plain(X), strict=True):
        assert torch.equal(found, expected)


def test_weights_that_the_predictor_shares_stay_shared_in_copies() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(7, 4)
            self.out = nn.Linear(4, 7, bias=False)
            self.out.weight = self.words.weight

        def forward(self, tokens: Tensor) -> Tensor:
            return self.out(self.words(tokens))

    model = attach(Tied(), "out", rank=2)
    copied: Any = copy.deepcopy(model)
    assert copied.out.predictor.weight is copied.words.weight
    assert copied.words.weight is not model.words.weight
    tokens = torch.tensor([1, 2, 3])
    assert torch.equal(copied(tokens, tokens).loss, model(tokens, tokens).loss)
    plain: Any = predictor_only(model)
    assert plain.out.weight is plain.words.weight
