"""Separate random streams, so that a change of one part of a run does not affect the others.

All methods of a seed start from the same body and see the same batches, whatever their heads draw.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor


def stream_seed(seed: int, *purpose: object) -> int:
    """A seed for one purpose of a run: far from those of other purposes and of neighbouring seeds."""
    text = ":".join(str(part) for part in (seed, *purpose))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")


@contextmanager
def stream(seed: int, *purpose: object) -> Iterator[None]:
    """Inside, torch's global generator is the stream of that purpose; outside it goes on as if nothing had happened."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(stream_seed(seed, *purpose))
        yield


class Streams:
    """The generators that a running training draws from: data order, augmentation, and torch's own for dropout.

    The order is the same in every process of a run, the others differ.
    """

    def __init__(self, seed: int, rank: int, device: torch.device) -> None:
        self.device = device
        self.order = torch.Generator().manual_seed(stream_seed(seed, "order"))
        self.augment = torch.Generator().manual_seed(stream_seed(seed, "augment", rank))
        torch.manual_seed(stream_seed(seed, "dropout", rank))

    def state(self) -> dict[str, Tensor]:
        """What `restore` needs, apart from the order: that is saved as it was when the epoch began."""
        state = {"augment": self.augment.get_state(), "dropout": torch.get_rng_state()}
        if self.device.type == "cuda":
            state["device"] = torch.cuda.get_rng_state(self.device)
        return state

    def restore(self, state: dict[str, Any]) -> None:
        self.augment.set_state(state["augment"])
        torch.set_rng_state(state["dropout"])
        if self.device.type == "cuda" and "device" in state:
            torch.cuda.set_rng_state(state["device"], self.device)
