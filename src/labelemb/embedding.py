"""Label embeddings: for each label, one row of logits that says how it resembles the others.

DenseEmbedding       E, an m x m matrix that starts as the identity
CompressedEmbedding  ReLU(A_y B), the same in 2 m rank numbers (section 2.2 of the paper)
FixedEmbedding       a learned `LabelSpace` that is used and not trained (Appendix B)
RunningEmbedding     a running mean instead of a parameter (module `running`)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labelemb.labelspace import LabelSpace
from labelemb.precision import kept_wide

DENSE_LIMIT_BYTES = 2 * 1024**3


class LabelEmbedding(nn.Module):
    """The interface of every embedding: `rows`, and for the chunked head the way back from rows to parameters."""

    learned = True
    """Whether the embedding term trains it by gradient."""
    needs_observer = True

    def __init__(self, num_labels: int) -> None:
        super().__init__()
        if num_labels < 2:
            raise ValueError(f"num_labels is {num_labels}, but a label embedding needs 2 labels or more")
        self.num_labels = num_labels

    def rows(self, labels: Tensor) -> Tensor:
        """The logits of some labels, (k,) -> (k, num_labels), differentiable."""
        raise NotImplementedError

    def probabilities(self, labels: Tensor) -> Tensor:
        """softmax of the rows: the soft target of each label."""
        return F.softmax(self.rows(labels), dim=-1)

    def add_row_gradients(self, labels: Tensor, rows: Tensor, gradient: Tensor, buffers: Sequence[Tensor]) -> None:
        """Add what `gradient` on `rows(labels)` means for each parameter to `buffers`, in parameters() order.

        `labels` are distinct and `rows` is what rows(labels) gave. `gradient` may be overwritten. A frozen parameter's
        buffer may be filled or left as it is: it is not looked at.
        """
        trained = [k for k, parameter in enumerate(self.parameters()) if parameter.requires_grad]
        parameters = list(self.parameters())
        with torch.enable_grad():
            again = self.rows(labels)
            found = torch.autograd.grad(again, [parameters[k] for k in trained], gradient.to(again), allow_unused=True)
        for k, value in zip(trained, found, strict=True):
            if value is not None:
                buffers[k].add_(value)

    def to_space(self, names: Sequence[str] | None, counts: Tensor, objective: dict[str, object]) -> LabelSpace:
        """What was learned, detached from training."""
        raise NotImplementedError

    def extra_repr(self) -> str:
        return f"num_labels={self.num_labels}"


class DenseEmbedding(LabelEmbedding):
    """E: an m x m matrix of logits, identity_scale times the identity at the start."""

    def __init__(self, num_labels: int, identity_scale: float = 1.0) -> None:
        super().__init__(num_labels)
        size = 4 * num_labels**2
        if size > DENSE_LIMIT_BYTES:
            raise ValueError(
                f"a dense embedding of {num_labels} labels needs {size / 1024**3:.1f} GB (the limit is 2 GB): "
                f"pass rank= (100, say) for a compressed one"
            )
        self.identity_scale = identity_scale
        self.weight = nn.Parameter(torch.eye(num_labels) * identity_scale)

    @classmethod
    def from_space(cls, space: LabelSpace) -> DenseEmbedding:
        """A trainable embedding that starts where another training ended."""
        embedding = cls(space.num_labels)
        with torch.no_grad():
            embedding.weight.copy_(space.matrix(kind="logit"))
        return embedding

    def rows(self, labels: Tensor) -> Tensor:
        return dense_rows(labels, self.weight)

    def add_row_gradients(self, labels: Tensor, rows: Tensor, gradient: Tensor, buffers: Sequence[Tensor]) -> None:
        buffers[0].index_add_(0, labels, gradient.to(buffers[0].dtype))

    def to_space(self, names: Sequence[str] | None, counts: Tensor, objective: dict[str, object]) -> LabelSpace:
        return LabelSpace.from_matrix(self.weight, names, kind="logit", counts=counts, objective=objective)


class CompressedEmbedding(LabelEmbedding):
    """e = ReLU(A_y B): m x rank plus rank x m numbers in place of m x m. `bias=True` adds the authors' bias in it."""

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
        """A trainable embedding that starts where another training of a compressed one ended."""
        factors = space.form.tensors()
        if space.rank is None:
            raise ValueError(f"the label space is stored as {space.form.storage}, but must be factors A and B")
        with torch.random.fork_rng(devices=[]):  # what it draws is overwritten: other layers shall not notice
            embedding = cls(space.num_labels, space.rank, bias="bias" in factors)
        embedding.load_state_dict(factors)
        return embedding

    def rows(self, labels: Tensor) -> Tensor:
        return compressed_rows(labels, self.A, self.B, self.bias)

    def add_row_gradients(self, labels: Tensor, rows: Tensor, gradient: Tensor, buffers: Sequence[Tensor]) -> None:
        gradient.mul_(rows > 0)
        compressed = F.embedding(labels, self.A.detach()).to(gradient.dtype)
        buffers[0].index_add_(0, labels, gradient @ self.B.detach().to(gradient.dtype).T)
        buffers[1].addmm_(compressed.T, gradient)
        if self.bias is not None:
            buffers[2].add_(gradient.sum(0))

    def to_space(self, names: Sequence[str] | None, counts: Tensor, objective: dict[str, object]) -> LabelSpace:
        return LabelSpace.from_factors(self.A, self.B, self.bias, names, counts=counts, objective=objective)

    def extra_repr(self) -> str:
        return f"num_labels={self.num_labels}, rank={self.rank}, bias={self.bias is not None}"


