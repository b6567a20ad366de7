"""Makes pretrained bodies from their settings, with their weights, or without them for the model of a run."""

import msgspec
import torch
from torch import Tensor, nn

from labelemb.lab.bodies.efficientnet import IMAGE_SIZE, MEAN, STD, EfficientNetLite
from labelemb.lab.bodies.feature_body import FeatureBody
from labelemb.lab.bodies.image_encoder import CHANNELS, ImageEncoder
from labelemb.lab.bodies.token_vectors import TokenVectors, read_vectors
from labelemb.lab.bodies.transformer import (
    ImageNetwork,
    TextEncoder,
    image_preprocessing,
    kept_config,
    load_network,
    rebuild_network,
)
from labelemb.lab.data import ImageInputs, TokenInputs
from labelemb.lab.pretrained.architecture import Architecture
from labelemb.lab.pretrained.places import EFFICIENTNET, vector_files
from labelemb.lab.recipes.pretrained_settings import PretrainedBody, TokenVectorsBody, TrainedBefore
from labelemb.support.errors import UserError


def make_vectors_body(settings: TokenVectorsBody, inputs: TokenInputs, kept: Architecture | None) -> FeatureBody:
    """The mean of token vectors; of zeros for a kept architecture."""
    if kept is None:
        file, tokenizer = vector_files(settings)
        vectors = read_vectors(file, settings.tensor)
        if len(vectors) < inputs.tokens:
            raise UserError(f"{file} has {len(vectors)} vectors, but {tokenizer} has {inputs.tokens} tokens")
    else:
        vectors = torch.zeros(kept.shape)
    form = Architecture("vectors", shape=(len(vectors), vectors.shape[1]))
    return _body(TokenVectors(vectors), vectors.shape[1], settings, form)


def make_network_body(
    settings: PretrainedBody, inputs: TokenInputs | ImageInputs, kept: Architecture | None
) -> FeatureBody:
    """A pretrained network for texts or images."""
    if isinstance(inputs, TokenInputs):
        if settings.image_size:
            raise UserError(f"body.image_size = {settings.image_size} is for images, the data has texts: leave it out")
        return _text_body(settings, kept)
    if settings.max_length:
        raise UserError(f"body.max_length = {settings.max_length} is for texts, the data has images: leave it out")
    if inputs.channels not in (1, CHANNELS):
        raise UserError(f"body.kind = pretrained reads images of 1 or 3 channels, these have {inputs.channels}")
    return _image_body(settings, inputs, kept)


def _text_body(settings: PretrainedBody, kept: Architecture | None) -> FeatureBody:
    if settings.name == EFFICIENTNET:
        raise UserError(f"body.name = {EFFICIENTNET} reads images, the data has texts")
    if kept is None:
        network = load_network(settings, "text_model")
    else:
        network = rebuild_network(settings, kept.config, "text_model")
    encoder = TextEncoder(network, settings.pooling)
    features = _count_features(encoder, torch.zeros(1, 1, dtype=torch.long), f"body.name = {settings.name}", "texts")
    return _body(encoder, features, settings, Architecture("transformers", config=kept_config(network)))


def _image_body(settings: PretrainedBody, inputs: ImageInputs, kept: Architecture | None) -> FeatureBody:
    form = kept or _image_form(settings)
    size = form.image_size
    if settings.name == EFFICIENTNET:
        _refuse_options(settings)
        network: nn.Module = EfficientNetLite(size, weights=kept is None)
    else:
        if kept is None:
            inner = load_network(settings, "vision_model")
        else:
            inner = rebuild_network(settings, kept.config, "vision_model")
        if size == (0, 0):
            size = _own_size(inner, settings)
        form = msgspec.structs.replace(form, config=kept_config(inner), image_size=size)
        network = ImageNetwork(inner, settings.pooling, size)
    encoder = ImageEncoder(network, (inputs.mean, inputs.std), (form.mean, form.std), size)
    sample = torch.zeros(1, inputs.channels, *inputs.size)
    features = _count_features(encoder, sample, f"body.name = {settings.name}", "images")
    return _body(encoder, features, settings, form)


def _image_form(settings: PretrainedBody) -> Architecture:
    """The size and the normalisation that a network's images have."""
    asked = (settings.image_size, settings.image_size)
    if settings.name == EFFICIENTNET:
        own = asked if settings.image_size else (IMAGE_SIZE, IMAGE_SIZE)
        return Architecture("efficientnet", image_size=own, mean=MEAN, std=STD)
    size, mean, std = image_preprocessing(settings.name)
    found = asked if settings.image_size else size or (0, 0)
    for values in (mean, std):
        if values and len(values) != CHANNELS:
            raise UserError(f"body.name = {settings.name} is made for images of {len(values)} channels, not {CHANNELS}")
    return Architecture("transformers", image_size=found, mean=mean, std=std)


def _own_size(network: nn.Module, settings: PretrainedBody) -> tuple[int, int]:
    side = getattr(network.config, "image_size", None)
    if not isinstance(side, int):
        raise UserError(f"body.name = {settings.name} does not say how large its images are: set body.image_size")
    return side, side


def _refuse_options(settings: PretrainedBody) -> None:
    for key, usual in (("pooling", "mean"), ("checkpointing", False)):
        if getattr(settings, key) != usual:
            raise UserError(f"body.{key} is not for body.name = {settings.name}: leave it out")


@torch.no_grad()
def _count_features(encoder: nn.Module, sample: Tensor, name: str, noun: str) -> int:
    """How many features an encoder gives, by trying it."""
    encoder.eval()
    try:
        return int(encoder(sample).shape[1])
    except (TypeError, AttributeError, ValueError, RuntimeError, IndexError) as error:
        raise UserError(f"{name} does not read {noun}: {str(error).strip().splitlines()[0]}") from error


def _body(encoder: nn.Module, features: int, settings: TrainedBefore, form: Architecture) -> FeatureBody:
    return FeatureBody(encoder, features, settings.hidden, settings.dropout, form)


def kept_architecture(body: nn.Module) -> Architecture | None:
    """What a run keeps of a body that was trained before, to build it again; None for other bodies."""
    return body.architecture if isinstance(body, FeatureBody) else None
