"""How a label space is stored: all rows of logits, low-rank factors, or the largest probabilities of each row.

All forms answer the same questions about the (labels, labels) matrix e without making it: some rows, one row, one
column, a part of the labels. A form converts and checks its tensors when it is made, so whatever exists is usable. The
tensors are float32 and int64 on the CPU and are never changed.

The formulas for rows are in `labelspace.rows`, which label embeddings use as well.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import ClassVar

import torch
from torch import Tensor

from labelemb.labelspace.errors import LabelSpaceError
from labelemb.labelspace.rows import TINY, dense_rows, factor_rows, top_k_rows

# A block of rows is at most this many numbers (64 MB): large enough for fast matrix products, small for any machine.
BLOCK_NUMBERS = 2**24
SUM_TOLERANCE = 1e-3


@dataclass(frozen=True, eq=False)
class Form(ABC):
    """What `LabelSpace` asks of its storage."""

    storage: ClassVar[str]

    def __post_init__(self) -> None:
        for field in fields(self):
            tensor: Tensor | None = getattr(self, field.name)
            if tensor is not None:
                dtype = torch.int64 if field.name == "indices" else torch.float32
                object.__setattr__(self, field.name, tensor.detach().to("cpu", dtype))

    @property
    @abstractmethod
    def num_labels(self) -> int: ...

    @property
    def rank(self) -> int | None:
        return None

    @property
    @abstractmethod
    def normaliser_cost(self) -> int:
        """Multiplications that `log_normalisers` takes, about."""

    @abstractmethod
    def tensors(self) -> dict[str, Tensor]:
        """The stored tensors by the names they have in a file."""

    @abstractmethod
    def rows(self, indices: Tensor) -> Tensor:
        """Logits (k, labels) of the labels at `indices`."""

    @abstractmethod
    def row(self, index: int) -> tuple[Tensor, Tensor]:
        """The logits of one row and which of them count as similar, both (labels,)."""

    @abstractmethod
    def column(self, index: int) -> tuple[Tensor, Tensor]:
        """What every row holds for the label at `index`, and where that counts as similar, both (labels,)."""

    @abstractmethod
    def select(self, indices: Tensor) -> "Form":
        """The form of these labels alone, in this order: each row is conditioned on its label being one of them."""

    @abstractmethod
    def vectors(self, indices: Tensor) -> Tensor:
        """The stored numbers of each label, as an embedding vector."""

    def blocks(self, indices: Tensor) -> tuple[Tensor, ...]:
        """`indices` cut so that `rows` of each piece stays small."""
        return indices.split(max(1, BLOCK_NUMBERS // self.num_labels))

    def log_normalisers(self) -> Tensor:
        """log sum exp of every row, (labels,), block by block."""
        pieces = self.blocks(torch.arange(self.num_labels))
        return torch.cat([_log_sum_exp(self.rows(piece)) for piece in pieces])


@dataclass(frozen=True, eq=False)
class DenseForm(Form):
    """A matrix of logits (labels, labels)."""

    logits: Tensor
    storage: ClassVar[str] = "dense"

    def __post_init__(self) -> None:
        super().__post_init__()
        shape = tuple(self.logits.shape)
        if len(shape) != 2 or shape[0] != shape[1] or shape[0] == 0:
            raise LabelSpaceError(f"the matrix must be (labels, labels), not {shape}")
        require_finite("the matrix", self.logits)

    @classmethod
    def from_probabilities(cls, matrix: Tensor) -> "DenseForm":
        """From rows that are distributions; a probability of 0 becomes the smallest that has a logarithm."""
        cls(matrix)  # for its checks of shape and finiteness
        if (matrix < 0).any():
            raise LabelSpaceError(f"probabilities must not be negative, found {float(matrix.min()):.6g}")
        sums = matrix.sum(dim=1, dtype=torch.float64)
        wrong = ((sums - 1).abs() > SUM_TOLERANCE).nonzero()
        if len(wrong):
            row = int(wrong[0])
            raise LabelSpaceError(
                f"row {row} of the probabilities sums to {float(sums[row]):.6g}, not 1: divide each row by its sum "
                '(normalise), or pass kind="logit"'
            )
        return cls(matrix.clamp(min=TINY).log())

    @property
    def num_labels(self) -> int:
        return len(self.logits)

    @property
    def normaliser_cost(self) -> int:
        return self.num_labels**2

    def tensors(self) -> dict[str, Tensor]:
        return {"logits": self.logits}

    def rows(self, indices: Tensor) -> Tensor:
        return dense_rows(indices, self.logits)

    def row(self, index: int) -> tuple[Tensor, Tensor]:
        return self.logits[index], torch.ones(self.num_labels, dtype=torch.bool)

    def column(self, index: int) -> tuple[Tensor, Tensor]:
        return self.logits[:, index], torch.ones(self.num_labels, dtype=torch.bool)

    def select(self, indices: Tensor) -> "DenseForm":
        return DenseForm(self.logits[indices][:, indices])

    def vectors(self, indices: Tensor) -> Tensor:
        return self.rows(indices)


@dataclass(frozen=True, eq=False)
class FactorForm(Form):
    """A (labels, rank), B (rank, labels) and an optional bias (labels,): row y is ReLU(A_y B + bias).

    An entry that is exactly zero after ReLU means that the two labels are not similar.
    """

    A: Tensor
    B: Tensor
    bias: Tensor | None = None
    storage: ClassVar[str] = "factors"

    def __post_init__(self) -> None:
        super().__post_init__()
        a, b = tuple(self.A.shape), tuple(self.B.shape)
        if len(a) != 2 or b != a[::-1] or 0 in a:
            raise LabelSpaceError(f"the factors must be A (labels, rank) and B (rank, labels), not {a} and {b}")
        if self.bias is not None and tuple(self.bias.shape) != (a[0],):
            raise LabelSpaceError(f"the bias must be ({a[0]},), not {tuple(self.bias.shape)}")
        for name, tensor in self.tensors().items():
            require_finite(name, tensor)
        # Cauchy-Schwarz bounds every entry without computing one.
        bound = self.A.double().norm(dim=1).max() * self.B.double().norm(dim=0).max()
        if bound > torch.finfo(torch.float32).max / 2:
            raise LabelSpaceError(f"the product of the factors may reach {bound:.3g}, more than float32 holds: rescale")

    @property
    def num_labels(self) -> int:
        return self.A.shape[0]

    @property
    def rank(self) -> int:
        return self.A.shape[1]

    @property
    def normaliser_cost(self) -> int:
        return self.num_labels**2 * self.rank

    def tensors(self) -> dict[str, Tensor]:
        return {"A": self.A, "B": self.B} | ({} if self.bias is None else {"bias": self.bias})

    def rows(self, indices: Tensor) -> Tensor:
        return factor_rows(indices, self.A, self.B, self.bias)

    def row(self, index: int) -> tuple[Tensor, Tensor]:
        row = self.rows(torch.tensor([index]))[0]
        return row, row > 0

    def column(self, index: int) -> tuple[Tensor, Tensor]:
        product = self.A @ self.B[:, index]  # (labels,)
        if self.bias is not None:
            product += self.bias[index]
        column = product.relu_()
        return column, column > 0

    def select(self, indices: Tensor) -> "FactorForm":
        bias = None if self.bias is None else self.bias[indices]
        return FactorForm(self.A[indices], self.B[:, indices].contiguous(), bias)

    def vectors(self, indices: Tensor) -> Tensor:
        return self.A[indices]


@dataclass(frozen=True, eq=False)
class TopKForm(Form):
    """The k largest probabilities of each row: `indices` and `probabilities`, both (labels, k).

    The remaining probability of a row is spread evenly over the labels that the row does not list. An index of -1 (with
    probability 0) is an unused place. Labels that a row does not list, or lists with probability 0, are not similar.
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
        return top_k_rows(indices, self.indices, self.probabilities)

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


def _log_sum_exp(rows: Tensor) -> Tensor:
    """log sum exp of each row, (k,); overwrites `rows`.

    Summed in float64, so that the order of the labels does not show and ties between labels stay ties.
    """
    largest = rows.amax(dim=1, keepdim=True)
    sums = rows.sub_(largest).exp_().sum(dim=1, dtype=torch.float64)
    return (sums.log() + largest[:, 0]).float()


def require_finite(what: str, tensor: Tensor) -> None:
    finite = tensor.isfinite()
    if not finite.all():
        place = tuple((~finite).nonzero()[0].tolist())
        raise LabelSpaceError(f"{what} must be finite, found {float(tensor[place])} at {place}")
