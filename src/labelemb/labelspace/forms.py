"""How a label space is stored: every row of logits or low-rank factors here, the largest probabilities in top_k_form.

All forms answer the same questions about the (labels, labels) matrix e without making it: some rows, one row, one
column, a part of the labels. A form converts and checks its tensors when it is made, so whatever exists is usable. The
tensors are float32 and int64 on the CPU and are never changed.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import ClassVar

import torch
from torch import Tensor

from labelemb.labelspace.errors import LabelSpaceError

# A block of rows is at most this many numbers (64 MB): large enough for fast matrix products, small for any machine.
BLOCK_NUMBERS = 2**24
TINY = torch.finfo(torch.float32).tiny
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
    """Logits (labels, labels)."""

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
        return self.logits[indices]

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
    """A (labels, rank) and B (rank, labels), perhaps a bias (labels,): row y is ReLU(A_y B + bias).

    Where ReLU gives exactly zero, two labels are not similar.
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
        product = self.A[indices] @ self.B  # (k, labels)
        if self.bias is not None:
            product += self.bias
        return product.relu_()

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
