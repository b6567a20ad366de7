"""Training loss of each example, averaged over the epochs: shows which examples were hard to learn."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from labelemb.heads import Head


class RowLosses(NamedTuple):
    """Indices of the examples of a call, and the cross entropy of their labels."""

    rows: Tensor
    losses: Tensor


@torch.no_grad()
def row_losses(head: Head, hidden: Tensor, logits: Tensor | None, targets: Tensor, index: Tensor) -> RowLosses:
    """One loss an example; of an example with several labels (tokens) the mean over those that count."""
    if targets.is_floating_point():
        raise ValueError("losses are recorded of examples with one label each, not of soft targets")
    index = index.reshape(-1)
    if not len(index) or targets.numel() % len(index):
        raise ValueError(f"{len(index)} indices for labels of shape {tuple(targets.shape)}: pass one for each example")
    found = head.predictor(hidden) if logits is None else logits
    labels = targets.reshape(-1).to(found.device)
    flat = F.cross_entropy(
        found.reshape(-1, found.shape[-1]).float(), labels, ignore_index=head.ignore_index, reduction="none"
    )
    counted = (labels != head.ignore_index).reshape(len(index), -1).sum(1).clamp(min=1)
    return RowLosses(index, flat.reshape(len(index), -1).sum(1) / counted)


class ExampleLosses:
    """Sum and number of the losses of each example, by its index."""

    def __init__(self) -> None:
        self._sums, self._counts = np.zeros(0), np.zeros(0, np.int64)

    def add(self, found: RowLosses) -> None:
        index, losses = found.rows.cpu().numpy(), found.losses.double().cpu().numpy()
        if index.min() < 0:
            raise ValueError(f"the index of an example is {index.min()}: indices are 0 or more")
        missing = int(index.max()) + 1 - len(self._sums)
        if missing > 0:
            self._sums = np.append(self._sums, np.zeros(max(missing, len(self._sums))))
            self._counts = np.append(self._counts, np.zeros(max(missing, len(self._counts)), np.int64))
        np.add.at(self._sums, index, losses)
        np.add.at(self._counts, index, 1)

    def means(self) -> np.ndarray:
        """(largest index + 1,) mean loss of each example; NaN for one that was never seen."""
        seen = np.flatnonzero(self._counts)
        length = int(seen[-1]) + 1 if len(seen) else 0
        counts = self._counts[:length]
        return np.divide(self._sums[:length], counts, out=np.full(length, np.nan), where=counts > 0)
