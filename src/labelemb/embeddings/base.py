"""`LabelEmbedding`: the interface of every embedding: for each label, one row of logits over all labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labelemb.labelspace import LabelSpace
from labelemb.labelspace.rows import SparseRows
from labelemb.support.tensors import widened


@dataclass(frozen=True)
class RowGradients:
    """Where `learn_from` adds gradients if autograd is not to find them: a tensor for each parameter, by name."""

    buffers: dict[str, Tensor]
    factor: Tensor
    """Multiplies the gradients that are added."""


class LabelEmbedding(nn.Module):
    """The interface of every embedding. One of your own needs `rows` and `to_space`, and is then trained by gradient.

    A loss reads soft targets with `probabilities` (or `sparse_probabilities`), and calls `begin`, `learn_from` for all
    labels that the observer saw, and `finish`, once each batch.
    """

    trained_by_gradient = True
    """Whether an optimiser trains its parameters; else it learns by itself, or not at all."""
    needs_observer = True

    def __init__(self, num_labels: int) -> None:
        super().__init__()
        if num_labels < 2:
            raise ValueError(f"num_labels is {num_labels}, but a label embedding needs 2 labels or more")
        self.num_labels = num_labels

    @property
    def learns(self) -> bool:
        """Whether `learn_from` does anything at present."""
        return self.trained_by_gradient

    def rows(self, labels: Tensor) -> Tensor:
        """The logits of some labels, (k,) -> (k, num_labels), differentiable."""
        raise NotImplementedError

    def all_rows(self) -> Tensor:
        """The logits of all labels, (num_labels, num_labels)."""
        return self.rows(torch.arange(self.num_labels, device=self._device()))

    def probabilities(self, labels: Tensor) -> Tensor:
        """The soft target of each label, (k, num_labels): softmax of the rows."""
        return F.softmax(widened(self.rows(labels)), dim=-1)

    def sparse_probabilities(self, labels: Tensor) -> SparseRows | None:
        """The same where an embedding keeps a few entries of each label; None where it keeps them all."""
        return None

    def trained_log_rows(self, labels: Tensor | None) -> Tensor | None:
        """log softmax of the rows of some labels, or of all, to differentiate; None if nothing is trained."""
        if not self.trained_by_gradient:
            return None
        return F.log_softmax(widened(self.all_rows() if labels is None else self.rows(labels)), dim=-1)

    def trained_tensors(self) -> dict[str, Tensor]:
        """What `learn_from` finds gradients of, by name."""
        # the replicas of nn.DataParallel have plain tensors in place of parameters
        return dict(self.named_parameters()) or dict(getattr(self, "_former_parameters", {}))

    def begin(self, rows: Tensor) -> None:
        """Start of a batch with so many valid rows."""

    def learn_from(
        self, labels: Tensor | None, sums: Tensor, masses: Tensor, gradients: RowGradients | None = None
    ) -> Tensor:
        """Learn what the observer saw of some labels, and give the sum of the embedding term over its rows.

        Arguments:
            labels: (k,), distinct, except that one of mass 0 may repeat; None for all labels.
            sums: (k, num_labels), for each label the weighted sum of z2'' over its rows; may be overwritten.
            masses: (k,), the sum of the weights.
            gradients: where to add the term's gradients; without it the result is differentiable.
        """
        if gradients is None:
            log_rows = self.trained_log_rows(labels)
            return sums.new_zeros(()) if log_rows is None else -(sums * log_rows).sum()
        return self._learn_in_place(labels, sums, masses, gradients)

    @torch.no_grad()
    def _learn_in_place(self, labels: Tensor | None, sums: Tensor, masses: Tensor, gradients: RowGradients) -> Tensor:
        """n_y lse(e_y) - T_y . e_y, whose gradient on e_y is n_y softmax(e_y) - T_y."""
        if labels is None:
            labels = torch.arange(self.num_labels, device=sums.device)
        rows = self.rows(labels).to(sums.dtype)
        q = F.softmax(rows, dim=-1)
        normaliser = rows.amax(1) - q.amax(1).log()  # log-sum-exp, from the softmax that is there already
        term = masses @ normaliser - torch.dot(sums.view(-1), rows.view(-1))
        on_rows = q.mul_((masses * gradients.factor).unsqueeze(1)).addcmul_(sums, gradients.factor, value=-1)
        self.add_row_gradients(labels, rows, on_rows, gradients.buffers)
        return term

    def add_row_gradients(self, labels: Tensor, rows: Tensor, gradient: Tensor, buffers: dict[str, Tensor]) -> None:
        """Add what `gradient` on `rows(labels)` means for each parameter to `buffers`.

        `rows` is what rows(labels) gave. `gradient` may be overwritten. The buffer of a frozen parameter is not there.
        """
        trained = {name: tensor for name, tensor in self.trained_tensors().items() if name in buffers}
        with torch.enable_grad():
            again = self.rows(labels)
            found = torch.autograd.grad(again, list(trained.values()), gradient.to(again), allow_unused=True)
        for name, value in zip(trained, found, strict=True):
            if value is not None:
                buffers[name].add_(value)

    def finish(self) -> None:
        """End of a batch."""

    def to_space(self, names: Sequence[str] | None, counts: Tensor, objective: dict[str, object]) -> LabelSpace:
        """What was learned, detached from training."""
        raise NotImplementedError

    def extra_repr(self) -> str:
        return f"num_labels={self.num_labels}"

    def _device(self) -> torch.device:
        return next(iter([*self.trained_tensors().values(), *self.buffers()])).device
