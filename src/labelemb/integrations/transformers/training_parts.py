"""The head's training parts (observer, embedding, counts) in a file beside a plain checkpoint.

`model.safetensors` of an attached model holds what a plain model has, under the names it has there. All that training
needs beside it is in `label_embedding.safetensors`, which plain Transformers does not look at.
"""

from __future__ import annotations

import hashlib
import inspect
import os
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import nn

from labelemb.integrations.transformers.attachment import Attachment, attachment_of
from labelemb.integrations.transformers.names import LABEL_SPACE_FILE, save_label_space
from labelemb.support.files import replacing

FILE_NAME = "label_embedding.safetensors"
FORMAT = "labelemb.training-parts"
FINGERPRINT_VALUES = 4096


def save_with_parts(model: Any) -> None:
    """Let `save_pretrained` of an attached model, or of PEFT's wrapper of it, write the training parts as well."""
    model.__dict__["save_pretrained"] = partial(_save_pretrained, model)


def _save_pretrained(
    model: Any,
    save_directory: str | os.PathLike[str],
    *args: Any,
    training_parts: bool = True,
    **kwargs: Any,
) -> None:
    """A plain checkpoint or adapter, and beside it the training parts and the label space, unless refused."""
    save = type(model).save_pretrained
    save(model, save_directory, *args, **kwargs)
    if not inspect.signature(save).bind(model, save_directory, *args, **kwargs).arguments.get("is_main_process", True):
        return
    if training_parts:
        save_training_parts(model, save_directory)
        save_label_space(model, save_directory)
    else:
        for name in (FILE_NAME, LABEL_SPACE_FILE):  # those of an earlier save belong to other weights
            (Path(save_directory) / name).unlink(missing_ok=True)


def save_training_parts(model: nn.Module, folder: str | os.PathLike[str]) -> None:
    """Write the training parts (observer, embedding, counts) of an attached model into a folder.

    The file is `label_embedding.safetensors`; a plain checkpoint in the same folder does not need it.
    """
    attachment = attachment_of(model)
    attachment.follow_layer()
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in attachment.head.state_dict().items()}
    metadata = {"format": FORMAT, "layer": attachment.layer_name, "fingerprint": _fingerprint(attachment)}
    with replacing(Path(folder) / FILE_NAME) as file:
        file.write(save(tensors, metadata))


def load_training_parts(model: nn.Module, folder: str | os.PathLike[str], *, same_weights: bool = False) -> None:
    """Load the training parts that were saved beside a checkpoint, to continue its training.

    >>> model = BertForSequenceClassification.from_pretrained("out")
    >>> model = attach_to_pretrained(model, embedding="compressed", rank=8)  # as before
    >>> load_training_parts(model, "out")

    Arguments:
        model: a model attached with the options of the earlier training.
        folder: the folder with `label_embedding.safetensors`.
        same_weights: raise a ValueError if the parts were saved with other weights of the last layer.
    """
    attachment, path = attachment_of(model), Path(folder) / FILE_NAME
    attachment.follow_layer()
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  not a dict
    except FileNotFoundError:
        raise ValueError(f"{folder} has no {FILE_NAME}: it holds a model without the training parts") from None
    except (OSError, SafetensorError) as error:
        raise ValueError(f"{path}: cannot be read: {error}") from error
    if metadata.get("format") != FORMAT:
        raise ValueError(f"{path}: not a file of training parts")
    if same_weights and metadata.get("fingerprint") != _fingerprint(attachment):
        raise ValueError(f"{path}: was saved with other weights than those of the model")
    _check_parts(path, tensors, attachment.head.state_dict())
    attachment.head.load_state_dict(tensors)
    attachment.parts_missing = False


def _check_parts(path: Path, found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> None:
    for name in sorted(found.keys() | wanted.keys()):
        shapes = [tuple(parts[name].shape) if name in parts else "nothing" for parts in (found, wanted)]
        if shapes[0] != shapes[1]:
            raise ValueError(
                f"{path}: has {shapes[0]} for {name}, but the head {shapes[1]}: attach it with the options it was "
                f"trained with"
            )


def _fingerprint(attachment: Attachment) -> str:
    """Tells the layer's weights from those of another moment or training, by a sample of them."""
    values = attachment.head.predictor.weight.detach().flatten()
    sample = values[:: max(1, len(values) // FINGERPRINT_VALUES)].double().cpu()
    return hashlib.sha256(sample.numpy().tobytes()).hexdigest()
