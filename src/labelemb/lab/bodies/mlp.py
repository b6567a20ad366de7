"""The multilayer perceptron of the paper's appendix: 784-500-500."""

from collections.abc import Sequence

from torch import Tensor, nn


class MLP(nn.Module):
    """Fully connected layers, each with ReLU and dropout, on flattened inputs."""

    def __init__(self, in_features: int, hidden: Sequence[int], dropout: float = 0.0) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Flatten()]
        for size in hidden:
            layers += [nn.Linear(in_features, size), nn.ReLU()]
            if dropout:
                layers.append(nn.Dropout(dropout))
            in_features = size
        self.layers = nn.Sequential(*layers)
        self.out_features = in_features

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layers(inputs)
