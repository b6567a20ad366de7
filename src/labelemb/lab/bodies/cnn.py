"""The convolutional network of the paper's MNIST experiment: 5x5x32, pool, 5x5x64, pool, 1024."""

from collections.abc import Sequence

from torch import Tensor, nn

from labelemb.lab.bodies.mlp import MLP


class CNN(nn.Module):
    """Two 5x5 convolutions, each with ReLU and 2x2 max pooling, then fully connected layers."""

    def __init__(
        self, channels: int, size: Sequence[int], hidden: Sequence[int], width: float = 1.0, dropout: float = 0.0
    ) -> None:
        super().__init__()
        first, second = (max(1, round(count * width)) for count in (32, 64))
        self.convolutions = nn.Sequential(
            nn.Conv2d(channels, first, kernel_size=5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(first, second, kernel_size=5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        height, width_left = (side // 4 for side in size)
        self.top = MLP(second * height * width_left, hidden, dropout)
        self.out_features = self.top.out_features

    def forward(self, images: Tensor) -> Tensor:
        return self.top(self.convolutions(images))
