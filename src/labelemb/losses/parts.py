"""`Parts`: the layers, the embedding and the objective that a loss works with."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from labelemb.embeddings.base import LabelEmbedding
from labelemb.losses.objective import Objective
from labelemb.support.arguments import require_floats


class LinearLayer(Protocol):
    """What a loss needs of an `nn.Linear`."""

    @property
    def weight(self) -> Tensor: ...

    @property
    def bias(self) -> Tensor | None: ...

    def __call__(self, hidden: Tensor, /) -> Tensor: ...


@dataclass(frozen=True)
class Parts:
    """What is trained, and how."""

    predictor: LinearLayer
    observer: LinearLayer | None
    embedding: LabelEmbedding | None
    """None: there are no soft targets."""
    objective: Objective


def apply_linear(layer: LinearLayer, hidden: Tensor) -> Tensor:
    """The layer's logits; a hidden state of another precision is converted, as autocast would."""
    return layer(in_precision_of(layer, hidden))


def in_precision_of(layer: LinearLayer, hidden: Tensor) -> Tensor:
    """Hidden states that the layer can read, under autocast or without."""
    require_floats("hidden", hidden)
    given, wanted = hidden.dtype, layer.weight.dtype
    # autocast converts everything but float64
    if given != wanted and (not autocasts(hidden.device.type) or torch.float64 in (given, wanted)):
        return hidden.to(wanted)
    return hidden


def autocasts(device: str) -> bool:
    """Whether autocast is on; torch refuses the question for meta tensors."""
    return device != "meta" and torch.is_autocast_enabled(device)


def without_autocast(device: str) -> AbstractContextManager[object]:
    """A block in full precision; free of charge where autocast is off already."""
    return torch.autocast(device, enabled=False) if autocasts(device) else nullcontext()
