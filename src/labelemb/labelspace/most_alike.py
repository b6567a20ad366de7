"""Which labels to show where all of them are too many: those that resemble another label most."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from labelemb.labelspace.neighbor_table import neighbor_table

if TYPE_CHECKING:
    from labelemb.labelspace.space import LabelSpace

MOST_COMPARED_LABELS = 2000
MOST_COMPARED_ENTRIES = 10**8
"""Entries of the rows that are compared: some seconds of work, also where a row has a million entries."""


def most_alike(space: LabelSpace, most: int, entries: int = MOST_COMPARED_ENTRIES) -> list[int]:
    """The indices, in their order, of all labels but specials; of too many, of those with the strongest resemblance.

    A label is chosen together with its nearest. Of very many labels only those are compared that were observed right
    most often (where that is not known, the first ones): in a vocabulary the rare words have learned little.
    """
    specials = set(space.specials)
    candidates = torch.tensor([index for index, name in enumerate(space.names) if name not in specials])
    if len(candidates) <= most:
        return candidates.tolist()
    compared = max(most, min(MOST_COMPARED_LABELS, entries // space.num_labels))
    if len(candidates) > compared and space.counts is not None:
        candidates = candidates[space.counts[candidates].argsort(descending=True, stable=True)]
    candidates = candidates[:compared]
    table = neighbor_table(space, 1, candidates)
    chosen: dict[int, None] = {}
    for place in np.argsort(-table.similarities[:, 0], kind="stable").tolist():
        for index in (int(candidates[place]), int(table.indices[place, 0])):
            if index >= 0 and len(chosen) < most:
                chosen[index] = None
    return sorted(chosen)