class FixedEmbedding(LabelEmbedding):
    """A learned label space as a fixed source of soft targets: no parameters, and no observer beside it."""

    learned = False
    needs_observer = False

    def __init__(self, space: LabelSpace) -> None:
        super().__init__(space.num_labels)
        self.space = space
        self.stored = nn.Module()  # holds the space's tensors under their own names
        for name, tensor in space.form.tensors().items():
            self.stored.register_buffer(name, tensor.clone())

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move with the head, but stay in float32 where it goes to half precision: rows would not sum to 1 there."""
        with kept_wide(self.stored, [name for name, _ in self.stored.named_buffers()]):
            super()._apply(fn, recurse)
        return self

    def rows(self, labels: Tensor) -> Tensor:
        return _FIXED_ROWS[self.space.form.storage](labels, **dict(self.stored.named_buffers()))

    def to_space(self, names: Sequence[str] | None, counts: Tensor, objective: dict[str, object]) -> LabelSpace:
        """The space in use, as the buffers hold it; counts and objective are those of its training."""
        space = self.space
        return LabelSpace(
            type(space.form)(**{name: tensor.to("cpu", copy=True) for name, tensor in self.stored.named_buffers()}),
            names=space.names if names is None else names,
            counts=space.counts,
            specials=space.specials if names is None else (),
            objective=space.objective,
            groups=space.groups if names is None else None,
        )


def dense_rows(labels: Tensor, logits: Tensor) -> Tensor:
    return F.embedding(labels, logits)


def compressed_rows(labels: Tensor, A: Tensor, B: Tensor, bias: Tensor | None = None) -> Tensor:
    """ReLU(A_y B + bias)."""
    compressed = F.embedding(labels, A)  # (k, rank)
    return (compressed @ B if bias is None else torch.addmm(bias, compressed, B)).relu_()


def spread_probabilities(labels: Tensor, indices: Tensor, probabilities: Tensor) -> Tensor:
    """Distributions (k, labels) of which only the largest are stored: the rest of the mass is spread evenly.

    An index of -1 is an empty place.
    """
    num_labels, listed = len(indices), indices[labels].long()  # (k, top_k)
    filled = listed >= 0
    kept = torch.where(filled, probabilities[labels], 0.0)
    others = (num_labels - filled.sum(1, keepdim=True)).clamp_min(1)
    share = (1 - kept.sum(1, keepdim=True)).clamp_min(0) / others
    spread = share.repeat(1, num_labels + 1)  # empty places are written to a last column that is cut off
    return spread.scatter_(1, torch.where(filled, listed, num_labels), kept)[:, :num_labels]


def log_rows(probabilities: Tensor) -> Tensor:
    """Logits whose softmax is the distribution; a zero becomes the smallest number with a logarithm."""
    return probabilities.clamp_min(torch.finfo(torch.float32).tiny).log()


def spread_rows(labels: Tensor, indices: Tensor, probabilities: Tensor) -> Tensor:
    return log_rows(spread_probabilities(labels, indices, probabilities))


_FIXED_ROWS: dict[str, Callable[..., Tensor]] = {
    "dense": dense_rows,
    "factors": compressed_rows,
    "top_k": spread_rows,
}
