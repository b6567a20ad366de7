"""`LabelEmbedding`: the interface of every embedding: for each label, one row of logits over all labels."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labelemb.labelspace import LabelSpace


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
