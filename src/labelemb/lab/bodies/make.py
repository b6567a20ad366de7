"""From a recipe and its data to a body."""

import math

import torch
from torch import nn

from labelemb.lab.bodies.cnn import CNN
from labelemb.lab.bodies.embedding_bag import EmbeddingBag
from labelemb.lab.bodies.initial import truncated_normal
from labelemb.lab.bodies.mlp import MLP
from labelemb.lab.bodies.resnet import STAGES, ResNet, pooled_size
from labelemb.lab.bodies.seq2seq import Seq2Seq
from labelemb.lab.data import Dataset
from labelemb.lab.recipes.recipe import Recipe
from labelemb.lab.recipes.settings import CnnBody, EmbeddingBagBody, MlpBody, ResNetBody, Seq2SeqBody
from labelemb.support.errors import UserError, enough_memory


def make_body(recipe: Recipe, dataset: Dataset) -> nn.Module:
    """The body that the recipe names, for inputs as the dataset has them; weights from torch's global generator."""
    settings = recipe.body
    with enough_memory("body", "change [body]"):
        match settings:
            case EmbeddingBagBody():
                body = _make_text_body(settings, recipe, dataset)
            case Seq2SeqBody():
                body = _make_pair_body(settings, recipe, dataset)
            case _:
                body = _make_image_body(settings, recipe, dataset)
    if settings.init == "truncated_normal":
        truncated_normal(body, settings.init_std)
    # convolutions, pools and norms whose channels lie side by side are faster, most of all narrow ones on a CPU; a
    # convolution hands on the layout of its weights. After the initial weights are drawn: the order of drawing stays.
    return body.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stubs lack this form


def _make_text_body(settings: EmbeddingBagBody, recipe: Recipe, dataset: Dataset) -> nn.Module:
    if dataset.preprocessing["kind"] != "text":
        raise UserError(f"body.kind = embedding_bag reads texts, data.kind = {recipe.data.kind} has images")
    features = len(dataset.preprocessing["vocabulary"])
    return EmbeddingBag(features, settings.embedding_size, settings.hidden, settings.dropout)


def _make_pair_body(settings: Seq2SeqBody, recipe: Recipe, dataset: Dataset) -> nn.Module:
    if dataset.preprocessing["kind"] != "text_pairs":
        raise UserError(f"body.kind = seq2seq reads pairs of texts, data.kind = {recipe.data.kind} has none")
    if settings.bidirectional and settings.hidden_size % 2:
        raise UserError(f"body.hidden_size is {settings.hidden_size}, must be even for two directions")
    if settings.share_vectors and dataset.preprocessing["source_words"] is not None:
        raise UserError("body.share_vectors = true needs one vocabulary: set data.shared_vocabulary = true")
    if settings.tie_output and settings.embedding_size != settings.hidden_size:
        raise UserError(
            f"body.tie_output needs vectors of the size of h: body.embedding_size is {settings.embedding_size}, "
            f"body.hidden_size {settings.hidden_size}"
        )
    return Seq2Seq(
        dataset.preprocessing["source_size"],
        len(dataset.label_names),
        embedding_size=settings.embedding_size,
        hidden_size=settings.hidden_size,
        layers=settings.layers,
        dropout=settings.dropout,
        bidirectional=settings.bidirectional,
        query_tanh=settings.query_tanh,
        share_vectors=settings.share_vectors,
        scaled_vectors=settings.tie_output,
    )


def _make_image_body(settings: MlpBody | CnnBody | ResNetBody, recipe: Recipe, dataset: Dataset) -> nn.Module:
    if dataset.preprocessing["kind"] != "image":
        wanted = "embedding_bag" if dataset.preprocessing["kind"] == "text" else "seq2seq"
        raise UserError(
            f"body.kind = {settings.kind} reads images, data.kind = {recipe.data.kind} has texts: use {wanted}"
        )
    channels, size = dataset.preprocessing["channels"], dataset.preprocessing["size"]
    if isinstance(settings, MlpBody):
        return MLP(channels * math.prod(size), settings.hidden, settings.dropout)
    if isinstance(settings, CnnBody):
        _check_size([side // 4 for side in size], size, settings.kind)
        return CNN(channels, size, settings.hidden, settings.width, settings.dropout)
    stages, blocks = STAGES[settings.kind]
    _check_size(pooled_size(size, len(stages)), size, settings.kind)
    return ResNet(channels, size, stages, blocks, settings.width, settings.dropout)


def _check_size(left: list[int], size: list[int], kind: str) -> None:
    if min(left) < 1:
        raise UserError(
            f"images of {size[0]} x {size[1]} pixels are too small for body.kind = {kind}: use larger ones, or mlp"
        )
