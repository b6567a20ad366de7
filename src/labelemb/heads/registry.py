"""Heads by the names of their methods, for all code that lets users choose a method by name.

A factory is called as factory(in_features, num_labels, rows_per_epoch=..., total_steps=..., **options). The two named
keywords are facts about the training (see `make`): a factory hands them on only if its head uses them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from labelemb.embeddings.make import is_fixed
from labelemb.heads.base import Head
from labelemb.heads.confidence_penalty import ConfidencePenaltyHead
from labelemb.heads.defaults import DEFAULT
from labelemb.heads.label_embedding import LabelEmbeddingHead
from labelemb.heads.online_smoothing import OnlineSmoothingHead
from labelemb.heads.plain import PlainHead
from labelemb.heads.teacher_free import TeacherFreeHead

HeadFactory = Callable[..., Head]

_FACTORIES: dict[str, HeadFactory] = {}


def register(name: str, factory: HeadFactory) -> None:
    """Register a method. A name that another factory has is a ValueError."""
    if _FACTORIES.setdefault(name, factory) is not factory:
        raise ValueError(f"a method named {name!r} is registered already")


def names() -> tuple[str, ...]:
    """All registered method names, in the order of registration."""
    return tuple(_FACTORIES)


def make(
    name: str,
    in_features: int,
    num_labels: int,
    *,
    rows_per_epoch: int | None = None,
    total_steps: int | None = None,
    **options: Any,
) -> Head:
    """Make a head of the named method.

    Arguments:
        name: a registered method, see `names`.
        in_features: size of the hidden state.
        num_labels: number of labels.
        rows_per_epoch: number of training examples (tokens for a sequence model), for methods that average over an
            epoch.
        total_steps: number of optimiser updates of the training, for methods with a schedule.
        options: options of the method's head; an unknown option is a TypeError.
    """
    if name not in _FACTORIES:
        raise ValueError(f"unknown method {name!r}: known are {', '.join(_FACTORIES)}")
    training = {"rows_per_epoch": rows_per_epoch, "total_steps": total_steps}
    return _FACTORIES[name](in_features, num_labels, **training, **options)


def _without_training(kind: Callable[..., Head]) -> HeadFactory:
    """A factory of heads that need to know nothing about the training."""

    def factory(
        in_features: int, num_labels: int, *, rows_per_epoch: int | None, total_steps: int | None, **options: Any
    ) -> Head:
        return kind(in_features, num_labels, **options)

    return factory


def _label_smoothing(
    in_features: int, num_labels: int, *, rows_per_epoch: int | None, total_steps: int | None, **options: Any
) -> Head:
    options = {"label_smoothing": 0.1, **options}
    return PlainHead(in_features, num_labels, total_steps=total_steps if options.get("mass_floor") else None, **options)


def _online_smoothing(
    in_features: int, num_labels: int, *, rows_per_epoch: int | None, total_steps: int | None, **options: Any
) -> Head:
    if rows_per_epoch is None:
        raise ValueError("online smoothing needs rows_per_epoch=, the number of training examples")
    clock = total_steps if options.get("mass_floor") else None
    return OnlineSmoothingHead(in_features, num_labels, rows_per_epoch=rows_per_epoch, total_steps=clock, **options)


def label_embedding(
    in_features: int,
    num_labels: int,
    *,
    rows_per_epoch: int | None,
    total_steps: int | None,
    make: Callable[..., LabelEmbeddingHead] = LabelEmbeddingHead,
    **options: Any,
) -> LabelEmbeddingHead:
    """A label embedding head, or one of its controls if `make` is given."""
    embedding = options.get("embedding")
    if (DEFAULT.embedding(num_labels) if embedding is None else embedding) == "running":
        options["rows_per_epoch"] = rows_per_epoch
    objective = options.get("objective") or DEFAULT.objective
    if objective.mass_floor or (objective.soft_start and not is_fixed(embedding)):
        options["total_steps"] = total_steps
    return make(in_features, num_labels, **options)


register("plain", _without_training(PlainHead))
register("label-smoothing", _label_smoothing)
register("label-embedding", label_embedding)
register("online-smoothing", _online_smoothing)
register("confidence-penalty", _without_training(ConfidencePenaltyHead))
register("teacher-free", _without_training(TeacherFreeHead))
