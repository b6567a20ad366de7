"""attach_to_pretrained: labels in, loss out; everything but training is the plain model."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from labelemb import LabelEmbeddingHead, Objective, PlainHead, attach, predictor_only
from labelemb.integrations.transformers import attach_to_pretrained, parameter_groups
from tests.helpers import tiny_models
from tests.helpers.tiny_models import ALL, BATCH, LABELS, VOCABULARY, make

EVERY = pytest.mark.parametrize("kind", list(ALL))


def gradients(model: nn.Module) -> dict[str, Tensor]:
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@EVERY
def test_the_layer_is_found(kind: str) -> None:
    model, _ = make(kind)
    layer = model.get_submodule(ALL[kind][2])
    attach_to_pretrained(model)
    assert model.label_embedding.layer_name == ALL[kind][2]
    assert model.label_embedding.head.predictor.weight is layer.weight
    assert model.get_submodule(ALL[kind][2]) is layer


def test_attach_of_the_core_names_this_function_and_keeps_the_model() -> None:
    model, _ = make("bert")
    with pytest.raises(TypeError, match=r"use labelemb\.integrations\.transformers\.attach_to_pretrained"):
        attach(model, "classifier")
    attach_to_pretrained(model)
    with pytest.raises(
        ValueError, match=r"'label_embedding.head' is the head of a Hugging Face model.*save_pretrained"
    ):
        predictor_only(model)


@EVERY
def test_labels_are_read_as_the_model_reads_them(kind: str) -> None:
    """Cross entropy as a head is the model's own loss: the same rows, the same shift, the same labels left out."""
    model, batch = make(kind)
    expected = model(**batch).loss
    layer = model.get_submodule(ALL[kind][2])
    attach_to_pretrained(model, head=PlainHead(layer.in_features, layer.out_features))
    for _ in range(2):  # the first call also looks at what the model does behind the layer
        torch.testing.assert_close(model(**batch).loss, expected)


@EVERY
def test_what_is_not_training_is_the_plain_model(kind: str) -> None:
    model, batch = make(kind)
    inputs = {name: value for name, value in batch.items() if name != "labels"}
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = batch["labels"].clamp_min(0)
    plain = copy.deepcopy(model)
    attach_to_pretrained(model)
    model(**batch).loss.backward()
    for mode in (True, False):
        without_labels, expected = model.train(mode)(**inputs), plain.train(mode)(**inputs)
        assert torch.equal(without_labels.logits, expected.logits)
        assert without_labels.loss is None
    evaluated, expected = model(**batch), plain(**batch)
    assert torch.equal(evaluated.loss, expected.loss)
    assert torch.equal(evaluated.logits, expected.logits)


@EVERY
def test_the_loss_is_the_heads_on_the_hidden_state(kind: str) -> None:
    model, batch = make(kind)
    layer = model.get_submodule(ALL[kind][2])
    seen: list[Tensor] = []
    handle = layer.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    plain = model(**batch)
    handle.remove()
    plain.loss.backward()
    trained = gradients(model).keys()
    model.zero_grad()
    hidden, targets = seen[0], batch["labels"]
    if kind in ("gpt2", "llama", "mixtral"):
        hidden, targets = hidden[:, :-1], targets[:, 1:]
    if kind == "gpt2 classifier":
        last = batch["attention_mask"].sum(1) - 1
        hidden = hidden[torch.arange(BATCH), last]
    head = LabelEmbeddingHead.from_linear(copy.deepcopy(layer))
    expected = head(hidden.detach(), targets)
    attach_to_pretrained(model)
    out = model(**batch)
    router = 0.001 * plain.aux_loss if kind == "mixtral" else 0
    torch.testing.assert_close(out.loss, expected.loss + router)
    torch.testing.assert_close(model.label_embedding.terms, expected.terms)
    torch.testing.assert_close(out.logits, plain.logits)
    out.loss.backward()
    own = {name for name, _ in model.named_parameters() if name.startswith("label_embedding.")}
    assert gradients(model).keys() == trained | own


@EVERY
def test_num_items_divides_the_parts_of_an_update(kind: str) -> None:
    model, batch = make(kind)
    attach_to_pretrained(model)
    model.config.output_router_logits = False  # the router's loss is a mean over calls in any case
    valid = batch["labels"][:, 1:] if kind in ("gpt2", "llama", "mixtral") else batch["labels"]
    num_items = (valid != -100).sum()
    model(**batch).loss.backward()
    whole = gradients(model)
    model.zero_grad()
    for part in (slice(0, 1), slice(1, BATCH)):
        model(**{name: value[part] for name, value in batch.items()}, num_items_in_batch=num_items).loss.backward()
    for name, gradient in gradients(model).items():
        torch.testing.assert_close(gradient, whole[name], msg=lambda text, name=name: f"{name}: {text}")


