"""`Architecture`: what is needed to build a pretrained network again without its weights. Saved with a run as JSON."""

from typing import Any, Literal

import msgspec


class Architecture(msgspec.Struct, frozen=True, omit_defaults=True):
    """The form of a network that was trained before."""

    family: Literal["vectors", "transformers", "efficientnet"]
    shape: tuple[int, int] = (0, 0)
    """Token vectors: how many, and how long."""
    config: dict[str, Any] = {}
    """Transformers: the network's configuration."""
    image_size: tuple[int, int] = (0, 0)
    """Images: height and width that they are scaled to."""
    mean: tuple[float, ...] = ()
    """Images: mean of each channel, on pixels from 0 to 1; empty to leave images as the data normalises them."""
    std: tuple[float, ...] = ()
    """Images: standard deviation of each channel."""
