"""`BiasedLayer`: a model's last layer together with the constant bias that the model adds to its logits."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel

NAME = "final_logits_bias"
"""The buffer (1, labels) of BART, Marian, mBART, Pegasus and their relatives; Marian's checkpoints fill it."""


class BiasedLayer(nn.Linear):
    """One linear layer in place of `lm_head(hidden) + final_logits_bias`, for the head to train.

    Weight and bias are read from the model when they are used, so that they stay right when the model is moved, cast or
    loaded. The layer has no parameters of its own.
    """

    def __init__(self, model: PreTrainedModel, layer: nn.Linear) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = layer.in_features, layer.out_features
        # neither submodules nor buffers: all of them are registered in their own place
        self.__dict__.update(model=model, layer=layer, hidden_bias=None)

    @property
    def weight(self) -> Tensor:  # type: ignore[override]  # nn.Linear has a parameter there
        return self.__dict__["layer"].weight

    @property
    def bias(self) -> Tensor:  # type: ignore[override]  # nn.Linear has a parameter there
        constant: Tensor = getattr(self.__dict__["model"], NAME).reshape(-1).to(self.weight)
        own: Tensor | None = self.__dict__["layer"].bias
        return constant if own is None else own + constant

    def forward(self, hidden: Tensor) -> Tensor:
        return F.linear(hidden, self.weight, self.bias)

    def hide_bias(self, device: torch.device | str) -> None:
        """Let the model add zeros on `device` until `restore_bias`: its placeholder for the logits is there."""
        buffers = self.__dict__["model"]._buffers
        self.__dict__["hidden_bias"] = buffers[NAME]
        buffers[NAME] = torch.zeros_like(buffers[NAME], device=device)

    def restore_bias(self) -> None:
        if self.__dict__["hidden_bias"] is not None:
            self.__dict__["model"]._buffers[NAME] = self.__dict__["hidden_bias"]
            self.__dict__["hidden_bias"] = None


def predictor_of(model: PreTrainedModel, layer: nn.Linear) -> nn.Linear:
    """The linear layer that gives the model's logits: `layer` itself, or a `BiasedLayer`."""
    return BiasedLayer(model, layer) if isinstance(model._buffers.get(NAME), Tensor) else layer
