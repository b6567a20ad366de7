"""The answer of `LabelSpace.nearest`."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import torch

from labelemb.labelspace.errors import LabelSpaceError
from labelemb.support.wording import one_line

if TYPE_CHECKING:
    from labelemb.labelspace.space import LabelSpace


class Neighbor(NamedTuple):
    name: str
    similarity: float


class Neighbors(list[Neighbor]):
    """The labels nearest to `label`, best first.

    `learned` is False when the label was never observed right, so that its row still holds initial values; `note` is
    one line about that or about why fewer came back than were asked for, else an empty string.
    """

    def __init__(self, neighbors: Iterable[Neighbor], *, label: str, learned: bool = True, note: str = "") -> None:
        super().__init__(neighbors)
        self.label = label
        self.learned = learned
        self.note = note

    def __str__(self) -> str:
        names = [one_line(neighbor.name) for neighbor in self]
        width = max(map(len, names), default=0)
        lines = [f"nearest to {one_line(self.label)}:"]
        lines += [f"  {name:<{width}}  {near.similarity:.4g}" for name, near in zip(names, self, strict=True)]
        if self.note:
            lines.append(f"  ({self.note})")
        return "\n".join(lines)

    __repr__ = __str__


def find_nearest(space: "LabelSpace", index: int, k: int, symmetric: bool) -> Neighbors:
    """The k labels most similar to the one at `index`, as `LabelSpace.nearest` promises."""
    if k < 1:
        raise LabelSpaceError(f"k must be at least 1, not {k}")
    score, similar = space.form.row(index)
    normaliser = torch.logsumexp(score, dim=0)
    if symmetric:
        column, similar_column = space.form.column(index)
        score = (score + column - space.log_normalisers()) / 2
        normaliser = normaliser / 2
        similar = similar | similar_column
    candidate = torch.ones(space.num_labels, dtype=torch.bool)
    candidate[[index, *map(space.index, space.specials)]] = False
    places = (candidate & similar).nonzero()[:, 0]
    best = places[score[places].sort(descending=True, stable=True).indices[:k]]
    similarities = (score[best] - normaliser).exp().tolist()
    learned = space.learned(index)
    return Neighbors(
        (Neighbor(space.names[place], value) for place, value in zip(best.tolist(), similarities, strict=True)),
        label=space.names[index],
        learned=learned,
        note=explain(len(best), k, int(candidate.sum()), learned),
    )


def explain(found: int, wanted: int, others: int, learned: bool) -> str:
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
