"""Networks of Transformers as encoders of texts and images, loaded with weights or built without them.

Nothing here executes code of a checkpoint: weights are safetensors, or read by torch as tensors only, and code beside
the weights is refused.
"""

import inspect
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from labelemb.lab.pretrained.places import network_folder
from labelemb.lab.recipes.pretrained_settings import PretrainedBody
from labelemb.support.errors import UserError
from labelemb.support.optional import import_optional

OF_THE_MACHINE = ("_name_or_path", "transformers_version", "_commit_hash")
"""Keys of a configuration that say nothing about the network."""


class TextEncoder(nn.Module):
    """The mean of a text's last hidden states, or the first of them.

    Takes token numbers, (rows, positions), of which negative ones are no tokens.
    """

    def __init__(self, network: nn.Module, pooling: str) -> None:
        super().__init__()
        self.network, self.pooling = network, pooling

    def forward(self, tokens: Tensor) -> Tensor:
        # a text without tokens has its first position as one: attention to nothing is not a number
        known = (tokens >= 0) | (torch.arange(tokens.shape[1], device=tokens.device) == 0)
        states = self.network(input_ids=tokens.clamp(min=0), attention_mask=known.long()).last_hidden_state
        if self.pooling == "first":
            return states[:, 0]
        weights = known.unsqueeze(-1).to(states.dtype)  # (rows, positions, 1)
        return (states * weights).sum(1) / weights.sum(1)


class ImageNetwork(nn.Module):
    """The mean of an image's last hidden states, or the first of them."""

    def __init__(self, network: nn.Module, pooling: str, size: tuple[int, int]) -> None:
        super().__init__()
        self.network, self.pooling = network, pooling
        own = _pair(getattr(network.config, "image_size", None))
        resizes = "interpolate_pos_encoding" in inspect.signature(network.forward).parameters
        if own is not None and own != size and _has_positions(network) and not resizes:
            raise UserError(f"body.image_size is {size[0]}, but this network takes images of {own[0]} pixels only")
        self.options = {"interpolate_pos_encoding": True} if resizes and own != size else {}

    def forward(self, images: Tensor) -> Tensor:
        states = self.network(pixel_values=images, **self.options).last_hidden_state
        if states.ndim == 4:  # (rows, channels, height, width)
            return states.mean((2, 3))
        return states[:, 0] if self.pooling == "first" else states.mean(1)


def load_network(settings: PretrainedBody, part: str) -> nn.Module:
    """The network that the settings name, with its weights. `part` is what is taken of one for texts and images."""
    folder = network_folder(settings.name)
    transformers = import_optional("transformers", f"body.name = {settings.name}", "transformers")
    with _readable(f"body.name = {settings.name}"), _quiet(transformers):
        network = transformers.AutoModel.from_pretrained(
            folder, trust_remote_code=False, local_files_only=True, dtype=torch.float32
        )
    return _prepared(network, part, settings)


def rebuild_network(settings: PretrainedBody, config: dict[str, Any], part: str) -> nn.Module:
    """The network of a kept configuration, whose weights come from the run."""
    transformers = import_optional("transformers", f"body.name = {settings.name}", "transformers")
    with _readable("the kept configuration of the network"), _quiet(transformers):
        made = transformers.AutoConfig.for_model(**config)
        network = transformers.AutoModel.from_config(made, trust_remote_code=False, dtype=torch.float32)
    return _prepared(network, part, settings)


def kept_config(network: nn.Module) -> dict[str, Any]:
    """The configuration from which `rebuild_network` makes the same network."""
    whole: Any = getattr(network, "whole_config", network.config)
    saved: dict[str, Any] = json.loads(whole.to_json_string(use_diff=False))
    return {key: value for key, value in saved.items() if key not in OF_THE_MACHINE}


def image_preprocessing(name: str) -> tuple[tuple[int, int] | None, tuple[float, ...], tuple[float, ...]]:
    """Image size, mean and standard deviation that a network was trained with, as its preprocessor_config.json says."""
    file: Path = network_folder(name) / "preprocessor_config.json"
    if not file.is_file():
        return None, (), ()
    try:
        found = json.loads(file.read_bytes())
        size = _pair(found.get("crop_size") if found.get("do_center_crop") else None) or _pair(found.get("size"))
        if not found.get("do_normalize", True):
            return size, (), ()
        mean, std = (tuple(float(value) for value in found.get(key) or ()) for key in ("image_mean", "image_std"))
    except (ValueError, TypeError, AttributeError) as error:
        raise UserError(f"{file} cannot be read ({error})") from error
    return size, mean, std


def _pair(size: Any) -> tuple[int, int] | None:
    """Height and width from the forms that Transformers writes them in."""
    if isinstance(size, dict):
        side = size.get("shortest_edge")
        size = [size.get("height", side), size.get("width", side)]
    if isinstance(size, int):
        return size, size
    if isinstance(size, list | tuple) and len(size) == 2 and all(isinstance(side, int) for side in size):
        return size[0], size[1]
    return None


def _has_positions(network: nn.Module) -> bool:
    return any("position_embedding" in name for name, _ in network.named_parameters())


def _prepared(network: Any, part: str, settings: PretrainedBody) -> nn.Module:
    """What is used of a network, without layers that give nothing to the features."""
    config = network.config
    if getattr(config, "is_encoder_decoder", False):
        network = network.get_encoder()
    inner = getattr(network, part, None)
    if isinstance(inner, nn.Module) and hasattr(inner, "config"):  # a pair of networks for texts and images
        network = inner
    network.whole_config = config
    if "add_pooling_layer" in inspect.signature(type(network).__init__).parameters:
        network.pooler = None
    if settings.checkpointing:
        if not getattr(network, "supports_gradient_checkpointing", False):
            raise UserError(f"body.checkpointing = true: {settings.name} cannot compute activations twice")
        network.gradient_checkpointing_enable({"use_reentrant": False})
    return network


@contextmanager
def _readable(what: str) -> Iterator[None]:
    """Turns whatever Transformers raises about a network that it cannot make into one line."""
    try:
        yield
    except Exception as error:  # a wrong value in a configuration surfaces anywhere in the library
        raise UserError(f"{what} cannot be loaded: {str(error).strip().splitlines()[0]}") from error


@contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """No progress bars and no advice while a network is loaded."""
    logging = transformers.utils.logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
