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
    """Buffers to which `learn_from` adds gradients when autograd is not used: a tensor per parameter, by name."""

    buffers: dict[str, Tensor]
    factor: Tensor
    """A factor for the gradients that are added."""


class LabelEmbedding(nn.Module):
    """Base class of all label embeddings: for each label, one row of logits over all labels.

    A subclass must define `rows` and `to_space`; its parameters are then trained by gradient. A loss reads soft targets
    with `probabilities` (or `sparse_probabilities`). Once per batch it calls `begin`, then `learn_from` for the labels
    that the observer saw, then `finish`.

    Arguments:
        num_labels: number of labels, 2 or more.
    """

    trained_by_gradient = True
    """Whether an optimiser trains its parameters. If not, `learn_from` updates it, or it does not change."""
    needs_observer = True
    """Whether a head with this embedding has an observer."""

    def __init__(self, num_labels: int) -> None:
        super().__init__()
        if num_labels < 2:
            raise ValueError(f"num_labels is {num_labels}, but a label embedding needs 2 labels or more")
        self.num_labels = num_labels

    @property
    def learns(self) -> bool:
        """Whether `learn_from` does anything in the current mode."""
        return self.trained_by_gradient

    def rows(self, labels: Tensor) -> Tensor:
        """The logits of the given labels, (k,) -> (k, num_labels), differentiable."""
        raise NotImplementedError

    def all_rows(self) -> Tensor:
        """The logits of all labels, (num_labels, num_labels)."""
        return self.rows(torch.arange(self.num_labels, device=self._device()))

    def probabilities(self, labels: Tensor) -> Tensor:
        """The soft targets of the given labels, (k,) -> (k, num_labels): softmax of their rows."""
        return F.softmax(widened(self.rows(labels)), dim=-1)

    def sparse_probabilities(self, labels: Tensor) -> SparseRows | None:
        """The same as sparse rows, if the embedding keeps only a few entries of each label; else None."""
        return None

    def trained_log_rows(self, labels: Tensor | None) -> Tensor | None:
        """log_softmax of the rows of the given labels (None: all), differentiable; None if nothing is trained."""
        if not self.trained_by_gradient:
            return None
        return F.log_softmax(widened(self.all_rows() if labels is None else self.rows(labels)), dim=-1)

    def trained_tensors(self) -> dict[str, Tensor]:
        """The tensors for which `learn_from` computes gradients, by name."""
        # the replicas of nn.DataParallel have plain tensors in place of parameters
        return dict(self.named_parameters()) or dict(getattr(self, "_former_parameters", {}))

    def begin(self, rows: Tensor) -> None:
        """Called at the start of a batch; `rows` is its number of valid rows, a tensor ()."""

    def learn_from(
        self, labels: Tensor | None, sums: Tensor, masses: Tensor, gradients: RowGradients | None = None
    ) -> Tensor:
        """Learn from the observer's predictions, and return the embedding term summed over their rows.

        Arguments:
            labels: (k,), distinct, except that a label of mass 0 may repeat; None for all labels.
            sums: (k, num_labels), for each label the weighted sum of z2'' over its rows; may be overwritten.
            masses: (k,), for each label the sum of its row weights.
            gradients: buffers for the term's gradients. None: the result is differentiable.
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
        """Backpropagate `gradient`, that of `rows(labels)`, and add each parameter's gradient to `buffers`.

        `rows` is the result of rows(labels). `gradient` may be overwritten. Frozen parameters have no buffer.
        """
        trained = {name: tensor for name, tensor in self.trained_tensors().items() if name in buffers}
        with torch.enable_grad():
            again = self.rows(labels)
            found = torch.autograd.grad(again, list(trained.values()), gradient.to(again), allow_unused=True)
        for name, value in zip(trained, found, strict=True):
            if value is not None:
                buffers[name].add_(value)

    def finish(self) -> None:
        """Called at the end of a batch."""

    def to_space(self, names: Sequence[str] | None, counts: Tensor, objective: dict[str, object]) -> LabelSpace:
        """What was learned, as a `LabelSpace` that later training does not change.

        Arguments:
            names: one name per label; None for "0", "1", ...
            counts: (num_labels,), how often the observer was right about each label.
            objective: the fields of the training objective.
        """
        raise NotImplementedError

    def extra_repr(self) -> str:
        return f"num_labels={self.num_labels}"

    def _device(self) -> torch.device:
        return next(iter([*self.trained_tensors().values(), *self.buffers()])).device
