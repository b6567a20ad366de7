"""Small models whose last layer `attach` replaces, and a batch for them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

X = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
Y = torch.tensor([0, 1, 2, 0, 1])


class Net(nn.Module):
    """A model with its last layer inside a submodule and a second positional argument, as a ViT's `attn_mask`."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 8)
        self.classifier = nn.Sequential(nn.ReLU(), nn.Linear(8, 3))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.classifier(self.body(x if mask is None else x * mask))


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 8)
        self.fc = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[-1] != 4:
            raise ValueError("four features, please")
        return self.fc(self.body(x).relu())


def plain_model(seed: int = 0) -> Plain:
    torch.manual_seed(seed)
    return Plain()
