"""`FeatureBody`: a pretrained encoder that can be frozen, then new layers."""

from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor, nn

from labelemb.lab.bodies.mlp import MLP
from labelemb.lab.pretrained.architecture import Architecture

ROWS_AT_ONCE = 64
"""Rows that an encoder takes at once where no gradients are needed: large inputs would fill the memory."""


class FeatureBody(nn.Module):
    """An encoder, from inputs to features (rows, numbers), then dropout and fully connected layers, `top`.

    A frozen encoder is in evaluation mode and without gradients.
    """

    def __init__(
        self, encoder: nn.Module, features: int, hidden: Sequence[int], dropout: float, architecture: Architecture
    ) -> None:
        super().__init__()
        layers = MLP(features, hidden, dropout)
        self.encoder = encoder
        self.top = nn.Sequential(nn.Dropout(dropout), layers)
        self.out_features = layers.out_features
        self.architecture = architecture
        self.frozen = False

    def freeze(self, frozen: bool) -> None:
        """Keep the encoder as it is, or train it."""
        self.frozen = frozen
        self.encoder.requires_grad_(not frozen)
        self.train(self.training)

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        self.encoder.train(mode and not self.frozen)
        return self

    def features(self, inputs: Tensor) -> Tensor:
        """The encoder's features of a batch, (rows, numbers)."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            if torch.is_grad_enabled() or torch.compiler.is_compiling():
                return self.encoder(inputs)
            return torch.cat([self.encoder(part) for part in inputs.split(ROWS_AT_ONCE)])

    def forward(self, inputs: Tensor) -> Tensor:
        return self.top(self.features(inputs))
