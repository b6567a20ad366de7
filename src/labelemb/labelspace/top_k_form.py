"""A label space stored as the largest probabilities of each row: (labels, k) numbers, for very many labels."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from labelemb.labelspace.errors import LabelSpaceError
from labelemb.labelspace.forms import SUM_TOLERANCE, TINY, Form, require_finite


@dataclass(frozen=True, eq=False)
class TopKForm(Form):
    """The k largest probabilities of each row: `indices` and `probabilities`, both (labels, k).

    What a row's probabilities leave of 1 is spread evenly over the labels that the row does not list. An index of -1
    (with probability 0) is an unused place. Labels that a row does not list, or lists with 0, are not similar.
    """

    indices: Tensor
    probabilities: Tensor
    storage: ClassVar[str] = "top_k"

    def __post_init__(self) -> None:
        super().__post_init__()
        shape = tuple(self.indices.shape)
        if len(shape) != 2 or 0 in shape or shape[1] > shape[0] or tuple(self.probabilities.shape) != shape:
            raise LabelSpaceError(
                "indices and probabilities must both be (labels, k) with 1 <= k <= labels, "
                f"not {shape} and {tuple(self.probabilities.shape)}"
            )
        self._check_entries()
        sums = self.probabilities.sum(dim=1, dtype=torch.float64)
        full = (self.indices >= 0).sum(dim=1) == self.num_labels
        wrong = (sums > 1 + SUM_TOLERANCE) | (full & (sums < 1 - SUM_TOLERANCE))
        if wrong.any():
            row = int(wrong.nonzero()[0])
            raise LabelSpaceError(
                f"the probabilities of row {row} sum to {float(sums[row]):.6g}; a row that lists every label must sum "
                "to 1, any other to at most 1: normalise the rows"
            )

    def _check_entries(self) -> None:
        require_finite("probabilities", self.probabilities)
        if (self.probabilities < 0).any():
            raise LabelSpaceError(f"probabilities must not be negative, found {float(self.probabilities.min()):.6g}")
        outside = self.indices[(self.indices < -1) | (self.indices >= self.num_labels)]
        if len(outside):
            raise LabelSpaceError(
                f"indices must be in [0, {self.num_labels}), or -1 for an unused place, found {int(outside[0])}"
            )
        unused = self.indices < 0
        if (self.probabilities[unused] != 0).any():
            raise LabelSpaceError("an unused place (index -1) must have probability 0")
        ordered = self.indices.sort(dim=1).values
        repeated = ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)).any(dim=1)
        if repeated.any():
            raise LabelSpaceError(f"row {int(repeated.nonzero()[0])} lists a label more than once")

    @property
    def num_labels(self) -> int:
        return len(self.indices)

    @property
    def normaliser_cost(self) -> int:
        return 0

    def tensors(self) -> dict[str, Tensor]:
        return {"indices": self.indices.int(), "probabilities": self.probabilities}

    def even_share(self, rows: Tensor) -> Tensor:
        """The probability of each label that these rows do not list, (k,) float64."""
        rest = 1 - self.probabilities[rows].sum(dim=1, dtype=torch.float64)
        unlisted = self.num_labels - (self.indices[rows] >= 0).sum(dim=1)
        return rest.clamp(min=0) / unlisted.clamp(min=1)

    def rows(self, indices: Tensor) -> Tensor:
        shares = self.even_share(indices).clamp(min=TINY).log().float()
        logits = shares[:, None].repeat(1, self.num_labels)  # (k, labels)
        listed = self.indices[indices]  # (k, places)
        used = listed >= 0
        row_of_entry = used.nonzero()[:, 0]
        logits[row_of_entry, listed[used]] = self.probabilities[indices][used].clamp(min=TINY).log()
        return logits

    def row(self, index: int) -> tuple[Tensor, Tensor]:
        similar = torch.zeros(self.num_labels, dtype=torch.bool)
        similar[self.indices[index][self.probabilities[index] > 0]] = True
        return self.rows(torch.tensor([index]))[0], similar

    def column(self, index: int) -> tuple[Tensor, Tensor]:
        listing = self.indices == index  # (labels, places)
        listed = listing.any(dim=1)
        found = (self.probabilities * listing).sum(dim=1)
        shares = self.even_share(torch.arange(self.num_labels)).float()
        return torch.where(listed, found, shares).clamp(min=TINY).log(), listed & (found > 0)

    def log_normalisers(self) -> Tensor:
        return torch.zeros(self.num_labels)  # the rows are log-probabilities

    def select(self, indices: Tensor) -> "TopKForm":
        new_index = torch.full((self.num_labels + 1,), -1)  # the last place answers for index -1
        new_index[indices] = torch.arange(len(indices))
        listed = new_index[self.indices[indices]]
        probabilities = self.probabilities[indices] * (listed >= 0)
        if len(indices) < self.num_labels:
            mass = self._mass_within(indices, probabilities, listed >= 0)
            probabilities = (probabilities / mass.clamp(min=TINY)[:, None]).float()
            listed[mass == 0] = -1  # nothing stays of such a row: it becomes even
        kept = listed >= 0
        width = max(1, int(kept.sum(dim=1).max()))
        order = kept.sort(dim=1, descending=True, stable=True).indices[:, :width]  # unused places last
        return TopKForm(listed.gather(1, order), probabilities.gather(1, order))

    def _mass_within(self, indices: Tensor, probabilities: Tensor, kept: Tensor) -> Tensor:
        """The probability that each of these rows gives to all of these labels together, (k,) float64."""
        unlisted = len(indices) - kept.sum(dim=1)
        return probabilities.sum(dim=1, dtype=torch.float64) + self.even_share(indices) * unlisted

    def vectors(self, indices: Tensor) -> Tensor:
        return self.rows(indices).exp()
