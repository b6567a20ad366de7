"""Tiny models of every causal and seq2seq family of the installed Transformers, from their own configurations.

Sizes of a configuration are replaced by small ones by their names, which differ little between families.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
import transformers as hf
from torch import Tensor
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
)

VOCABULARY = 40
MOST_PARAMETERS = 2_000_000
SIZES: dict[int, str] = {
    VOCABULARY: "vocab_size src_vocab_size tgt_vocab_size decoder_vocab_size n_vocab",
    16: "hidden_size d_model n_embd dim embed_dim embedding_size emb_dim word_embed_proj_dim",
    32: "intermediate_size ffn_dim d_ff n_inner encoder_ffn_dim decoder_ffn_dim moe_intermediate_size dff "
    "shared_expert_intermediate_size dense_intermediate_size ffn_hidden_size max_position_embeddings n_positions n_ctx "
    "max_seq_len max_source_positions max_target_positions max_encoder_position_embeddings "
    "max_decoder_position_embeddings num_experts_per_layer",
    2: "num_hidden_layers num_layers n_layer n_layers num_decoder_layers encoder_layers decoder_layers n_heads "
    "num_attention_heads num_heads n_head num_key_value_heads encoder_attention_heads decoder_attention_heads "
    "num_encoder_layers num_encoder_attention_heads num_decoder_attention_heads num_experts_per_tok",
    4: "num_local_experts num_experts n_routed_experts moe_num_experts",
    8: "head_dim d_kv kv_channels",
}
TINY = {name: size for size, names in SIZES.items() for name in names.split()}
OTHERWISE: dict[str, dict[str, Any]] = {
    "bamba": {"mamba_n_heads": 4, "mamba_d_head": 8, "attn_layer_indices": [1]},
    "codegen": {"n_head": 4, "rotary_dim": 4},
    "deepseek_v3": {"qk_rope_head_dim": 8},
    "ernie4_5_moe": {"moe_k": 2},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "gptj": {"rotary_dim": 4},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "led": {"attention_window": 4},
    "longt5": {"decoder_start_token_id": 0},
    "mamba2": {"num_heads": 4, "n_groups": 1},
    "qwen3_5_moe_text": {"num_hidden_layers": 4},
    "qwen3_5_text": {"num_hidden_layers": 4},
    "qwen3_next": {"num_hidden_layers": 4},
    "switch_transformers": {"decoder_start_token_id": 0},
    "t5": {"decoder_start_token_id": 0},
    "youtu": {"qk_rope_head_dim": 8},
}
"""Sizes that depend on each other in a way of the family's own."""
DROPOUT = ("dropout", "drop", "pdrop", "layerdrop", "dropout_prob", "dropout_rate")


class NoTinyModelError(Exception):
    """The family has no tiny model, or none that trains on texts alone."""


def families() -> dict[str, str]:
    """The class of each family, by the family's name and task: "llama causal", "t5 seq2seq"."""
    causal = {f"{name} causal": str(kind) for name, kind in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.items()}
    return causal | {
        f"{name} seq2seq": str(kind) for name, kind in MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES.items()
    }


def tiny_model(family: str) -> tuple[hf.PreTrainedModel, dict[str, Tensor], Tensor]:
    """A family's model in training mode, always with the same weights; a batch for it, and its own loss there."""
    torch.manual_seed(0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = _build(family).train()
            batch = _batch(family)
            return model, batch, model(**batch).loss.detach()
    except Exception as error:  # whatever a configuration of other sizes leads to
        raise NoTinyModelError(f"{family}: {type(error).__name__}: {error}") from error


def _build(family: str) -> hf.PreTrainedModel:
    name, _, task = family.rpartition(" ")
    kind, config_class = getattr(hf, families()[family]), hf.CONFIG_MAPPING[name]
    if name == "encoder-decoder":
        return _two_berts()
    options = _small(config_class().to_dict()) | OTHERWISE.get(name, {})
    if task == "causal":
        options |= {"is_decoder": True, "is_encoder_decoder": False}
    config = config_class(**options)
    with torch.device("meta"):
        size = sum(parameter.numel() for parameter in kind(config).parameters())
    if size > MOST_PARAMETERS:
        raise NoTinyModelError(f"{size:,} parameters")
    return kind(config)


def _two_berts() -> hf.PreTrainedModel:
    """The family that joins any encoder and any decoder."""
    part = hf.BertConfig(**_small(hf.BertConfig().to_dict()))
    config = hf.EncoderDecoderConfig.from_encoder_decoder_configs(part, part)
    config.decoder_start_token_id, config.pad_token_id = 2, 1
    return hf.EncoderDecoderModel(config)


def _small(defaults: dict[str, Any]) -> dict[str, Any]:
    changed: dict[str, Any] = {}
    for name, value in defaults.items():
        if isinstance(value, dict) and (name.endswith("_config") or "model_type" in value):
            changed[name] = _small(value)
        elif name in TINY and isinstance(value, int | None):
            changed[name] = TINY[name]
        elif name.endswith(DROPOUT) and isinstance(value, float):
            changed[name] = 0.0
        elif name.endswith("_token_id") and isinstance(value, int):
            changed[name] = value % 4
    return changed


def _batch(family: str, sentences: int = 2, length: int = 6) -> dict[str, Tensor]:
    inputs = torch.randint(4, VOCABULARY, (sentences, length))
    labels = inputs.clone() if family.endswith("causal") else torch.randint(4, VOCABULARY, (sentences, length))
    labels[0, 4:] = -100
    return {"input_ids": inputs, "attention_mask": torch.ones_like(inputs), "labels": labels}
