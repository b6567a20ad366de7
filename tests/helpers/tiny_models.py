"""Small models of many architectures with random weights, and batches for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers as hf
from torch import Tensor

LABELS, VOCABULARY, LENGTH, BATCH = 5, 40, 7, 4
ANIMALS = ["ant", "bee", "cat", "dog", "elk"]
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
ENCODER = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 32,
    "pad_token_id": 1,
    **NO_DROPOUT,
}
NAMES = {"id2label": dict(enumerate(ANIMALS)), "label2id": {name: label for label, name in enumerate(ANIMALS)}}


def bert(**options: Any) -> hf.PreTrainedModel:
    return hf.BertForSequenceClassification(hf.BertConfig(**ENCODER | NAMES | options))


def roberta(**options: Any) -> hf.PreTrainedModel:
    return hf.RobertaForSequenceClassification(hf.RobertaConfig(**ENCODER | NAMES | options))


def token_classifier() -> hf.PreTrainedModel:
    return hf.BertForTokenClassification(hf.BertConfig(**ENCODER | NAMES))


def masked_lm() -> hf.PreTrainedModel:
    return hf.BertForMaskedLM(hf.BertConfig(**ENCODER))


def vit(**options: Any) -> hf.PreTrainedModel:
    sizes = {name: ENCODER[name] for name in ("hidden_size", "num_hidden_layers", "num_attention_heads")}
    config = hf.ViTConfig(**sizes, intermediate_size=32, image_size=8, patch_size=4, **NO_DROPOUT, **NAMES | options)
    return hf.ViTForImageClassification(config)


def gpt2_config(**options: Any) -> hf.GPT2Config:
    sizes: dict[str, Any] = {"vocab_size": VOCABULARY, "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 64}
    no_dropout = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    return hf.GPT2Config(**sizes | no_dropout | {"bos_token_id": 2, "eos_token_id": 3} | options)


def gpt2(**options: Any) -> hf.PreTrainedModel:
    return hf.GPT2LMHeadModel(gpt2_config(**options))


def gpt2_classifier(**options: Any) -> hf.PreTrainedModel:
    return hf.GPT2ForSequenceClassification(gpt2_config(pad_token_id=1, **NAMES | options))


def llama() -> hf.PreTrainedModel:
    sizes = {name: ENCODER[name] for name in ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads")}
    return hf.LlamaForCausalLM(hf.LlamaConfig(**sizes, num_key_value_heads=2, intermediate_size=32))


def mixtral(**options: Any) -> hf.PreTrainedModel:
    sizes = {name: ENCODER[name] for name in ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads")}
    config = hf.MixtralConfig(**sizes, num_key_value_heads=2, intermediate_size=16, num_local_experts=2, **options)
    return hf.MixtralForCausalLM(config)


def t5(**options: Any) -> hf.PreTrainedModel:
    sizes: dict[str, Any] = {"vocab_size": VOCABULARY, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_heads": 2}
    tokens = {"decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 3}
    sizes |= {"num_layers": 1, "dropout_rate": 0.0}
    return hf.T5ForConditionalGeneration(hf.T5Config(**sizes | tokens | options))


def bart_config(**options: Any) -> hf.BartConfig:
    sizes: dict[str, Any] = {"vocab_size": VOCABULARY, "d_model": 16, "max_position_embeddings": 32, "dropout": 0.0}
    sides = ("encoder", "decoder")
    layers: dict[str, Any] = {f"{side}_layers": 1 for side in sides} | {f"{side}_attention_heads": 2 for side in sides}
    layers |= {f"{side}_ffn_dim": 32 for side in sides}
    return hf.BartConfig(**sizes | layers | options)


def bart(**options: Any) -> hf.PreTrainedModel:
    return hf.BartForConditionalGeneration(bart_config(**options))


def bart_decoder() -> hf.PreTrainedModel:
    return hf.BartForCausalLM(bart_config(is_decoder=True, is_encoder_decoder=False))


def marian(**options: Any) -> hf.PreTrainedModel:
    special = {"pad_token_id": 1, "decoder_start_token_id": 1, "eos_token_id": 3, "forced_eos_token_id": 3}
    sizes = bart_config().to_dict() | special | options
    known = hf.MarianConfig().to_dict()
    return hf.MarianMTModel(hf.MarianConfig(**{k: v for k, v in sizes.items() if k in known and k != "model_type"}))


def tokens(*shape: int) -> Tensor:
    return torch.randint(4, VOCABULARY, shape)


def one_label() -> dict[str, Tensor]:
    inputs = tokens(BATCH, LENGTH)
    inputs[0, 4:] = 1  # padding
    return {"input_ids": inputs, "attention_mask": (inputs != 1).long(), "labels": torch.randint(LABELS, (BATCH,))}


def labelled_tokens() -> dict[str, Tensor]:
    labels = torch.randint(LABELS, (BATCH, LENGTH))
    labels[0, 4:] = -100
    return {"input_ids": tokens(BATCH, LENGTH), "labels": labels}


def masked_tokens() -> dict[str, Tensor]:
    labels = tokens(BATCH, LENGTH)
    labels[:, ::2] = -100
    return {"input_ids": tokens(BATCH, LENGTH), "labels": labels}


def images() -> dict[str, Tensor]:
    return {"pixel_values": torch.randn(BATCH, 3, 8, 8), "labels": torch.randint(LABELS, (BATCH,))}


def texts() -> dict[str, Tensor]:
    inputs = tokens(BATCH, LENGTH)
    labels = inputs.clone()
    labels[0, 5:] = -100
    return {"input_ids": inputs, "labels": labels}


def pairs() -> dict[str, Tensor]:
    labels = tokens(BATCH, LENGTH - 2)
    labels[1, 3:] = -100
    return {"input_ids": tokens(BATCH, LENGTH), "labels": labels}


Make = Callable[[], hf.PreTrainedModel]
Batch = Callable[[], dict[str, Tensor]]
ALL: dict[str, tuple[Make, Batch, str]] = {
    "bert": (bert, one_label, "classifier"),
    "roberta": (roberta, one_label, "classifier.out_proj"),
    "bert tokens": (token_classifier, labelled_tokens, "classifier"),
    "bert masked": (masked_lm, masked_tokens, "cls.predictions.decoder"),
    "vit": (vit, images, "classifier"),
    "gpt2 classifier": (gpt2_classifier, one_label, "score"),
    "gpt2": (gpt2, texts, "lm_head"),
    "llama": (llama, texts, "lm_head"),
    "mixtral": (lambda: mixtral(output_router_logits=True), texts, "lm_head"),
    "t5": (t5, pairs, "lm_head"),
    "bart": (bart, pairs, "lm_head"),
    "marian": (marian, pairs, "lm_head"),
    "bart decoder": (bart_decoder, texts, "lm_head"),
}
"""What makes a model, what makes a batch for it, and the layer that a head belongs to."""


def make(kind: str) -> tuple[hf.PreTrainedModel, dict[str, Tensor]]:
    """A model to train, of one of the kinds in ALL, and a batch for it."""
    torch.manual_seed(0)
    make_model, make_batch, _ = ALL[kind]
    return make_model().train(), make_batch()
