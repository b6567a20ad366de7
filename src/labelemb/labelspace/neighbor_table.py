"""The nearest labels of many labels at once, for pages and pictures: `LabelSpace.nearest` answers for one label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from labelemb.labelspace.forms import BLOCK_NUMBERS, TINY, FactorForm, Form
from labelemb.labelspace.top_k_form import TopKForm

if TYPE_CHECKING:
    from labelemb.labelspace.space import LabelSpace


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
    scores, places = _largest(logits.masked_fill_(~similar, -torch.inf), k)
    unused = scores == -torch.inf
    return places.masked_fill(unused, -1), shares.gather(1, places).masked_fill_(unused, 0), own


def _stored_neighbors(form: TopKForm, piece: Tensor, never: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """The same from the stored places alone: all the others are not similar."""
    places, shares = form.indices[piece], form.probabilities[piece]
    even = form.even_share(piece)
    unlisted = form.num_labels - (places >= 0).sum(dim=1)
    mass = shares.sum(dim=1, dtype=torch.float64) + even * unlisted  # 1, but for what the form tolerates
    is_own = places == piece[:, None]
    own = torch.where(is_own.any(dim=1), (shares * is_own).sum(dim=1), even) / mass
    left_out = (places < 0) | (shares <= 0) | is_own | torch.isin(places, never)
    scores = shares.clamp(min=TINY).log().masked_fill(left_out, -torch.inf)
    scores, places = (part[:, :k] for part in _ties_by_index(scores, places))
    similarities = (scores - mass.log()[:, None]).exp().float()
    return places.masked_fill(scores == -torch.inf, -1), similarities, own.float()


def _largest(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest scores of each row and their places; of equal ones, those of the first labels."""
    values, places = scores.topk(k, dim=1)
    least = values[:, -1:]
    # which of equal scores topk takes is not defined
    cut = ((scores >= least).sum(dim=1) > k).nonzero()[:, 0]
    if len(cut):
        part, least = scores[cut], least[cut]
        above, equal = part > least, part == least
        room = k - above.sum(dim=1, keepdim=True)
        kept = above | (equal & (equal.cumsum(dim=1, dtype=torch.int32) <= room))
        places[cut] = kept.nonzero()[:, 1].view(-1, k)
    return _ties_by_index(scores.gather(1, places), places)


def _ties_by_index(values: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
    """The same entries, the largest first and those of one value in the order of the labels."""
    by_place = places.sort(dim=1).indices
    values, places = values.gather(1, by_place), places.gather(1, by_place)
    by_value = values.sort(dim=1, descending=True, stable=True).indices
    return values.gather(1, by_value), places.gather(1, by_value)
