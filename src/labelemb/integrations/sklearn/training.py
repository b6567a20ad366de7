"""Training and prediction of a classifier's network: passes over the data, early stopping, the temperature."""

from collections.abc import Iterator
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from labelemb.heads.calibration import weighted_temperature
from labelemb.integrations.sklearn.examples import Examples, Rows
from labelemb.integrations.sklearn.network import Network
from labelemb.support.tensors import copied_state

BLOCK = 1024
"""Rows that are predicted at once."""
MOST_LOGITS = 1 << 22
"""Rows are left out evenly to stay below: many fewer are enough for one number."""
MOST_ROWS_IN_A_BATCH = 200
"""What batch_size="auto" comes to, as in MLPClassifier."""
PLANNED_UPDATES, FEWEST_PASSES, MOST_PASSES = 2000, 20, 200
"""max_iter=None: as many passes as make these updates, within the limits."""


def count_batches(examples: Examples, batch_size: int | Literal["auto"]) -> int:
    """How many batches a pass is cut into."""
    return -(-len(examples) // (MOST_ROWS_IN_A_BATCH if batch_size == "auto" else batch_size))


def planned_passes(examples: Examples, batch_size: int | Literal["auto"], max_iter: int | None) -> int:
    """How many passes a fit makes if nothing stops it."""
    if max_iter is not None:
        return max_iter
    passes = -(-PLANNED_UPDATES // count_batches(examples, batch_size))
    return min(max(FEWEST_PASSES, passes), MOST_PASSES)


def make_optimizer(
    network: Network, *, lr: float, embedding_lr: float, alpha: float, before: torch.optim.Optimizer | None = None
) -> torch.optim.Optimizer:
    """Adam with these rates and penalty, in one fused kernel; `before`, with its averages, if there is one.

    Most of the time goes into the first layer's weights, which are many for text.
    """
    layers, *embedding = network.head.parameter_groups(lr=lr, embedding_lr=embedding_lr, weight_decay=alpha)
    layers["params"] = [*network.body.parameters(), *layers["params"]]
    groups = [layers, *embedding]
    if before is None:
        return torch.optim.Adam(groups, lr=lr, fused=True)
    for group, current in zip(before.param_groups, groups, strict=True):
        group.update(lr=current["lr"], weight_decay=current["weight_decay"])
    return before


def train_pass(
    network: Network,
    optimizer: torch.optim.Optimizer,
    examples: Examples,
    order: np.ndarray,
    batches: int,
    progress: tuple[float, float],
) -> float:
    """One pass over the examples in this order, from one state of progress to another; gives the mean loss.

    Batches are of nearly equal size, because a last batch of a few rows would move Adam as far as a full one.
    """
    network.train()
    begin, end = progress
    weights = examples.weights
    total = torch.zeros((), dtype=network.dtype)
    with torch.enable_grad():
        for number, index in enumerate(np.array_split(order, batches)):
            optimizer.zero_grad()
            out = network.head(
                network.body(examples.rows.batch(index, network.dtype)),
                torch.from_numpy(examples.labels[index]),
                sample_weight=None if weights is None else torch.from_numpy(weights[index]).to(network.dtype),
                num_items=len(index),
                progress=begin + (end - begin) * number / batches,
            )
            out.loss.backward()
            optimizer.step()
            total += out.loss.detach() * len(index)
    return float(total) / len(order)


@torch.no_grad()
def hidden_blocks(network: Network, rows: Rows, index: np.ndarray) -> Iterator[tuple[np.ndarray, Tensor]]:
    """Hidden states of the rows with these numbers, a block at a time."""
    network.eval()
    for start in range(0, len(index), BLOCK):
        block = index[start : start + BLOCK]
        yield block, network.body(rows.batch(block, network.dtype))


@torch.no_grad()
def predict_probabilities(network: Network, rows: Rows) -> np.ndarray:
    """(rows, labels), in the precision of the network."""
    blocks = hidden_blocks(network, rows, np.arange(len(rows)))
    return torch.cat([network.head.probabilities(hidden) for _, hidden in blocks]).numpy()


@torch.no_grad()
def accuracy(network: Network, examples: Examples) -> float:
    """The weighted share of the examples that are predicted right."""
    right = np.concatenate(
        [
            network.head(hidden).argmax(-1).numpy() == examples.labels[block]
            for block, hidden in hidden_blocks(network, examples.rows, examples.index)
        ]
    )
    weights = None if examples.weights is None else examples.weights[examples.index]
    return float(np.average(right, weights=weights))


@torch.no_grad()
def calibrate(network: Network, examples: Examples, held_out: Examples | None) -> None:
    """Find the head's temperature: from the labels of held-out rows if there are any, else from the observer.

    The observer is trained with hard labels alone, so the predictor is brought to agree with it on training rows, as
    `LabelEmbeddingHead.calibrate` does. A head without an observer keeps its temperature if nothing was held out.
    """
    observer: nn.Linear | None = getattr(network.head, "observer", None)
    if held_out is None and observer is None:
        return
    source = examples if held_out is None else held_out
    step = -(-len(source) * network.head.num_labels // MOST_LOGITS)
    index = source.index[::step]
    logits, aimed = [], []
    for block, hidden in hidden_blocks(network, source.rows, index):
        logits.append(network.head(hidden).double())
        if held_out is None and observer is not None:
            aimed.append((observer(hidden).double().softmax(1) * logits[-1]).sum(1))
        else:
            aimed.append(logits[-1].gather(1, torch.from_numpy(source.labels[block]).unsqueeze(1)).squeeze(1))
    weights = None if source.weights is None else torch.from_numpy(source.weights[index])
    network.head.temperature.fill_(weighted_temperature(torch.cat(logits), torch.cat(aimed), weights))


class BestState:
    """The state of a network at its best score so far, and how long ago that was."""

    def __init__(self, network: Network, *, tol: float, patience: int) -> None:
        self.network, self.tol, self.patience = network, tol, patience
        self.scores: list[float] = []
        self.score = -np.inf
        self.state: dict[str, Tensor] = {}
        self.passes_without_rise = 0

    def update(self, score: float) -> None:
        """Take note of the score after a pass."""
        self.scores.append(score)
        self.passes_without_rise = self.passes_without_rise + 1 if score < self.score + self.tol else 0
        if score > self.score:
            self.score = score
            self.state = copied_state(self.network)

    @property
    def is_stale(self) -> bool:
        return self.passes_without_rise >= self.patience

    def restore(self) -> None:
        self.network.load_state_dict(self.state)
