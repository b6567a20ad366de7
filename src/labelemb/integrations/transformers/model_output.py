"""What a model makes of its last layer's answers: positions that it picks, losses of its own, a loss in eval mode."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.utils import ModelOutput


def picked_rows(hidden: Tensor, given: Tensor, layer_name: str) -> Tensor:
    """The hidden states at the positions that the model has picked from the placeholder, (sequences, in_features)."""
    sequences, length = hidden.shape[:2]
    positions = given.detach().reshape(len(given), -1)[:, 0].long() - 1
    expected = (positions + 1).unsqueeze(1).expand_as(given)
    inside = bool(((positions >= 0) & (positions < length)).all())
    if len(given) != sequences or not inside or not torch.equal(expected.to(given), given):
        raise ValueError(f"the model mixes the answers of several positions behind layer {layer_name!r}: no head fits")
    return hidden[torch.arange(sequences, device=positions.device), positions]


def other_losses(model: PreTrainedModel, output: ModelOutput) -> Tensor | float:
    """What the model adds to the loss of its answers: losses that need no labels, and that of a mixture's router."""
    own = output.get("loss")
    total: Tensor | float = 0.0 if own is None else own
    if getattr(model.config, "output_router_logits", False):
        router = output.get("aux_loss")
        if router is None:
            raise ValueError(
                f"{type(model).__name__} computes its router's loss with that of the labels only: set "
                f"output_router_logits=False in its configuration to train without it"
            )
        total = total + model.config.router_aux_loss_coef * router
    return total


class EvalModeWarning:
    """Warns once if the loss of a call in eval mode is trained with: it is the model's own, not the head's."""

    def __init__(self) -> None:
        self._given = False

    def watch(self, output: Any) -> None:
        """Look at what a model in eval mode gives; evaluation does not call backward()."""
        loss = output.get("loss") if isinstance(output, ModelOutput) else None
        if loss is not None and loss.requires_grad and not self._given and not torch.compiler.is_compiling():
            loss.register_hook(self._warn)

    def _warn(self, gradient: Tensor) -> None:
        if not self._given:
            self._given = True
            warnings.warn(
                "backward() of a loss in eval mode trains the model's own loss, and the head takes no part: call "
                "model.train() before training",
                stacklevel=2,
            )
