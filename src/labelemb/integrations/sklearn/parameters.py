"""Validates the constructor parameters at the start of `fit`, as scikit-learn requires."""

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from joblib import effective_n_jobs  # type: ignore[import-untyped]  # ships no type information

from labelemb.embeddings.make import NAMES
from labelemb.heads import registry
from labelemb.integrations.sklearn.network import ACTIVATIONS, Design
from labelemb.losses.objective import Objective


def check_parameters(parameters: Mapping[str, Any]) -> None:
    """Raise for the first parameter that cannot be; sizes, ranks and method options are checked by what uses them."""
    _one_of(parameters, "method", registry.names())
    _one_of(parameters, "activation", tuple(ACTIVATIONS))
    if parameters["embedding"] is not None:
        _one_of(parameters, "embedding", NAMES)
    if parameters["max_iter"] is not None:
        _number(parameters, "max_iter", 1, whole=True)
    _number(parameters, "n_iter_no_change", 1, whole=True)
    if parameters["batch_size"] != "auto":
        _number(parameters, "batch_size", 1, whole=True)
    _number(parameters, "learning_rate_init", 0, exclusive=True)
    _number(parameters, "embedding_learning_rate", 0, exclusive=True)
    _number(parameters, "alpha", 0)
    _number(parameters, "tol", 0)
    n_jobs = parameters["n_jobs"]
    if n_jobs is not None and not (isinstance(n_jobs, Integral) and n_jobs):
        raise ValueError(f"n_jobs is {n_jobs!r}, but must be a whole number other than 0, or None")
    if parameters["early_stopping"]:
        _number(parameters, "validation_fraction", 0, exclusive=True)
        if parameters["validation_fraction"] >= 1:
            raise ValueError(f"validation_fraction is {parameters['validation_fraction']!r}, but must be below 1")
    if not isinstance(parameters["objective"], Objective | None):
        raise TypeError(f"objective is {parameters['objective']!r}, but must be an Objective or None")
    if not isinstance(parameters["method_options"], Mapping | None):
        raise TypeError(f"method_options is {parameters['method_options']!r}, but must be a dictionary or None")
    if parameters["method"] != "label-embedding":
        for name in ("embedding", "rank", "objective"):
            if parameters[name] is not None:
                raise ValueError(
                    f"{name} is {parameters[name]!r}, but only method='label-embedding' has one; "
                    f"the method is {parameters['method']!r}"
                )


def design_of(parameters: Mapping[str, Any], num_features: int, classes: np.ndarray) -> Design:
    """The network that these parameters ask for."""
    if len(classes) < 2:
        raise ValueError(f"a classifier needs 2 classes or more, but there is 1 class: {classes[0]!r}")
    return Design(
        num_features=num_features,
        hidden_layer_sizes=layer_sizes(parameters["hidden_layer_sizes"]),
        num_labels=len(classes),
        activation=parameters["activation"],
        method=parameters["method"],
        embedding=parameters["embedding"],
        rank=parameters["rank"],
        objective=parameters["objective"],
        method_options=dict(parameters["method_options"] or {}),
    )


def layer_sizes(hidden_layer_sizes: Any) -> tuple[int, ...]:
    """The sizes of the hidden layers as a tuple; one number stands for one layer."""
    sizes: list[Any] = list(hidden_layer_sizes) if isinstance(hidden_layer_sizes, Iterable) else [hidden_layer_sizes]
    if not all(isinstance(size, Integral) and int(size) >= 1 for size in sizes):
        raise ValueError(f"hidden_layer_sizes is {hidden_layer_sizes!r}, but must be whole numbers of 1 or more")
    return tuple(int(size) for size in sizes)


def _one_of(parameters: Mapping[str, Any], name: str, known: tuple[str, ...]) -> None:
    if parameters[name] not in known:
        raise ValueError(f"{name} is {parameters[name]!r}, but must be one of {', '.join(known)}")


def _number(
    parameters: Mapping[str, Any], name: str, least: int, *, whole: bool = False, exclusive: bool = False
) -> None:
    value = parameters[name]
    fits = isinstance(value, Integral if whole else Real) and math.isfinite(value)
    if not fits or value < least or (exclusive and value == least):
        kind = "a whole number" if whole else "a number"
        raise ValueError(f"{name} is {value!r}, but must be {kind} {'above' if exclusive else 'of at least'} {least}")


@contextmanager
def threads(n_jobs: int | None) -> Iterator[None]:
    """Let torch use so many threads for a while; None leaves its setting alone."""
    if n_jobs is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(effective_n_jobs(n_jobs))
    try:
        yield
    finally:
        torch.set_num_threads(before)
