"""The nearest labels: of one label (`find_nearest`), of many at once in blocks (`neighbor_table`), and `most_alike`."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from labelemb.labelspace.errors import LabelSpaceError
from labelemb.labelspace.forms import BLOCK_NUMBERS, TINY, FactorForm, Form, TopKForm
from labelemb.labelspace.record import LabelRecord
from labelemb.support.wording import display_width, padded, shorten

LONGEST_NAME = 60
"""Characters of a name in a printed table; a row with it fits a terminal."""
MOST_COMPARED_LABELS = 2000
MOST_COMPARED_ENTRIES = 10**8
"""Entries of the rows that `most_alike` compares: some seconds, also where a row has a million entries."""


class Neighbor(NamedTuple):
    """A similar label and its similarity."""

    name: str
    similarity: float


class Neighbors(list[Neighbor]):
    """The labels nearest to `label`, best first.

    Attributes:
        label: the name of the label whose neighbours these are.
        learned: False if the observer was never right about the label, so its row still holds initial values.
        note: a line that says so, or that fewer labels are similar than were asked for; else "".
    """

    def __init__(self, neighbors: Iterable[Neighbor], *, label: str, learned: bool = True, note: str = "") -> None:
        super().__init__(neighbors)
        self.label = label
        self.learned = learned
        self.note = note

    def __str__(self) -> str:
        names = [shorten(neighbor.name, LONGEST_NAME) for neighbor in self]
        width = max(map(display_width, names), default=0)
        lines = [f"nearest to {shorten(self.label, LONGEST_NAME)}:"]
        lines += [f"  {padded(name, width)}  {near.similarity:.4g}" for name, near in zip(names, self, strict=True)]
        if self.note:
            lines.append(f"  ({self.note})")
        return "\n".join(lines)

    __repr__ = __str__


def find_nearest(record: LabelRecord, index: int, k: int, symmetric: bool) -> Neighbors:
    """The k labels most similar to the one at `index`, as `LabelSpace.nearest` promises."""
    if k < 1:
        raise LabelSpaceError(f"k must be at least 1, not {k}")
    score, similar = record.form.row(index)
    normaliser = torch.logsumexp(score, dim=0)
    if symmetric:
        column, similar_column = record.form.column(index)
        score = (score + column - record.log_normalisers()) / 2
        normaliser = normaliser / 2
        similar = similar | similar_column
    candidate = torch.ones(record.num_labels, dtype=torch.bool)
    candidate[record.special_indices()] = False
    candidate[index] = False
    columns = (candidate & similar).nonzero()[:, 0]
    best = columns[score[columns].sort(descending=True, stable=True).indices[:k]]
    similarities = (score[best] - normaliser).exp().tolist()
    learned = record.learned(index)
    return Neighbors(
        (Neighbor(record.names[other], value) for other, value in zip(best.tolist(), similarities, strict=True)),
        label=record.names[index],
        learned=learned,
        note=_explain(len(best), k, int(candidate.sum()), learned),
    )


def _explain(found: int, wanted: int, others: int, learned: bool) -> str:
    """The note for `found` neighbours where `wanted` were asked for and `others` labels could have been named."""
    if not learned:
        return "never observed right: its neighbours mean nothing"
    if found >= wanted:
        return ""
    if found == others:
        return {0: "there is no other label", 1: "there is only 1 other label"}.get(
            found, f"there are only {found} other labels"
        )
    return {0: "no label is similar", 1: "only 1 label is similar"}.get(found, f"only {found} labels are similar")


@dataclass(frozen=True)
class NeighborTable:
    """Each row holds the labels nearest to one label, best first.

    Attributes:
        indices: (rows, at most k); -1 where fewer labels are similar.
        similarities: of the same shape, 0 where unused.
        own: (rows,), the share that a label keeps for itself.
    """

    indices: np.ndarray
    similarities: np.ndarray
    own: np.ndarray


def neighbor_table(record: LabelRecord, k: int, labels: Tensor | None = None) -> NeighborTable:
    """The `k` nearest labels of each of these labels, or of all, as `find_nearest` finds them; computed in blocks."""
    k = min(k, max(1, record.num_labels - 1))
    never = record.special_indices()
    wanted = torch.arange(record.num_labels) if labels is None else labels
    form = record.form
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
    scores, columns = _largest(logits.masked_fill_(~similar, -torch.inf), k)
    unused = scores == -torch.inf
    return columns.masked_fill(unused, -1), shares.gather(1, columns).masked_fill_(unused, 0), own


def _stored_neighbors(form: TopKForm, piece: Tensor, never: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """The same from the stored entries alone: all other labels are not similar."""
    columns, shares = form.indices[piece], form.probabilities[piece]
    even = form.even_share(piece)
    unlisted = form.num_labels - (columns >= 0).sum(dim=1)
    mass = shares.sum(dim=1, dtype=torch.float64) + even * unlisted  # 1, but for what the form tolerates
    is_own = columns == piece[:, None]
    own = torch.where(is_own.any(dim=1), (shares * is_own).sum(dim=1), even) / mass
    left_out = (columns < 0) | (shares <= 0) | is_own | torch.isin(columns, never)
    scores = shares.clamp(min=TINY).log().masked_fill(left_out, -torch.inf)
    scores, columns = (part[:, :k] for part in _ties_by_index(scores, columns))
    similarities = (scores - mass.log()[:, None]).exp().float()
    return columns.masked_fill(scores == -torch.inf, -1), similarities, own.float()


def _largest(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest scores of each row and their columns; of equal ones, those of the first labels."""
    values, columns = scores.topk(k, dim=1)
    least = values[:, -1:]
    # which of equal scores topk takes is not defined
    cut = ((scores >= least).sum(dim=1) > k).nonzero()[:, 0]
    if len(cut):
        part, least = scores[cut], least[cut]
        above, equal = part > least, part == least
        free = k - above.sum(dim=1, keepdim=True)
        kept = above | (equal & (equal.cumsum(dim=1, dtype=torch.int32) <= free))
        columns[cut] = kept.nonzero()[:, 1].view(-1, k)
    return _ties_by_index(scores.gather(1, columns), columns)


def _ties_by_index(values: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
    """The same entries, the largest first and those of one value in the order of the labels."""
    by_column = columns.sort(dim=1).indices
    values, columns = values.gather(1, by_column), columns.gather(1, by_column)
    by_value = values.sort(dim=1, descending=True, stable=True).indices
    return values.gather(1, by_value), columns.gather(1, by_value)


def most_alike(record: LabelRecord, most: int, entries: int = MOST_COMPARED_ENTRIES) -> list[int]:
    """The indices, in their order, of all labels but specials; of too many, of those with the strongest resemblance.

    A label is chosen together with its nearest. Of very many labels only those are compared that were observed right
    most often (where that is not known, the first ones): in a vocabulary the rare words have learned little.
    """
    specials = set(record.specials)
    candidates = torch.tensor([index for index, name in enumerate(record.names) if name not in specials])
    if len(candidates) <= most:
        return candidates.tolist()
    compared = max(most, min(MOST_COMPARED_LABELS, entries // record.num_labels))
    if len(candidates) > compared and record.counts is not None:
        candidates = candidates[record.counts[candidates].argsort(descending=True, stable=True)]
    candidates = candidates[:compared]
    table = neighbor_table(record, 1, candidates)
    chosen: dict[int, None] = {}
    for row in np.argsort(-table.similarities[:, 0], kind="stable").tolist():
        for index in (int(candidates[row]), int(table.indices[row, 0])):
            if index >= 0 and len(chosen) < most:
                chosen[index] = None
    return sorted(chosen)