class LargestTensor(TorchDispatchMode):
    """Looks at everything torch computes on a real device."""

    numel = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **kwargs or {})
        for value in result if isinstance(result, tuple | list) else (result,):
            if isinstance(value, Tensor) and value.device.type != "meta" and value.untyped_storage().nbytes() > 0:
                self.numel = max(self.numel, value.untyped_storage().nbytes() // value.element_size())
        return result


@pytest.mark.parametrize("kind", ["gpt2", "t5", "bart", "marian"])
def test_32000_labels_train_without_their_logits_in_memory(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("labelemb.losses.chunked.rows.CHUNK_BYTES", 2**25)  # 262 rows
    torch.manual_seed(0)
    vocabulary, sentences, length = 32_000, 10, 60
    model = getattr(tiny_models, kind)(
        vocab_size=vocabulary, **{"max_position_embeddings": 64} if kind in ("bart", "marian") else {}
    )
    attach_to_pretrained(model.train(), embedding="compressed", rank=4)
    tokens = torch.randint(5, vocabulary, (sentences, length))
    model(input_ids=tokens[:1, :4], labels=tokens[:1, :4])  # the first call looks closer
    with LargestTensor() as largest:
        out = model(input_ids=tokens, labels=tokens)
        out.loss.backward()
    assert out.logits is None
    assert largest.numel < sentences * length * vocabulary / 2
    assert model.label_embedding.head.embedding.A.grad is not None
    assert model.get_input_embeddings().weight.grad is not None
    generated = model.eval().generate(tokens[:2, :4], max_new_tokens=3, do_sample=False)
    assert generated.shape[0] == 2


@pytest.mark.parametrize("kind", ["gpt2", "t5", "bart", "bert masked"])
def test_tied_weights_stay_tied_and_get_the_gradients_of_both_uses(kind: str) -> None:
    model, batch = make(kind)
    layer, inputs = model.get_submodule(ALL[kind][2]), model.get_input_embeddings()
    assert layer.weight is inputs.weight  # the test would prove nothing without it
    model(**batch).loss.backward()
    expected = inputs.weight.grad.clone()
    model.zero_grad()
    attach_to_pretrained(model, head=PlainHead(layer.in_features, layer.out_features))
    model(**batch).loss.backward()
    torch.testing.assert_close(inputs.weight.grad, expected)
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    model.tie_weights()
    assert layer.weight is inputs.weight
    assert model.label_embedding.head.predictor.weight is inputs.weight


def test_a_constant_that_the_model_adds_to_its_logits_is_part_of_what_the_head_trains() -> None:
    model, batch = make("marian")
    torch.nn.init.normal_(model.final_logits_bias)
    bias = model.final_logits_bias.clone()
    expected = model(**batch)
    attach_to_pretrained(model, head=PlainHead(16, VOCABULARY))
    for _ in range(3):  # from the second call on the model gets no logits that hold memory
        out = model(**batch)
        torch.testing.assert_close(out.loss, expected.loss)
        torch.testing.assert_close(out.logits, expected.logits)
        assert torch.equal(model.final_logits_bias, bias)
    model.double()
    assert model.label_embedding.head.predictor.bias.dtype == torch.float64
    wrong = {"labels": torch.full_like(batch["labels"], 77), "decoder_input_ids": batch["labels"].clamp_min(0)}
    with pytest.raises(ValueError, match="a target is 77"):
        model(**batch | wrong)
    assert torch.equal(model.final_logits_bias, bias.double())


def test_copies_of_an_attached_model_stay_apart() -> None:
    model, batch = make("bert")
    attach_to_pretrained(model)
    other = copy.deepcopy(model)
    assert other.label_embedding.head.predictor is other.classifier
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    other(**batch).loss.backward()
    assert other.label_embedding.head.counts.sum() > 0
    assert model.label_embedding.head.counts.sum() == 0
    assert model.label_embedding.terms is None
    assert model.classifier.weight.grad is None


def test_labels_by_position_and_answers_as_a_tuple() -> None:
    model, batch = make("vit")
    expected = attach_to_pretrained(model)(**batch)
    by_position = model(batch["pixel_values"], batch["labels"])
    assert torch.equal(by_position.loss, expected.loss)
    loss, logits = model(**batch, return_dict=False)
    assert torch.equal(loss, expected.loss)
    assert torch.equal(logits, expected.logits)


def test_options_of_the_heads_call_pass_through() -> None:
    model, batch = make("bert")
    attach_to_pretrained(model)
    first = model(**{name: value[:1] for name, value in batch.items()}).loss
    weighted = model(**batch, sample_weight=torch.tensor([1.0, 0, 0, 0])).loss
    torch.testing.assert_close(weighted, first)
    assert torch.equal(model.eval()(**batch, progress=0.5).logits, model(**batch).logits)  # of no use there


def test_training_in_eval_mode_is_warned_of_once() -> None:
    model, batch = make("bert")
    attach_to_pretrained(model).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loss = model(**batch).loss  # evaluation
    with pytest.warns(UserWarning, match=r"the head takes no part: call model\.train\(\) before training"):
        loss.backward()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model(**batch).loss.backward()
        model.train()(**batch).loss.backward()


def test_a_mass_floor_follows_progress_and_stands_at_its_end_without_it() -> None:
    model, batch = make("bert")
    attach_to_pretrained(model, embedding="running", objective=Objective.rising_floor(), rows_per_epoch=BATCH)
    model(**batch, progress=0.0)  # so that the table has something to say
    start = copy.deepcopy(model)(**batch, progress=0.0).loss
    end = copy.deepcopy(model)(**batch, progress=1.0).loss
    assert start != end
    assert torch.equal(model(**batch).loss, end)


def test_a_compiled_model_trains_as_it_does_uncompiled() -> None:
    model, batch = make("bert")
    attach_to_pretrained(model)
    same = copy.deepcopy(model)
    torch.compiler.reset()
    compiled = torch.compile(model, backend="aot_eager")
    for _ in range(2):
        found, expected = compiled(**batch).loss, same(**batch).loss
        torch.testing.assert_close(found, expected)
        found.backward()
        expected.backward()
    torch.testing.assert_close(gradients(model), gradients(same))
    torch.testing.assert_close(model.label_embedding.terms, same.label_embedding.terms)


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("kind", ["gpt2 classifier", "bert tokens"])
def test_sequences_of_one_token_train_before_and_after_longer_ones(kind: str, rows: int) -> None:
    model, batch = make(kind)
    batch["labels"] = batch["labels"].clamp_min(0)
    short = {name: value[:rows, :1] if value.ndim == 2 else value[:rows] for name, value in batch.items()}
    layer = model.get_submodule(ALL[kind][2])
    plain = copy.deepcopy(model)
    attach_to_pretrained(model, head=PlainHead(layer.in_features, layer.out_features))
    for inputs in (short, batch, short):
        found, expected = model(**inputs), plain(**inputs)
        torch.testing.assert_close(found.loss, expected.loss)
        torch.testing.assert_close(found.logits, expected.logits)


def test_soft_labels_train_a_classifier() -> None:
    model, batch = make("gpt2 classifier")
    hard = attach_to_pretrained(model)(**batch).loss
    soft = model(**batch | {"labels": F.one_hot(batch["labels"], LABELS).float()}).loss
    torch.testing.assert_close(soft, hard)


def test_labels_that_a_collator_has_shifted_are_taken_as_they_are() -> None:
    model, batch = make("gpt2")
    expected = attach_to_pretrained(model)(**batch).loss
    shifted = F.pad(batch["labels"], (0, 1), value=-100)[:, 1:]
    assert torch.equal(model(**batch, shift_labels=shifted).loss, expected)


def test_shift_says_how_labels_stand_where_the_model_is_not_to_decide() -> None:
    model, batch = make("gpt2")
    aligned = attach_to_pretrained(copy.deepcopy(model), head=PlainHead(16, VOCABULARY), shift=False)
    logits = aligned(input_ids=batch["input_ids"]).logits
    expected = F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten())
    torch.testing.assert_close(aligned(**batch).loss, expected)


@pytest.mark.parametrize("kind", ["bert", "gpt2 classifier", "gpt2", "bart"])
def test_half_precision(kind: str) -> None:
    model, batch = make(kind)
    expected = attach_to_pretrained(model)(**batch).loss
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = model(**batch).loss
    torch.testing.assert_close(mixed, expected, rtol=0.02, atol=0.02)
    half, _ = make(kind)
    out = attach_to_pretrained(half.to(torch.bfloat16))(**batch)
    torch.testing.assert_close(out.loss.float(), expected, rtol=0.05, atol=0.05)
    out.loss.backward()


def test_parameter_groups_hold_every_parameter_once_and_spare_the_embedding() -> None:
    model, _ = make("gpt2")
    attach_to_pretrained(model, embedding="compressed", rank=2)
    groups = parameter_groups(model, lr=1e-3, embedding_lr=0.05, weight_decay=0.1)
    grouped = [id(parameter) for group in groups for parameter in group["params"]]
    assert sorted(grouped) == sorted(id(parameter) for parameter in model.parameters())
    embedding = {id(parameter) for parameter in model.label_embedding.head.embedding.parameters()}
    for group in groups:
        inside = embedding & {id(parameter) for parameter in group["params"]}
        assert (group["lr"], len(inside)) in ((0.05, len(embedding)), (1e-3, 0))
        assert group["weight_decay"] == 0 or all(parameter.ndim > 1 for parameter in group["params"])
