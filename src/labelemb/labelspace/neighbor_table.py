"""The nearest labels of many labels at once, for pages and pictures: `LabelSpace.nearest` answers for one label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from .forms import BLOCK_NUMBERS, FactorForm, Form
from .top_k_form import TopKForm

if TYPE_CHECKING:
    from .space import LabelSpace


@dataclass(frozen=True)
class NeighborTable:
    """Each row holds the labels nearest to one label, best first.

    Attributes:
        indices: (rows, at most k); -1 where fewer labels are similar.
        similarities: of the same shape, 0 at unused places.
        own: (rows,), the share that a label keeps for itself.
    """

    indices: np.ndarray
    similarities: np.ndarray
    own: np.ndarray


def neighbor_table(space: LabelSpace, k: int, labels: Tensor | None = None) -> NeighborTable:
    """What `space.nearest(label, k)` gives for the labels at these indices, without them for each label, in blocks."""
    k = min(k, max(1, space.num_labels - 1))
    never = torch.tensor([space.index(name) for name in space.specials], dtype=torch.long)
    wanted = torch.arange(space.num_labels) if labels is None else labels
    form = space.form
    if isinstance(form, TopKForm):
        pieces = wanted.split(max(1, BLOCK_NUMBERS // form.indices.shape[1]))
        found = [_stored_neighbors(form, piece, never, k) for piece in pieces]
    else:
        found = [_computed_neighbors(form, piece, never, k) for piece in form.blocks(wanted)]
    indices, similarities, own = (torch.cat(parts).numpy() for parts in zip(*found, strict=True))
    return NeighborTable(indices, similarities, own)


def _computed_neighbors(form: Form, piece: Tensor, never: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """Neighbours, similarities and own shares of the labels in `piece`, from whole rows."""
    logits = form.rows(piece)
    similar = logits > 0 if isinstance(form, FactorForm) else torch.ones_like(logits, dtype=torch.bool)
    shares = logits.softmax(dim=1)
    own = shares.gather(1, piece[:, None])[:, 0]
    similar.scatter_(1, piece[:, None], False)
    similar[:, never] = False
    # below every probability, so that what is not similar comes last
    shares.masked_fill_(~similar, -1.0)
    values, places = _ties_by_index(*shares.topk(k, dim=1))
    return places.masked_fill(values < 0, -1), values.clamp(min=0), own


def _stored_neighbors(form: TopKForm, piece: Tensor, never: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """The same from the stored places alone: all the others are not similar."""
    places, shares = form.indices[piece], form.probabilities[piece]
    even = form.even_share(piece)
    unlisted = form.num_labels - (places >= 0).sum(dim=1)
    mass = shares.sum(dim=1, dtype=torch.float64) + even * unlisted  # 1, but for what the form tolerates
    is_own = places == piece[:, None]
    own = torch.where(is_own.any(dim=1), (shares * is_own).sum(dim=1), even) / mass
    left_out = (places < 0) | (shares <= 0) | is_own | torch.isin(places, never)
    shares = (shares / mass[:, None]).float().masked_fill(left_out, -1.0)
    values, places = _ties_by_index(shares, places)
    values, places = values[:, :k], places[:, :k]
    return places.masked_fill(values < 0, -1), values.clamp(min=0), own.float()


def _ties_by_index(values: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
    """The same entries, the largest first and those of one value in the order of the labels."""
    by_place = places.sort(dim=1).indices
    values, places = values.gather(1, by_place), places.gather(1, by_place)
    by_value = values.sort(dim=1, descending=True, stable=True).indices
    return values.gather(1, by_value), places.gather(1, by_value)
