"""Features of a frozen body: computed once and kept in the user cache for all runs that need them.

The name of a kept file is a checksum of all that its features depend on: the encoder with its weights, the examples,
and how they are computed. A file that cannot be read is computed again.
"""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import cast

import msgspec
import torch
from filelock import FileLock
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from labelemb.lab.bodies import FeatureBody
from labelemb.lab.bodies.token_vectors import TokenVectors
from labelemb.lab.data import Dataset, Examples, ImageExamples, TokenExamples
from labelemb.lab.data.dataset import Inputs, tensor_bytes
from labelemb.lab.data.files import user_cache
from labelemb.lab.recipes.pretrained_settings import TrainedBefore
from labelemb.lab.recipes.recipe import Recipe
from labelemb.lab.runs.fabric import Fabric
from labelemb.lab.runs.messages import Warn
from labelemb.support.files import make_folder, write_bytes
from labelemb.support.tensors import evaluating

FOLDER = "features"
KEY = "features"
ROWS = 64
"""Rows of a batch."""


class FeatureExamples(Examples):
    """Examples as features, (rows, numbers)."""

    def __init__(self, features: Tensor, original: Examples) -> None:
        super().__init__(original.targets)
        self.features = features
        self.original: Examples = original

    def batch(self, index: Tensor) -> tuple[Inputs, Tensor]:
        return (self.features[index],), self.targets[index]

    def select(self, index: Tensor) -> "FeatureExamples":
        return FeatureExamples(self.features[index], self.original.select(index))


def keeps_features(recipe: Recipe, data: Dataset) -> bool:
    """Whether every example has the same features throughout the training."""
    body = recipe.body
    return isinstance(body, TrainedBefore) and body.is_frozen(recipe.train.epochs - 1) and data.augment is None


def with_features(fabric: Fabric, body: FeatureBody, data: Dataset, precision: str, warn: Warn) -> Dataset:
    """The data with features of the body's encoder in place of inputs."""

    def of(examples: Examples) -> FeatureExamples:
        return _features(fabric, body, examples, precision, warn)

    held_out = data.held_out
    return replace(
        data,
        train=of(data.train),
        dev=None if data.dev is None else of(data.dev),
        test=of(data.test),
        held_out=None if held_out is None else replace(held_out, examples=of(held_out.examples)),
    )


def _features(fabric: Fabric, body: FeatureBody, examples: Examples, precision: str, warn: Warn) -> FeatureExamples:
    if isinstance(body.encoder, TokenVectors):  # quicker computed than read
        return FeatureExamples(_computed(fabric, body, examples), examples)
    folder = user_cache() / FOLDER
    make_folder(folder)
    file = folder / f"{_checksum(body, examples, precision)}.safetensors"
    with FileLock(file.with_suffix(".lock")):
        found = _read(file, len(examples))
        if found is None:
            warn(f"computing the features of {len(examples):,} examples; they are kept in {folder}")
            found = _computed(fabric, body, examples)
            write_bytes(file, save({KEY: found}))
    return FeatureExamples(found, examples)


@torch.inference_mode()
def _computed(fabric: Fabric, body: FeatureBody, examples: Examples) -> Tensor:
    encoder: nn.Module = body.encoder.to(fabric.device)
    batches, found = examples.batches(ROWS, None), []
    with evaluating(encoder), fabric.autocast():
        for index in batches:
            inputs, _ = examples.batch(index)
            found.append(encoder(*fabric.to_device(inputs)).float().cpu())
    rows = torch.cat(found)
    return torch.empty_like(rows).index_copy_(0, torch.cat(batches), rows)


def _read(file: Path, rows: int) -> Tensor | None:
    """Kept features; None where there are none that can be used."""
    try:
        found = load_file(file).get(KEY)
    except (OSError, SafetensorError):
        return None
    return found if found is not None and found.ndim == 2 and len(found) == rows else None


def _checksum(body: FeatureBody, examples: Examples, precision: str) -> str:
    found = hashlib.sha256(json.dumps([str(torch.__version__), precision]).encode())
    found.update(msgspec.json.encode(body.architecture))
    for name, tensor in [*body.encoder.named_parameters(), *body.encoder.named_buffers()]:
        found.update(name.encode())
        for content in tensor_bytes(tensor.detach().cpu()):
            found.update(content)
    # examples that are kept as numbers; nothing else reaches a pretrained encoder
    for content in cast(ImageExamples | TokenExamples, examples).content():
        found.update(content)
    return found.hexdigest()
