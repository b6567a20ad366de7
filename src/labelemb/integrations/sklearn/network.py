"""The network behind the classifier: fully connected layers and a head."""

import copy
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from itertools import pairwise
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labelemb.embeddings.make import EmbeddingName
from labelemb.embeddings.running import ROWS_PER_LABEL
from labelemb.heads import Head
from labelemb.heads.registry import make
from labelemb.integrations.sklearn.examples import SparseBatch
from labelemb.losses.objective import Objective

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "tanh": torch.tanh,
    "logistic": torch.sigmoid,
    "identity": lambda values: values,
}

_global_generator = threading.Lock()


@dataclass(frozen=True)
class Design:
    """All that decides what a network is: a fitted one can be trained further only if this has not changed."""

    num_features: int
    hidden_layer_sizes: tuple[int, ...]
    num_labels: int
    activation: str
    method: str
    embedding: EmbeddingName | None = None
    rank: int | None = None
    objective: Objective | None = None
    method_options: dict[str, Any] = field(default_factory=dict)

    def difference(self, other: "Design") -> str:
        """The first setting in which the two differ, in words; empty if they are equal."""
        for name in (each.name for each in fields(self)):
            mine, theirs = getattr(self, name), getattr(other, name)
            if not _equal(mine, theirs):
                return f"{name} was {mine!r} and is now {theirs!r}"
        return ""


def _equal(one: Any, other: Any) -> bool:
    """Whether two settings are equal, tensors and arrays if all their values are: their `==` gives no single answer."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_equal(value, other[name]) for name, value in one.items())
    for kind, same in ((Tensor, torch.equal), (np.ndarray, np.array_equal)):
        if isinstance(one, kind) or isinstance(other, kind):
            return type(one) is type(other) and one.dtype == other.dtype and same(one, other)
    return one is other or bool(one == other)


class FirstLayer(nn.Module):
    """A linear layer for dense and sparse batches: a row per feature, so that a sparse batch reads only its own."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(in_features, out_features))
        self.bias = nn.Parameter(torch.empty(out_features))

    def forward(self, batch: Tensor | SparseBatch) -> Tensor:
        if isinstance(batch, Tensor):
            return torch.addmm(self.bias, batch, self.weight)
        summed = F.embedding_bag(batch.features, self.weight, batch.starts, mode="sum", per_sample_weights=batch.values)
        return summed + self.bias


class Body(nn.Module):
    """Fully connected layers from a batch to the hidden state; without layers, the batch itself as a dense one."""

    def __init__(self, design: Design) -> None:
        super().__init__()
        sizes = design.hidden_layer_sizes
        self.activation = design.activation
        self.first = FirstLayer(design.num_features, sizes[0]) if sizes else None
        self.further = nn.ModuleList(nn.Linear(size, after) for size, after in pairwise(sizes))
        self.out_features = sizes[-1] if sizes else design.num_features
        for layer, bound in zip(self.layers(), glorot_bounds(design), strict=True):
            nn.init.uniform_(layer.weight, -bound, bound)
            nn.init.uniform_(layer.bias, -bound, bound)

    def layers(self) -> list[Any]:
        return ([] if self.first is None else [self.first]) + list(self.further)

    def forward(self, batch: Tensor | SparseBatch) -> Tensor:
        if self.first is None:
            return batch if isinstance(batch, Tensor) else batch.dense()
        activation = ACTIVATIONS[self.activation]
        hidden = activation(self.first(batch))
        for layer in self.further:
            hidden = activation(layer(hidden))
        return hidden


def glorot_bounds(design: Design) -> list[float]:
    """Half-widths of the initial weights of each layer, those of scikit-learn's MLPClassifier."""
    factor = 2.0 if design.activation == "logistic" else 6.0
    sizes = (design.num_features, *design.hidden_layer_sizes)
    return [math.sqrt(factor / (size + after)) for size, after in pairwise(sizes)]


class Network(nn.Module):
    """Body and head, with the design they were made from."""

    def __init__(self, design: Design, rows_per_epoch: int | None) -> None:
        super().__init__()
        self.design = design
        self.body = Body(design)
        self.head = make_head(design, self.body.out_features, rows_per_epoch)

    @property
    def dtype(self) -> torch.dtype:
        return self.head.predictor.weight.dtype


def make_network(design: Design, *, rows_per_epoch: int | None, seed: int, dtype: torch.dtype) -> Network:
    """A fresh network whose initial weights depend on the seed alone; torch's own generator is left as it was.

    The lock keeps fits in several threads from drawing each other's weights.
    """
    with _global_generator, torch.random.fork_rng(devices=[]):
        torch.random.default_generator.manual_seed(seed)
        return Network(design, rows_per_epoch).to(dtype)


def make_head(design: Design, in_features: int, rows_per_epoch: int | None) -> Head:
    """The head of the design's method; without `rows_per_epoch` (in partial_fit) an epoch is a fixed number of rows."""
    rows = rows_per_epoch or ROWS_PER_LABEL * design.num_labels
    chosen = {"embedding": design.embedding, "rank": design.rank, "objective": design.objective}
    options = {"rows_per_epoch": rows, **{name: value for name, value in chosen.items() if value is not None}}
    # copies: an embedding module among the options is trained, and a second fit starts where the first did
    return make(design.method, in_features, design.num_labels, **options | copy.deepcopy(design.method_options))
