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


class Net(nn.Module):
    """A model with its last layer inside a submodule and a second positional argument, as a ViT's `attn_mask`."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 8)
        self.classifier = nn.Sequential(nn.ReLU(), nn.Linear(8, 3))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.classifier(self.body(x if mask is None else x * mask))


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


@pytest.mark.parametrize(
    ("layer", "head", "options", "message"),
    [
        ("fd", None, {}, r"no layer 'fd'; its linear layers: body, fc"),
        (None, None, {}, r"name the layer to replace; its linear layers: body, fc"),
        ("", None, {}, r"no layer ''"),
        ("body", PlainHead(8, 3), {}, r"the head is 8 -> 3, but layer 'body' 4 -> 8"),
        (
            "fc",
            PlainHead(8, 3),
            {"rank": 2},
            r"options \['rank'\] go to a new head, but head= was given",
        ),
    ],
)
def test_a_wrong_place_or_head_is_refused_and_the_model_kept(
    layer: str | None, head: Head | None, options: dict[str, Any], message: str
) -> None:
    model = plain_model()
    with pytest.raises(ValueError, match=message):
        attach(model, layer, head, **options)
    assert isinstance(model.fc, nn.Linear)


def test_the_layers_name_must_be_a_string() -> None:
    with pytest.raises(TypeError, match=r"^layer is 2, but must be a name as in model.named_modules\(\), a str"):
        attach(Net(), 2)  # type: ignore[arg-type]


def test_only_a_linear_layer_can_be_replaced_and_only_once() -> None:
    model = Net()
    with pytest.raises(ValueError, match=r"'classifier.0' is a ReLU, but only an nn.Linear"):
        attach(model, "classifier.0")
    attach(model, "classifier.1")
    with pytest.raises(ValueError, match="is a head already"):
        attach(model, "classifier.1")


class Behind(Plain):
    """Does something with the output of its last layer."""

    def __init__(self, change: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.change, self.other, self.scale = change, nn.Linear(4, 3), nn.Parameter(torch.tensor(2.0))

    def forward(self, x: Tensor) -> Any:
        return self.change(self, super().forward(x), x)  # type: ignore[call-arg]


CHANGES: dict[str, tuple[Callable[..., Any], str]] = {
    "a second head, both given": (lambda model, logits, x: (logits, model.other(x)), "a tuple"),
    "a second head, averaged": (lambda model, logits, x: (logits + model.other(x)) / 2, "another tensor"),
    "a residual": (lambda model, logits, x: logits + model.other(x), "another tensor"),
    "a logit scale": (lambda model, logits, x: logits * model.scale, "another tensor"),
    "a softmax": (lambda model, logits, x: logits.softmax(-1), "another tensor"),
    "a dictionary": (lambda model, logits, x: {"out": logits}, "a dict"),
    "another layer": (lambda model, logits, x: model.other(x), "another tensor"),
}


@pytest.mark.parametrize("impl", ["auto", "chunked"])
@pytest.mark.parametrize("name", list(CHANGES))
def test_a_model_whose_output_is_not_that_of_the_layer_is_refused_at_every_call_with_targets(
    name: str, impl: str
) -> None:
    change, given = CHANGES[name]
    model = Behind(change)
    expected = model(X)
    attach(model, "fc", impl=impl)
    message = f"Behind must return the output of layer 'fc' unchanged, but returned {given}: "
    for _ in range(2):
        with pytest.raises(ValueError, match=message):
            model(X, targets=Y)
    found = model(X)
    assert type(found) is type(expected)  # and predicts as before
    if isinstance(found, Tensor):
        assert torch.equal(found, expected)


CHANGES_IN_PLACE: dict[str, Callable[..., Tensor]] = {
    "auto": lambda model, logits, x: logits.div_(0.1),
    "chunked": lambda model, logits, x: logits.index_fill_(1, Y[:1], -9),
}


@pytest.mark.filterwarnings("ignore:Use of index_fill_ on expanded tensors")
@pytest.mark.parametrize("impl", list(CHANGES_IN_PLACE))
def test_a_model_that_changes_its_logits_in_place_is_refused_at_every_call_with_targets(impl: str) -> None:
    model = attach(Behind(CHANGES_IN_PLACE[impl]), "fc", impl=impl)
    for _ in range(2):
        with pytest.raises(ValueError, match="layer 'fc' unchanged, but returned it changed in place"):
            model(X, targets=Y)


def test_a_compiled_model_that_changes_its_logits_in_place_is_refused() -> None:
    model = attach(Behind(CHANGES_IN_PLACE["auto"]), "fc")
    torch.compiler.reset()
    with pytest.raises(RuntimeError, match="is a view and is being modified inplace"):
        torch.compile(model, backend="eager")(X, targets=Y)


@pytest.mark.parametrize("compiled", [False, True])
def test_targets_may_be_given_in_inference_mode(compiled: bool) -> None:
    model = attach(plain_model(), "fc").eval()
    called = torch.compile(model, backend="aot_eager") if compiled else model
    with torch.inference_mode():
        torch.testing.assert_close(called(X, targets=Y).loss, model(X, targets=Y).loss)


def test_a_model_that_leaves_the_layer_out_of_a_call_is_refused() -> None:
    class Skips(Plain):
        def forward(self, x: Tensor) -> Tensor:
            return self.body(x)

    with pytest.raises(ValueError, match="must return the output of layer 'fc' unchanged, but returned another tensor"):
        attach(Skips(), "fc")(X, targets=Y)


def test_a_model_that_calls_the_layer_twice_is_refused() -> None:
    class Twice(Plain):
        def forward(self, x: Tensor) -> Tensor:
            self.fc(self.body(-x))
            return super().forward(x)

    with pytest.raises(ValueError, match="calls layer 'fc' twice"):
        attach(Twice(), "fc")(X, targets=Y)


def test_a_layer_that_is_replaced_later_is_an_error_and_can_be_attached_to_again() -> None:
    model = attach(plain_model(), "fc")
    copied = copy.deepcopy(model)
    model.fc = nn.Linear(8, 6)  # what reset_classifier of timm does
    for arguments in ({}, {"targets": Y}):
        with pytest.raises(ValueError, match="layer 'fc' was replaced after `attach`"):
            model(X, **arguments)
    assert isinstance(copied(X, targets=Y), HeadOutput)
    attach(model, "fc")
    assert model(X, targets=torch.tensor([5, 1, 2, 0, 1])).logits.shape == (5, 6)
    del copied.fc
    with pytest.raises(ValueError, match="layer 'fc' was replaced after `attach`"):
        copied(X)


def test_a_model_has_one_attached_head() -> None:
    model = attach(plain_model(), "fc")
    with pytest.raises(ValueError, match="layer 'fc' is a head already"):
        attach(model, "body")


def test_a_forward_with_an_argument_that_the_head_needs_is_refused() -> None:
    class Detector(Plain):
        def forward(self, x: Tensor, targets: Tensor | None = None) -> Tensor:
            return super().forward(x)

    with pytest.raises(ValueError, match=r"Detector\.forward has the argument 'targets' itself"):
        attach(Detector(), "fc")


@pytest.mark.parametrize("options", [{}, {"impl": "chunked"}, {"weight": torch.tensor([1.0, 2.0, 3.0])}])
def test_a_checkpoint_from_before_attach_loads_as_if_attached_afterwards(options: dict[str, Any]) -> None:
    saved = plain_model(1).state_dict()
    model = attach(plain_model(0), "fc", **options)
    model.load_state_dict(saved)
    later = plain_model(0)
    later.load_state_dict(saved)
    attach(later, "fc", **options)
    for name, expected in later.state_dict().items():
        assert torch.equal(model.state_dict()[name], expected), name
    assert torch.equal(model(X, targets=Y).loss, later(X, targets=Y).loss)


def test_a_checkpoint_from_before_attach_keeps_what_was_learned_about_labels_but_not_the_temperature() -> None:
    model = attach(plain_model(0), "fc")
    head: Any = model.fc
    head.temperature.fill_(2)
    head.counts.fill_(3)
    model.load_state_dict(plain_model(1).state_dict())
    assert (float(head.temperature), head.counts.tolist()) == (1.0, [3, 3, 3])
    copied = copy.deepcopy(model)
    copied.load_state_dict(plain_model(2).state_dict())
    assert torch.equal(copied(X), plain_model(2)(X))
    assert torch.equal(model(X), plain_model(1)(X))


def test_a_head_without_observer_loads_a_checkpoint_from_before_attach() -> None:
    model = attach(plain_model(0), "fc", PlainHead(8, 3))
    model.load_state_dict(plain_model(1).state_dict())
    assert torch.equal(model(X), plain_model(1)(X))


def test_a_checkpoint_that_lacks_a_part_of_the_layer_is_refused_as_ever() -> None:
    saved = plain_model(1).state_dict()
    del saved["fc.bias"]
    with pytest.raises(RuntimeError, match=r'Missing key\(s\) in state_dict: "fc.predictor.bias"'):
        attach(plain_model(0), "fc").load_state_dict(saved)
    with pytest.raises(RuntimeError, match=r'Unexpected key\(s\) in state_dict: "more"'):
        attach(plain_model(0), "fc").load_state_dict(plain_model(1).state_dict() | {"more": X})


@pytest.mark.parametrize("layer", ["fc", "classifier.1"])
def test_the_state_of_an_attached_model_loads_into_the_plain_one(layer: str) -> None:
    make = plain_model if layer == "fc" else Net
    model = attach(make(), layer)
    for state in (predictor_only(model).state_dict(), predictor_only(model.state_dict())):
        plain = make()
        plain.load_state_dict(state)
        assert torch.equal(plain(X), model(X))
    head: Any = model.get_submodule(layer)
    head.temperature.fill_(0.5)
    plain.load_state_dict(predictor_only(model.state_dict(), fold_temperature=True))
    torch.testing.assert_close(plain(X), 2 * model(X))


def test_models_of_transformers_are_sent_to_their_own_function() -> None:
    """By the name of their class: the library need not be there."""
    kind = type("PreTrainedModel", (Plain,), {"__module__": "transformers.modeling_utils"})
    model = type("BertForSequenceClassification", (kind,), {"__module__": "elsewhere"})()
    message = r"use labelemb\.integrations\.transformers\.attach_to_pretrained"
    with pytest.raises(TypeError, match=f"BertForSequenceClassification is a Hugging Face model.*{message}"):
        attach(model, "fc")
    assert isinstance(model.fc, nn.Linear)


def test_the_predictor_alone_is_a_plain_model_with_the_same_answers() -> None:
    model = attach(plain_model(), "fc")
    plain = predictor_only(model)
    assert type(plain.fc) is nn.Linear
    assert [name for name, _ in plain.named_parameters()] == ["body.weight", "body.bias", "fc.weight", "fc.bias"]
    assert torch.equal(plain(X), model(X))
    with pytest.raises(TypeError):
        plain(X, targets=Y)  # nothing of the attachment is left
    with torch.no_grad():
        plain.fc.weight.zero_()
    assert isinstance(model(X, targets=Y), HeadOutput)
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

    model = attach(Tied(), "out", embedding="compressed", rank=2)
    copied: Any = copy.deepcopy(model)
    assert copied.out.predictor.weight is copied.words.weight
    assert copied.words.weight is not model.words.weight
    tokens = torch.tensor([1, 2, 3])
    assert torch.equal(copied(tokens, targets=tokens).loss, model(tokens, targets=tokens).loss)
    plain: Any = predictor_only(model)
    assert plain.out.weight is plain.words.weight
