"""Detects diverged trainings (overflow), and restores the classifier to its state before `fit`."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from labelemb.integrations.sklearn.network import Network
from labelemb.support.tensors import copied_state


def check_finite(loss: float, network: Network, optimizer: torch.optim.Optimizer, *, number_of_pass: int) -> None:
    """Raise if a pass ended in numbers that are not finite.

    The loss was found before the last update, so it says nothing of what that update did. Weights whose squares
    overflow count as well: the next batch would find no finite loss. Adam's averages count because a weight with an
    infinite one never moves again.
    """
    averages = (value for state in optimizer.state.values() for value in state.values() if isinstance(value, Tensor))
    if not math.isfinite(loss):
        problem = f"the loss is {loss}"
    elif not all(_is_finite(weights, power=2) for weights in network.parameters()):
        problem = "the weights overflow"
    elif not all(_is_finite(average) for average in averages):
        problem = "the squared gradients overflow"
    else:
        return
    rate = optimizer.param_groups[0]["lr"]
    raise ValueError(f"{problem} in pass {number_of_pass}: scale the features, or lower learning_rate_init ({rate})")


def _is_finite(values: Tensor, *, power: int = 1) -> bool:
    extremes = torch.stack(torch.aminmax(values.detach()))  # reads the values once and makes no copy of them
    return bool(extremes.pow(power).isfinite().all())


@contextmanager
def earlier_attributes_after_error(estimator: Any) -> Iterator[None]:
    """Give an estimator the attributes back that it had before the block, if there is an error inside.

    Ctrl-C is no error: what was trained until then is kept.
    """
    before = dict(vars(estimator))
    try:
        yield
    except Exception:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise


@contextmanager
def earlier_state_after_error(network: Network, optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Give a network the state back that it had before the block, if there is an error inside.

    The optimizer starts anew then: copies of its averages in every `partial_fit` would cost more than an update.
    """
    before = copied_state(network)
    try:
        yield
    except Exception:
        network.load_state_dict(before)
        optimizer.state.clear()
        raise
