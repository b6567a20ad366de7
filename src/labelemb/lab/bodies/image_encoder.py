"""`ImageEncoder`: resizes and normalises images as a pretrained network expects, then applies the network."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

CHANNELS = 3


class ImageEncoder(nn.Module):
    """Undoes the normalisation of the data, scales images to the network's size and normalises them for it.

    Empty `mean` and `std` leave images as the data has them. Images of one channel are repeated to three.
    """

    def __init__(
        self,
        network: nn.Module,
        data: tuple[Sequence[float], Sequence[float]],
        own: tuple[Sequence[float], Sequence[float]],
        size: tuple[int, int],
    ) -> None:
        super().__init__()
        self.network, self.size = network, size
        data_mean, data_std = (torch.tensor(values).expand(CHANNELS) for values in data)
        mean, std = (torch.tensor(values) for values in own) if own[0] else (data_mean, data_std)
        self.scale: Tensor
        self.shift: Tensor
        # (pixel - mean) / std, where pixel = data_std * image + data_mean
        self.register_buffer("scale", (data_std / std).view(-1, 1, 1), persistent=False)
        self.register_buffer("shift", ((data_mean - mean) / std).view(-1, 1, 1), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        images = images * self.scale + self.shift  # of one channel: three, by broadcasting
        if images.shape[-2:] != self.size:
            shrinks = images.shape[-2] > self.size[0] or images.shape[-1] > self.size[1]
            images = F.interpolate(images, self.size, mode="bilinear", antialias=shrinks)
        return self.network(images)
