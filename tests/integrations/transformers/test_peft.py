"""PEFT: a head beside adapters, attached before or after PEFT has wrapped the model."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file
from torch import nn

from labelemb import DenseEmbedding, LabelEmbeddingHead, Objective, PlainHead
from labelemb.integrations.transformers import (
    LabelEmbeddingCallback,
    attach_to_pretrained,
    load_training_parts,
    parameter_groups,
    save_training_parts,
)
from tests.helpers import tiny_models
from tests.helpers.small_runs import arguments, first_token_rows, trainer_of
from tests.helpers.tiny_models import ALL

PARTS = "label_embedding.safetensors"
CASES: dict[str, dict[str, Any]] = {
    "bert": {"task_type": "SEQ_CLS", "target_modules": ["query", "value"]},
    "roberta": {"task_type": "SEQ_CLS", "target_modules": ["query", "value"]},
    "bert tokens": {"task_type": "TOKEN_CLS", "target_modules": ["query", "value"]},
    "vit": {"target_modules": ["q_proj", "v_proj"], "modules_to_save": ["classifier"]},
    "gpt2 classifier": {"task_type": "SEQ_CLS", "target_modules": ["c_attn"], "fan_in_fan_out": True},
    "gpt2": {"task_type": "CAUSAL_LM", "target_modules": ["c_attn"], "fan_in_fan_out": True},
    "llama": {"task_type": "CAUSAL_LM", "target_modules": ["q_proj"], "modules_to_save": ["lm_head"]},
    "t5": {"task_type": "SEQ_2_SEQ_LM", "target_modules": ["q", "v"]},
    "bart": {"task_type": "SEQ_2_SEQ_LM", "target_modules": ["q_proj", "v_proj"]},
}


def lora(kind: str) -> LoraConfig:
    return LoraConfig(r=2, lora_alpha=4, **CASES[kind])


def plain(kind: str) -> Any:
    torch.manual_seed(0)
    return ALL[kind][0]()


def after(model: Any, config: LoraConfig, **options: Any) -> Any:
    return attach_to_pretrained(get_peft_model(model, config), **options)


def before(model: Any, config: LoraConfig, **options: Any) -> Any:
    return get_peft_model(attach_to_pretrained(model, **options), config)


ORDERS = pytest.mark.parametrize("order", [before, after])
Order = Callable[..., Any]


def batch_of(kind: str) -> dict[str, torch.Tensor]:
    torch.manual_seed(1)
    return ALL[kind][1]()


@ORDERS
@pytest.mark.parametrize("kind", list(CASES))
def test_cross_entropy_as_a_head_gives_the_loss_and_gradients_of_the_wrapped_model(kind: str, order: Order) -> None:
    batch = batch_of(kind)
    expected = get_peft_model(plain(kind), lora(kind)).train()
    model = plain(kind)
    layer = model.get_submodule(ALL[kind][2])
    model = order(model, lora(kind), head=PlainHead(layer.in_features, layer.out_features)).train()
    expected.load_state_dict(model.state_dict(), strict=False)  # LoRA starts at random
    for _ in range(2):
        losses = [made(**batch).loss for made in (expected, model)]
        torch.testing.assert_close(*losses)
        for loss in losses:
            loss.backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    assert gradients
    for name, parameter in expected.named_parameters():
        if parameter.grad is not None:
            torch.testing.assert_close(gradients[name], parameter.grad, msg=lambda text, name=name: f"{name}: {text}")


@ORDERS
@pytest.mark.parametrize("kind", list(CASES))
def test_adapters_and_all_parts_of_the_head_train_and_nothing_else(kind: str, order: Order) -> None:
    learning = {"embedding": dense(kind), "objective": Objective(correct_only=False)}
    model = order(plain(kind), lora(kind), **learning).train()
    start = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    optimizer = torch.optim.Adam([parameter for parameter in model.parameters() if parameter.requires_grad], lr=0.1)
    for _ in range(2):  # the second LoRA factor starts at zero, so the first one gets no gradient at first
        optimizer.zero_grad()
        model(**batch_of(kind)).loss.backward()
        optimizer.step()
    moved = {name for name, parameter in model.named_parameters() if not torch.equal(parameter, start[name])}
    expected = {name for name in start if "lora_" in name or "modules_to_save" in name or "label_embedding" in name}
    assert moved == expected
    head = model.label_embedding.head
    assert isinstance(head, LabelEmbeddingHead)
    assert any(name.endswith("head.observer.weight") for name in moved)
    if any("modules_to_save" in name for name in moved):
        assert not head.predictor.weight.eq(start_layer(start)).all()


def dense(kind: str) -> DenseEmbedding:
    return DenseEmbedding(plain(kind).get_submodule(ALL[kind][2]).out_features)


def start_layer(start: dict[str, torch.Tensor]) -> torch.Tensor:
    return next(value for name, value in reversed(start.items()) if "modules_to_save" in name and value.ndim == 2)


@ORDERS
def test_evaluation_is_the_wrapped_models(order: Order) -> None:
    batch = batch_of("bert")
    model = order(plain("bert"), lora("bert")).eval()
    found = model(**batch)
    torch.testing.assert_close(found.loss, nn.functional.cross_entropy(found.logits, batch["labels"]))
    with model.disable_adapter():
        assert torch.equal(model(**batch).logits, plain("bert").eval()(**batch).logits)


@ORDERS
def test_adapters_and_parts_are_saved_reloaded_and_trained_on(order: Order, tmp_path: Path) -> None:
    batch = batch_of("bert")
    model = order(plain("bert"), lora("bert")).train()
    optimizer = torch.optim.Adam(parameter_groups(model, lr=0.1))
    model(**batch).loss.backward()
    optimizer.step()
    model.save_pretrained(tmp_path)
    if order is before:  # PEFT's own save_pretrained knows nothing of the head
        assert not (tmp_path / PARTS).exists()
        save_training_parts(model, tmp_path)
    adapter = load_file(tmp_path / "adapter_model.safetensors")
    assert not [name for name in adapter if "label_embedding" in name]
    served = PeftModel.from_pretrained(plain("bert"), tmp_path)  # without a head
    assert torch.equal(served.eval()(**batch).logits, model.eval()(**batch).logits)
    again = attach_to_pretrained(PeftModel.from_pretrained(plain("bert"), tmp_path, is_trainable=True))
    load_training_parts(again, tmp_path, same_weights=True)
    assert torch.equal(again.train()(**batch).loss, model.train()(**batch).loss)


@ORDERS
def test_the_trainer_resumes_where_it_stopped(order: Order, tmp_path: Path) -> None:
    def run(folder: Path, *, stop_at: int | None = None, resume: bool = False) -> Any:
        class Stop(hf.TrainerCallback):
            def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
                if state.global_step == stop_at:
                    control.should_save = control.should_training_stop = True

        model = order(plain("bert"), lora("bert"))
        settings = arguments(folder, max_steps=4, save_strategy="steps", save_steps=100)
        trainer = trainer_of(model, first_token_rows(), settings, callbacks=[LabelEmbeddingCallback(), Stop()])
        trainer.train(resume_from_checkpoint=resume or None)
        return model

    whole = run(tmp_path / "whole")
    run(tmp_path / "parts", stop_at=2)
    assert (tmp_path / "parts" / "checkpoint-2" / PARTS).exists()
    resumed = run(tmp_path / "parts", resume=True).state_dict()
    for name, expected in whole.state_dict().items():
        assert torch.equal(resumed[name], expected), name


def test_merged_models_are_plain_again(tmp_path: Path) -> None:
    batch = batch_of("bert")
    model = after(plain("bert"), lora("bert")).train()
    model(**batch).loss.backward()
    torch.optim.Adam(parameter_groups(model, lr=0.1)).step()
    expected = model.eval()(**batch).logits
    merged = model.merge_and_unload()
    merged.save_pretrained(tmp_path, training_parts=False)
    loaded = hf.BertForSequenceClassification.from_pretrained(tmp_path).eval()
    torch.testing.assert_close(loaded(**batch).logits, expected)


def test_copies_of_a_wrapped_model_stay_apart() -> None:
    batch = batch_of("bert")
    model = after(plain("bert"), lora("bert")).train()
    other = copy.deepcopy(model)
    other(**batch)
    assert other.label_embedding is not model.label_embedding
    assert int(model.label_embedding.head.counts.sum()) == 0
    assert model.label_embedding.terms is None


def test_a_last_layer_with_low_rank_factors_is_refused() -> None:
    model = get_peft_model(tiny_models.llama(), LoraConfig(r=2, target_modules=["q_proj", "lm_head"]))
    with pytest.raises(ValueError, match=r"layer 'lm_head' is adapted by PEFT.*modules_to_save"):
        attach_to_pretrained(model)


def test_a_wrapped_layer_may_be_named() -> None:
    model = get_peft_model(plain("bert"), lora("bert"))
    assert attach_to_pretrained(model, "classifier").label_embedding.layer_name.startswith("classifier.modules_to_save")


def test_models_of_model_init_that_were_wrapped_last_resume(tmp_path: Path) -> None:
    for steps in (1, 2):
        trainer = hf.Trainer(
            None,
            arguments(tmp_path, max_steps=steps, save_strategy="steps", save_steps=1),
            train_dataset=first_token_rows(8),
            model_init=lambda: before(plain("bert"), lora("bert")),
            callbacks=[LabelEmbeddingCallback()],
        )
        trainer.train(resume_from_checkpoint=steps == 2)
        assert (tmp_path / f"checkpoint-{steps}" / PARTS).exists()
