"""Converts the `labels` of a call to targets for the head: checked, shifted to the predicting rows, and counted."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedModel
from transformers.loss.loss_utils import LOSS_MAPPING, ForCausalLMLoss

from labelemb.heads import Head
from labelemb.losses.batch import CallOptions, read_batch

IGNORED = -100
"""The label that Transformers leaves out everywhere."""


class LabelCount(NamedTuple):
    """How many labels there are, as the Trainer counts them."""

    in_update: Any
    """Of all calls of the update: a number or a tensor."""
    entries: int | None
    """Of a call with soft labels, whose entries the Trainer counts; None for integer labels."""


def check_kind(labels: Tensor, num_labels: int) -> None:
    """Refuse floats that are no soft labels (..., num_labels)."""
    if labels.is_floating_point() and (labels.ndim < 2 or labels.shape[-1] != num_labels):
        raise ValueError(
            f"labels are {labels.dtype} of shape {tuple(labels.shape)}, but must be integers, or soft labels of shape "
            f"(..., {num_labels})"
        )


def next_labels(labels: Tensor) -> Tensor:
    """The labels of the next positions, (..., length) or soft (..., length, labels); the last row predicts nothing."""
    if labels.is_floating_point():
        return F.pad(labels, (0, 0, 0, 1))[..., 1:, :]
    return F.pad(labels, (0, 1), value=IGNORED)[..., 1:]


def next_weights(sample_weight: Any) -> Any:
    """Weights (..., length) of the labels that `next_labels` gives."""
    if not isinstance(sample_weight, Tensor) or sample_weight.ndim == 0:
        return sample_weight  # the head says what is wrong with it
    return F.pad(sample_weight, (0, 1))[..., 1:]


def entries_counted(model: PreTrainedModel, labels: Tensor, shifted: bool) -> int | None:
    """`LabelCount.entries` of a call: all entries, without the first of each row where the Trainer expects tokens.

    `shifted` labels are counted as they are.
    """
    if not labels.is_floating_point():
        return None
    causal = LOSS_MAPPING.get(model.loss_type or "") is ForCausalLMLoss and not model.config.is_encoder_decoder
    return (labels[..., 1:] if causal and not shifted else labels).numel()


def divisor(head: Head, hidden: Tensor, targets: Tensor, sample_weight: Tensor | None, count: LabelCount) -> Any:
    """`num_items` of a head's call that is part of an update of the Trainer.

    Labels without weights are divided by that number. Weights of other calls are not known here: so these rows are
    divided by the sum of their own weights, and count by their share in what the Trainer has counted. That is exact
    where the call is the whole update.
    """
    if count.entries is None and sample_weight is None and head.weight is None:
        return count.in_update
    own = read_batch(hidden.detach(), targets, head._rules(), CallOptions(sample_weight)).divisor
    here = (targets != IGNORED).sum().clamp_min(1) if count.entries is None else max(1, count.entries)
    return own * torch.as_tensor(count.in_update).reshape(()).to(own) / here


def decoder_inputs(model: PreTrainedModel, kwargs: dict[str, Any], labels: Tensor) -> dict[str, Any]:
    """What a seq2seq model would make of its labels: the decoder's inputs, shifted to the right."""
    if any(kwargs.get(name) is not None for name in ("decoder_input_ids", "decoder_inputs_embeds")):
        return {}
    if labels.is_floating_point():
        raise ValueError("soft labels do not say which tokens the decoder reads: pass decoder_input_ids")
    prepare: Any = getattr(model, "prepare_decoder_input_ids_from_labels", None)
    if prepare is not None:
        return {"decoder_input_ids": prepare(labels=labels)}
    shift = getattr(sys.modules[type(model).__module__], "shift_tokens_right", None)
    if shift is None:
        raise ValueError(f"{type(model).__name__} does not say how to shift its labels: pass decoder_input_ids")
    config = model.config
    return {"decoder_input_ids": shift(labels, config.pad_token_id, config.decoder_start_token_id)}
