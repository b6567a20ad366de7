"""The head of each method, with the settings that the method's name, the recipe and the data give."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from labelemb import (
    CompressedEmbedding,
    ConfidencePenaltyHead,
    DenseEmbedding,
    FixedEmbedding,
    Head,
    LabelEmbedding,
    LabelEmbeddingHead,
    LabelSpace,
    Objective,
    OnlineSmoothingHead,
    PlainHead,
    TeacherFreeHead,
)
from labelemb.embeddings.dense import DENSE_LIMIT_BYTES
from labelemb.lab.methods.controls import FlatTargetHead, SingleOutputHead
from labelemb.lab.recipes.recipe import Recipe

if TYPE_CHECKING:
    from labelemb.lab.methods.method import Method

RECOMMENDED = Objective.rising_floor()
CONTROLS: dict[str, type[LabelEmbeddingHead]] = {"single-output": SingleOutputHead, "flat": FlatTargetHead}
FIXED_SETTINGS = ("hard_weight", "soft_weight", "mass_floor")
"""What of an objective is left where labels are fixed: nothing teaches an embedding."""


@dataclass(frozen=True)
class HeadNeeds:
    """What a head must know of the body, the data and labels that were learned before."""

    in_features: int
    num_labels: int
    rows_per_epoch: int
    total_steps: int | None
    space: LabelSpace | None


def make_head(method: "Method", recipe: Recipe, needs: HeadNeeds) -> Head:
    """A fresh head; a setting that it cannot have is a TypeError or a ValueError."""
    seed = int(torch.randint(2**62, ()))  # drawn first: heads of other methods draw more or fewer weights than this
    head = MAKERS[method.kind](method, recipe, needs)
    if recipe.head.init_std:
        _initialise(head, recipe.head.init_std, seed)
    return head


def _make_plain(method: "Method", recipe: Recipe, needs: HeadNeeds) -> Head:
    return PlainHead(needs.in_features, needs.num_labels)


def _make_label_smoothing(method: "Method", recipe: Recipe, needs: HeadNeeds) -> Head:
    return PlainHead(needs.in_features, needs.num_labels, label_smoothing=method.settings.get("smoothing", 0.1))


def _make_label_embedding(method: "Method", recipe: Recipe, needs: HeadNeeds) -> Head:
    objective = method.objective(recipe, needs.total_steps)
    rank = method.settings.get("rank", recipe.head.rank) or None
    embedding: LabelEmbedding | None = None
    if recipe.head.embedding_bias:
        if rank is None:
            raise ValueError("head.embedding_bias is about a compressed embedding: set a rank")
        embedding, rank = CompressedEmbedding(needs.num_labels, rank, bias=True), None
    if "no-identity" in method.switches:
        if embedding is not None or rank is not None or objective.mass_floor > 0:
            raise ValueError("no-identity is about a dense embedding that starts as the identity matrix")
        embedding = DenseEmbedding(needs.num_labels, identity_scale=0.0)
    return _label_embedding_head(method, recipe, needs, rank=rank, embedding=embedding)


def _make_reused_labels(method: "Method", recipe: Recipe, needs: HeadNeeds) -> Head:
    """Appendix B: the labels' soft targets are there from the start, fixed; or an embedding goes on from them."""
    if needs.space is None:
        raise ValueError("there are no labels to reuse: pass --labels FILE")
    idle = [key for key in method.settings if key not in FIXED_SETTINGS]
    if idle and not method.observes:
        raise ValueError(f"{idle[0]} is about learning labels, and these are fixed: leave it out, or add warm-start")
    embedding = _trainable(needs.space) if method.observes else FixedEmbedding(needs.space)
    return _label_embedding_head(method, recipe, needs, embedding=embedding)


def _trainable(space: LabelSpace) -> LabelEmbedding:
    """An embedding that starts at the space: compressed if the space is, else dense."""
    if space.rank is not None:
        return CompressedEmbedding.from_space(space)
    if space.form.storage == "top_k" and 4 * space.num_labels**2 > DENSE_LIMIT_BYTES:
        raise ValueError(
            f"of these {space.num_labels:,} labels only the largest entries are kept, and a dense embedding of them "
            "would take more than 2 GB: leave out warm-start"
        )
    return DenseEmbedding.from_space(space)


def _label_embedding_head(
    method: "Method",
    recipe: Recipe,
    needs: HeadNeeds,
    rank: int | None = None,
    embedding: LabelEmbedding | None = None,
) -> LabelEmbeddingHead:
    controls = [CONTROLS[switch] for switch in method.switches if switch in CONTROLS]
    if len(controls) > 1:
        raise ValueError(f"{' and '.join(CONTROLS)} are two controls: choose one")
    make = controls[0] if controls else LabelEmbeddingHead
    objective = method.objective(recipe, needs.total_steps)
    options: dict[str, Any] = {"embedding": embedding}
    if rank is not None:
        options = {"embedding": "compressed", "rank": rank}
    elif embedding is None and objective.mass_floor > 0:
        options = {"embedding": "running", "rows_per_epoch": needs.rows_per_epoch}
    elif embedding is None:
        options = {"embedding": "dense"}
    impl = {"reference": "autograd"}.get(recipe.head.impl, recipe.head.impl)
    options |= {"objective": objective, "impl": impl}
    head = make(needs.in_features, needs.num_labels, **options)
    if head.clock.has_schedule:
        head.total_steps = needs.total_steps
    return head


def _make_online_smoothing(method: "Method", recipe: Recipe, needs: HeadNeeds) -> Head:
    floor = RECOMMENDED.mass_floor if "floor" in method.switches else 0.0
    soft_weight = method.settings.get("soft_weight", RECOMMENDED.soft_weight if floor else 0.5)
    return OnlineSmoothingHead(
        needs.in_features,
        needs.num_labels,
        rows_per_epoch=needs.rows_per_epoch,
        hard_weight=None if floor else 1 - soft_weight,
        soft_weight=soft_weight,
        mass_floor=floor,
    )


def _make_confidence_penalty(method: "Method", recipe: Recipe, needs: HeadNeeds) -> Head:
    return ConfidencePenaltyHead(needs.in_features, needs.num_labels, penalty=method.settings.get("penalty", 0.1))


def _make_teacher_free(method: "Method", recipe: Recipe, needs: HeadNeeds) -> Head:
    names = {"weight": "teacher_weight"}
    settings = {names.get(key, key): value for key, value in method.settings.items()}
    return TeacherFreeHead(needs.in_features, needs.num_labels, **settings)


MAKERS: dict[str, Callable[["Method", Recipe, HeadNeeds], Head]] = {
    "plain": _make_plain,
    "label-embedding": _make_label_embedding,
    "label-smoothing": _make_label_smoothing,
    "online-smoothing": _make_online_smoothing,
    "confidence-penalty": _make_confidence_penalty,
    "teacher-free": _make_teacher_free,
    "reused-labels": _make_reused_labels,
}


def _initialise(head: Head, std: float, seed: int) -> None:
    """Output layers from a normal distribution cut at two standard deviations, the same predictor in every method."""
    generator = torch.Generator().manual_seed(seed)
    for layer in (head.predictor, getattr(head, "observer", None)):
        if isinstance(layer, nn.Linear):
            nn.init.trunc_normal_(layer.weight, std=std, a=-2 * std, b=2 * std, generator=generator)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
