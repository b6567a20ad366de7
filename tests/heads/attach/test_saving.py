"""attach: checkpoints from before and after it, and the model without what only training needs."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from labelemb import Head, HeadOutput, LabelEmbeddingHead, PlainHead, attach, predictor_only
from tests.helpers.attached import Net, Plain, X, Y, plain_model


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


def test_a_checkpoint_that_is_assigned_gives_predictor_and_observer_memory_of_their_own() -> None:
    saved = plain_model(1).state_dict()
    model = attach(plain_model(0), "fc")
    model.load_state_dict(saved, assign=True)
    head: Any = model.fc
    assert torch.equal(head.predictor.weight, head.observer.weight)
    with torch.no_grad():
        head.observer.weight.zero_()
        head.observer.bias.zero_()
    assert torch.equal(model(X), plain_model(1)(X))


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
