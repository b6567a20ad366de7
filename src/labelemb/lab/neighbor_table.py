"""The nearest labels of every label at once, for pages and maps: `LabelSpace.nearest` answers for one label."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from labelemb import LabelSpace
from labelemb.labelspace.forms import FactorForm, Form
from labelemb.labelspace.top_k_form import TopKForm


@dataclass(frozen=True)
class NeighborTable:
    """Row y holds the labels nearest to label y, best first.

    Attributes:
        indices: (labels, k); -1 where fewer than k labels are similar.
        similarities: (labels, k), 0 at unused places.
        own: (labels,), the share that a label keeps for itself.
    """

    indices: np.ndarray
    similarities: np.ndarray
    own: np.ndarray


def neighbor_table(space: LabelSpace, k: int) -> NeighborTable:
    """What `space.nearest(label, k)` gives for each label, computed block by block."""
    k = min(k, max(1, space.num_labels - 1))
    never = torch.tensor([space.index(name) for name in space.specials], dtype=torch.long)
    indices, similarities, own = [], [], []
    for piece in space.form.blocks(torch.arange(space.num_labels)):
        logits = space.form.rows(piece)
        similar = _similar(space.form, piece, logits)
        shares = logits.softmax(dim=1)
        own.append(shares.gather(1, piece[:, None])[:, 0])
        similar.scatter_(1, piece[:, None], False)
        similar[:, never] = False
        # below every probability, so that what is not similar comes last
        shares.masked_fill_(~similar, -1.0)
        values, places = shares.topk(min(k, space.num_labels), dim=1)
        values, places = _ties_by_index(values, places)
        indices.append(places.masked_fill(values < 0, -1))
        similarities.append(values.clamp(min=0))
    return NeighborTable(torch.cat(indices).numpy(), torch.cat(similarities).numpy(), torch.cat(own).numpy())


def _similar(form: Form, piece: Tensor, logits: Tensor) -> Tensor:
    """Which entries of these rows count as similar, (rows, labels)."""
    if isinstance(form, FactorForm):
        return logits > 0
    if isinstance(form, TopKForm):
        similar = torch.zeros_like(logits, dtype=torch.bool)
        listed = (form.indices[piece] >= 0) & (form.probabilities[piece] > 0)
        row = listed.nonzero()[:, 0]
        similar[row, form.indices[piece][listed]] = True
        return similar
    return torch.ones_like(logits, dtype=torch.bool)


def _ties_by_index(values: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
    """The same entries, those of one value in the order of the labels."""
    by_place = places.sort(dim=1).indices
    values, places = values.gather(1, by_place), places.gather(1, by_place)
    by_value = values.sort(dim=1, descending=True, stable=True).indices
    return values.gather(1, by_value), places.gather(1, by_value)
