"""`FixedEmbedding`: a learned label space that is used without training it (Appendix B of the paper)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Self

from torch import Tensor, nn

from labelemb.embeddings.base import LabelEmbedding
from labelemb.labelspace import LabelSpace
from labelemb.labelspace.rows import SparseRows, dense_rows, factor_rows, sparse_rows, top_k_rows
from labelemb.support.tensors import kept_wide


class FixedEmbedding(LabelEmbedding):
    """A learned label space as fixed soft targets. It has no parameters, and its head has no observer.

    Arguments:
        space: the label space, with its labels in the order of the head's.
    """

    trained_by_gradient = False
    needs_observer = False

    def __init__(self, space: LabelSpace) -> None:
        super().__init__(space.num_labels)
        self.space = space
        self.stored = nn.Module()  # holds the space's tensors under their own names
        for name, tensor in space.form.tensors().items():
            self.stored.register_buffer(name, tensor.clone())

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move with the head, but stay in float32 if it is converted to half precision: rows would not sum to 1."""
        with kept_wide(self.stored, [name for name, _ in self.stored.named_buffers()]):
            super()._apply(fn, recurse)
        return self

    def rows(self, labels: Tensor) -> Tensor:
        return _FIXED_ROWS[self.space.form.storage](labels, **dict(self.stored.named_buffers()))

    def sparse_probabilities(self, labels: Tensor) -> SparseRows | None:
        if self.space.form.storage != "top_k":
            return None
        return sparse_rows(labels, **dict(self.stored.named_buffers()))

    def to_space(self, names: Sequence[str] | None, counts: Tensor, objective: dict[str, object]) -> LabelSpace:
        """The space in use, from the buffers; counts and objective are those of its own training."""
        space = self.space
        return LabelSpace(
            type(space.form)(**{name: tensor.to("cpu", copy=True) for name, tensor in self.stored.named_buffers()}),
            names=space.names if names is None else names,
            counts=space.counts,
            specials=space.specials if names is None else (),
            objective=space.objective,
            superclasses=space.superclasses if names is None else None,
        )


_FIXED_ROWS: dict[str, Callable[..., Tensor]] = {
    "dense": dense_rows,
    "factors": factor_rows,
    "top_k": top_k_rows,
}
