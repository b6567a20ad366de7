"""Makes bodies from their settings: the network, its initial weights, or weights from a finished run."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from labelemb.lab.bodies.cnn import CNN
from labelemb.lab.bodies.embedding_bag import EmbeddingBag
from labelemb.lab.bodies.mlp import MLP
from labelemb.lab.bodies.pretrained import make_network_body, make_vectors_body
from labelemb.lab.bodies.resnet import STAGES, ResNet, pooled_size
from labelemb.lab.bodies.seq2seq import Seq2Seq
from labelemb.lab.data import ImageInputs, InputForm, PairInputs, TextInputs, TokenInputs
from labelemb.lab.pretrained.architecture import Architecture
from labelemb.lab.recipes.pretrained_settings import PretrainedBody, TokenVectorsBody
from labelemb.lab.recipes.settings import (
    BodySettings,
    CnnBody,
    EmbeddingBagBody,
    MlpBody,
    NewBody,
    ResNetBody,
    Seq2SeqBody,
)
from labelemb.support.errors import UserError, enough_memory

BODY_PREFIX = "body."
"""Before the names of a body's tensors in the model file of a run."""


def make_body(
    settings: BodySettings, inputs: InputForm, num_labels: int, kept: Architecture | None = None
) -> nn.Module:
    """The network that the settings name, for inputs of that form; new weights from torch's global generator.

    With `kept`, a network that was trained before is built without looking for its weights.
    """
    with enough_memory("body", "change [body]"):
        match settings:
            case EmbeddingBagBody():
                body: nn.Module = _make_text_body(settings, inputs)
            case Seq2SeqBody():
                body = _make_pair_body(settings, inputs, num_labels)
            case TokenVectorsBody():
                if not isinstance(inputs, TokenInputs):
                    raise _mismatch(settings, "texts", inputs)
                body = make_vectors_body(settings, inputs, kept)
            case PretrainedBody():
                if not isinstance(inputs, TokenInputs | ImageInputs):
                    raise _mismatch(settings, "texts or images", inputs)
                body = make_network_body(settings, inputs, kept)
            case _:
                body = _make_image_body(settings, inputs)
    if isinstance(settings, NewBody) and settings.init == "truncated_normal":
        _truncated_normal(body, settings.init_std)
    # convolutions, pools and norms whose channels lie side by side are faster, most of all narrow ones on a CPU; a
    # convolution hands on the layout of its weights. After the initial weights are drawn: the order of drawing stays.
    return body.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stubs lack this form


def start_from(body: nn.Module, tensors: Mapping[str, Tensor], run: str) -> None:
    """Give a body the weights of a finished run's body; one of another shape is an error."""
    weights = {
        name.removeprefix(BODY_PREFIX): tensor for name, tensor in tensors.items() if name.startswith(BODY_PREFIX)
    }
    own = body.state_dict()
    if lacking := sorted(own.keys() ^ weights.keys()):
        where = "that run" if lacking[0] in weights else "this recipe"
        raise UserError(f"body.start = {run}: its body is another network, only {where} has {lacking[0]}")
    for name, tensor in own.items():
        if tensor.shape != weights[name].shape:
            there, here = (" x ".join(map(str, shape)) for shape in (weights[name].shape, tensor.shape))
            raise UserError(f"body.start = {run}: its body has another shape, {name} is {there} there and {here} here")
    body.load_state_dict(weights)


def _make_text_body(settings: EmbeddingBagBody, inputs: InputForm) -> EmbeddingBag:
    if not isinstance(inputs, TextInputs):
        raise _mismatch(settings, "texts", inputs)
    return EmbeddingBag(len(inputs.vocabulary), settings.embedding_size, settings.hidden, settings.dropout)


def _make_pair_body(settings: Seq2SeqBody, inputs: InputForm, num_labels: int) -> Seq2Seq:
    if not isinstance(inputs, PairInputs):
        raise _mismatch(settings, "pairs of texts", inputs)
    if settings.bidirectional and settings.hidden_size % 2:
        raise UserError(f"body.hidden_size is {settings.hidden_size}, must be even for two directions")
    if settings.share_vectors and inputs.source_words is not None:
        raise UserError("body.share_vectors = true needs one vocabulary: set data.shared_vocabulary = true")
    if settings.tie_output and settings.embedding_size != settings.hidden_size:
        raise UserError(
            f"body.tie_output needs vectors of the size of h: body.embedding_size is {settings.embedding_size}, "
            f"body.hidden_size {settings.hidden_size}"
        )
    return Seq2Seq(
        inputs.source_size,
        num_labels,
        embedding_size=settings.embedding_size,
        hidden_size=settings.hidden_size,
        layers=settings.layers,
        dropout=settings.dropout,
        bidirectional=settings.bidirectional,
        query_tanh=settings.query_tanh,
        share_vectors=settings.share_vectors,
        scaled_vectors=settings.tie_output,
    )


def _make_image_body(settings: BodySettings, inputs: InputForm) -> nn.Module:
    if not isinstance(inputs, ImageInputs):
        raise _mismatch(settings, "images", inputs)
    channels, size = inputs.channels, inputs.size
    if isinstance(settings, MlpBody):
        return MLP(channels * math.prod(size), settings.hidden, settings.dropout)
    if isinstance(settings, CnnBody):
        _check_size([side // 4 for side in size], size, settings.kind)
        return CNN(channels, size, settings.hidden, settings.width, settings.dropout)
    assert isinstance(settings, ResNetBody)
    stages, blocks = STAGES[settings.kind]
    _check_size(pooled_size(size, len(stages)), size, settings.kind)
    return ResNet(channels, size, stages, blocks, settings.width, settings.dropout)


def _mismatch(settings: BodySettings, noun: str, inputs: InputForm) -> UserError:
    texts = "embedding_bag, token-vectors or pretrained"
    images = "mlp, cnn, resnet8 or pretrained"
    use = {ImageInputs: images, TextInputs: texts, TokenInputs: texts, PairInputs: "seq2seq"}[type(inputs)]
    return UserError(f"body.kind = {settings.kind} reads {noun}, the data has {inputs.noun}: use {use}")


def _check_size(left: list[int], size: list[int], kind: str) -> None:
    if min(left) < 1:
        raise UserError(
            f"images of {size[0]} x {size[1]} pixels are too small for body.kind = {kind}: use larger ones, or mlp"
        )


def _truncated_normal(module: nn.Module, std: float) -> None:
    """Weights of linear and convolutional layers from a normal cut off at two standard deviations, biases zero."""
    for layer in module.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            nn.init.trunc_normal_(layer.weight, std=std, a=-2 * std, b=2 * std)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
