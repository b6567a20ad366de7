"""attach: places, heads, arguments and models that it refuses, in a line that says why."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from labelemb import Head, HeadOutput, PlainHead, attach
from tests.helpers.attached import Net, Plain, X, Y, plain_model


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
