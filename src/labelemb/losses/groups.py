"""The distinct labels of some rows, because an embedding learns about each label once."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from labelemb.support.tensors import can_look_at

FEW_LABELS = 64
"""Up to here, or up to the number of rows, an embedding learns about all labels at once."""


class LabelGroups(NamedTuple):
    """The labels of some rows, each once, and where a row's label stands among them."""

    labels: Tensor | None  # (slots,); None for all labels
    place: Tensor  # (rows,)
    slots: int

    def sums(self, values: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Rows of values (rows, k) summed by label with their weights, (slots, k), and the summed weights (slots,)."""
        # a row's weight at its label: one product then sums the rows by label
        at_label = values.new_zeros(len(values), self.slots).scatter_(1, self.place.unsqueeze(1), weights.unsqueeze(1))
        return at_label.T @ values, at_label.sum(0)


def group_by_label(labels: Tensor, num_labels: int) -> LabelGroups:
    """Distinct labels; in fixed shapes where nobody may look, with unused slots that hold label 0 or repeat one."""
    if num_labels <= max(FEW_LABELS, len(labels)):
        return LabelGroups(None, labels, num_labels)
    if can_look_at(labels):
        distinct, place = labels.unique(return_inverse=True)
        return LabelGroups(distinct, place, len(distinct))
    ordered, order = labels.sort()
    first = torch.zeros_like(ordered)  # 1 where a label starts, except for the first one
    first[1:] = ordered[1:] != ordered[:-1]
    slot = first.cumsum(0)  # (rows,), of the ordered rows
    place = torch.empty_like(slot).scatter_(0, order, slot)
    return LabelGroups(torch.zeros_like(labels).scatter_(0, slot, ordered), place, len(labels))
