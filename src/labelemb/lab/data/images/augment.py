"""Random crops and mirrored images, for a whole batch at once."""

import torch
from torch import Tensor

from labelemb.lab.data.dataset import Inputs
from labelemb.lab.data.images.examples import Normalisation


class CropFlip:
    """Pads each normalised image with black, crops it at a random place to its old size, and mirrors half of them."""

    def __init__(self, normalisation: Normalisation, padding: int = 4) -> None:
        self.black = normalisation.shift  # (channels, 1, 1)
        self.padding = padding

    def __call__(self, inputs: Inputs, generator: torch.Generator) -> Inputs:
        (images,) = inputs
        rows, columns, mirrored = self.draw(len(images), generator)
        return (self.apply(images, rows, columns, mirrored),)

    def draw(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Offsets of the crops inside the padded images, and which images to mirror; each (count,)."""
        places = 2 * self.padding + 1
        rows = torch.randint(places, (count,), generator=generator)
        columns = torch.randint(places, (count,), generator=generator)
        return rows, columns, torch.rand(count, generator=generator) < 0.5

    def apply(self, images: Tensor, rows: Tensor, columns: Tensor, mirrored: Tensor) -> Tensor:
        """The crops at those offsets. images: (count, channels, height, width)."""
        count, _, height, width = images.shape
        pad = self.padding
        padded = self.black.to(images).repeat(count, 1, height + 2 * pad, width + 2 * pad)
        padded[:, :, pad : pad + height, pad : pad + width] = images
        across = torch.arange(width).expand(count, width)
        across = torch.where(mirrored[:, None], width - 1 - across, across) + columns[:, None]  # (count, width)
        down = torch.arange(height) + rows[:, None]  # (count, height)
        image = torch.arange(count)[:, None, None]
        device = images.device
        # the channel slice between two index tensors moves channels last: (count, height, width, channels)
        crops = padded[image.to(device), :, down[:, :, None].to(device), across[:, None, :].to(device)]
        return crops.permute(0, 3, 1, 2).contiguous()
