"""Initial weights of the paper's MNIST networks."""

from torch import nn


def truncated_normal(module: nn.Module, std: float) -> None:
    """Weights of linear and convolutional layers from a normal cut off at two standard deviations, biases zero."""
    for layer in module.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            nn.init.trunc_normal_(layer.weight, std=std, a=-2 * std, b=2 * std)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
