"""Label spaces of attached models, with label names from their configuration or tokenizer."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from labelemb.integrations.transformers.attachment import attachment_of
from labelemb.labelspace import LabelSpace

LABEL_SPACE_FILE = "label_space.safetensors"


def label_space(model: PreTrainedModel, tokenizer: Any = None) -> LabelSpace | None:
    """The label space of an attached model; None for a head that learns nothing about the labels.

    The names of a classifier's labels come from `config.id2label`. The labels of a language model are named by the
    tokenizer's tokens, and `nearest` leaves out its special tokens; without a tokenizer the names are numbers.

    Arguments:
        model: a model that `attach_to_pretrained` was called on.
        tokenizer: the tokenizer of a language model, or None.
    """
    names = label_names(model, tokenizer)
    space = attachment_of(model).head.label_space(names)
    if space is None or names is None or tokenizer is None:
        return space
    known = set(names)
    return LabelSpace(
        space.form,
        names=names,
        counts=space.counts,
        specials=[token for token in tokenizer.all_special_tokens if token in known],
        objective=space.objective,
    )


def save_label_space(model: PreTrainedModel, folder: str | os.PathLike[str], tokenizer: Any = None) -> None:
    """Write `label_space.safetensors` into a folder.

    A head that learns nothing about the labels has none: a file that another training has left there is removed.
    Without a tokenizer a language model's labels have the names of the one that `LabelEmbeddingCallback` knows.
    """
    space = label_space(model, tokenizer or attachment_of(model).tokenizer)
    path = Path(folder) / LABEL_SPACE_FILE
    if space is None:
        path.unlink(missing_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    space.save(path)


def label_names(model: PreTrainedModel, tokenizer: Any = None) -> list[str] | None:
    """One name a label, or None where nothing names them."""
    attachment = attachment_of(model)
    num_labels = attachment.head.num_labels
    if not attachment.language_model:
        names_by_label: dict[Any, str] = dict(model.config.id2label or {})
        return [str(names_by_label.get(label, label)) for label in range(num_labels)]
    if tokenizer is None:
        return None
    tokens = tokenizer.convert_ids_to_tokens(list(range(min(num_labels, len(tokenizer)))))
    names: dict[str, None] = {}  # an ordered set
    for label in range(num_labels):  # layers are often larger than their vocabulary
        token = tokens[label] if label < len(tokens) else None
        names[f"<label {label}>" if token is None or token in names else token] = None
    return list(names)
