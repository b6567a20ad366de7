"""ResNet-8 and ResNet-18 as in the paper's CIFAR experiments: twice the usual width.

| | first convolution | stages | blocks in a stage | features of a 32 x 32 image |
| --- | --- | --- | --- | --- |
| ResNet-8 | 3x3x128 | 128-256-512 | 1 | 512 x 2 x 2 = 2048 |
| ResNet-18 | 3x3x128 | 128-256-512-1024 | 2 | 1024 |
"""

import math
from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional as F

POOL = 4
STAGES = {"resnet8": ((128, 256, 512), 1), "resnet18": ((128, 256, 512, 1024), 2)}


class BasicBlock(nn.Module):
    """Two 3x3 convolutions around a shortcut, which is a 1x1 convolution where the shape changes."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.first = _convolution(channels_in, channels, 3, stride)
        self.second = _convolution(channels, channels, 3, 1)
        same_shape = stride == 1 and channels_in == channels
        # Strided by slicing: oneDNN on AVX2 corrupts memory in the backward pass of a strided 1x1 convolution of few
        # channels in the channels-last format.
        self.stride = stride
        self.shortcut = nn.Identity() if same_shape else _convolution(channels_in, channels, 1, 1)

    def forward(self, images: Tensor) -> Tensor:
        return F.relu(
            self.second(F.relu(self.first(images))) + self.shortcut(images[:, :, :: self.stride, :: self.stride])
        )


class ResNet(nn.Module):
    """Stages of basic blocks, each but the first at half the resolution, then a 4x4 average pool."""

    def __init__(
        self,
        channels: int,
        size: Sequence[int],
        stages: Sequence[int],
        blocks: int,
        width: float = 1.0,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        counts = [max(1, round(count * width)) for count in stages]
        layers: list[nn.Module] = [_convolution(channels, counts[0], 3, 1), nn.ReLU()]
        before = counts[0]
        for number, count in enumerate(counts):
            for block in range(blocks):
                layers.append(BasicBlock(before, count, stride=2 if number > 0 and block == 0 else 1))
                before = count
        layers += [nn.AvgPool2d(POOL), nn.Flatten()]
        if dropout:
            layers.append(nn.Dropout(dropout))
        self.layers = nn.Sequential(*layers)
        self.out_features = before * math.prod(pooled_size(size, len(counts)))

    def forward(self, images: Tensor) -> Tensor:
        return self.layers(images)


def pooled_size(size: Sequence[int], stages: int) -> list[int]:
    """Height and width after the last pool; 0 where the image is too small for that many stages."""
    for _ in range(stages - 1):
        size = [(side + 1) // 2 for side in size]
    return [side // POOL for side in size]


def _convolution(channels_in: int, channels: int, kernel: int, stride: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels_in, channels, kernel, stride=stride, padding=kernel // 2, bias=False),
        nn.BatchNorm2d(channels),
    )
