"""Thumbnails of images in memory."""

from PIL import Image
from torch import Tensor

MODES = {1: "L", 3: "RGB"}
"""Pillow's names for numbers of channels."""


def thumbnail(image: Tensor, width: int, height: int) -> Image.Image:
    """One image, (channels, height, width) in bytes, in another size."""
    pixels = image.permute(1, 2, 0).squeeze(-1).contiguous().numpy()
    return Image.fromarray(pixels).resize((width, height), Image.Resampling.BOX)
