"""`CompressedEmbedding`: ReLU(A_y B), section 2.2 of the paper."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labelemb.embeddings.base import LabelEmbedding
from labelemb.labelspace import LabelSpace
from labelemb.labelspace.rows import factor_rows


class CompressedEmbedding(LabelEmbedding):
    """A label embedding of low rank, e = ReLU(A_y B): 2 m rank numbers instead of m x m for m labels.

    Arguments:
        num_labels: number of labels m.
        rank: columns of A and rows of B, 1 or more; 100 is a good start.
        bias: whether a bias is added before the ReLU, as in the authors' text code.
    """

    def __init__(self, num_labels: int, rank: int, bias: bool = False) -> None:
        super().__init__(num_labels)
        if rank < 1:
            raise ValueError(f"rank is {rank}, but must be 1 or more")
        self.rank = rank
        self.A = nn.Parameter(torch.randn(num_labels, rank))
        bound = 1 / math.sqrt(rank)
        self.B = nn.Parameter(torch.empty(rank, num_labels).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(num_labels).uniform_(-bound, bound)) if bias else None

    @classmethod
    def from_space(cls, space: LabelSpace) -> CompressedEmbedding:
        """A trainable embedding that starts from a label space stored as factors."""
        factors = space.form.tensors()
        if space.rank is None:
            raise ValueError(f"the label space is stored as {space.form.storage}, but must be factors A and B")
        # restores the random state, so that layers made later are initialised the same
        with torch.random.fork_rng(devices=[]):
            embedding = cls(space.num_labels, space.rank, bias="bias" in factors)
        embedding.load_state_dict(factors)
        return embedding

    def rows(self, labels: Tensor) -> Tensor:
        return factor_rows(labels, self.A, self.B, self.bias)

    def add_row_gradients(self, labels: Tensor, rows: Tensor, gradient: Tensor, buffers: dict[str, Tensor]) -> None:
        gradient.mul_(rows > 0)
        if "A" in buffers:
            buffers["A"].index_add_(0, labels, gradient @ self.B.detach().to(gradient.dtype).T)
        if "B" in buffers:
            buffers["B"].addmm_(F.embedding(labels, self.A.detach()).to(gradient.dtype).T, gradient)
        if "bias" in buffers:
            buffers["bias"].add_(gradient.sum(0))

    def to_space(self, names: Sequence[str] | None, counts: Tensor, objective: dict[str, object]) -> LabelSpace:
        return LabelSpace.from_factors(self.A, self.B, self.bias, names, counts=counts, objective=objective)

    def extra_repr(self) -> str:
        return f"num_labels={self.num_labels}, rank={self.rank}, bias={self.bias is not None}"
