"""Computations over all labels of a row: softmax, the own label, sums over the labels.

`heads/sharded` has the same for labels that are split over processes.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Reading(NamedTuple):
    """What a chunk of logits says about the label of each row; all (chunk,)."""

    own_log_p: Tensor
    log_sum_exp: Tensor
    right: Tensor
    """Where the label has the row's largest logit; ties count."""
    finite: Tensor


class LabelAxis:
    """The labels of a chunk of logits (chunk, width), all of them in this process."""

    split = False
    """Whether other processes hold further labels."""
    leads = True
    """Whether this process adds what is a number of the row, where numbers are summed over the processes."""

    def __init__(self, num_labels: int) -> None:
        self.num_labels = self.width = self.widest = num_labels

    def maximum(self, logits: Tensor) -> Tensor:
        """The largest logit of each row, (chunk,)."""
        return logits.amax(1)

    def total(self, sums: Tensor) -> Tensor:
        """Sums over the labels held here, as sums over all labels."""
        return sums

    def own(self, values: Tensor, labels: Tensor) -> Tensor:
        """What each row has at its label, (chunk,)."""
        return values.gather(1, labels.unsqueeze(1)).squeeze(1)

    def own_mass(self, q: Tensor, labels: Tensor) -> Tensor:
        """The mass that soft targets (k, width) put on their own labels, (k,)."""
        return self.own(q, labels)

    def add_to_own(self, values: Tensor, labels: Tensor, more: Tensor) -> None:
        """Add `more` (chunk,) to each row at its label."""
        values.scatter_add_(1, labels.unsqueeze(1), more.unsqueeze(1))

    def softmax_(self, logits: Tensor, best: Tensor, labels: Tensor) -> Reading:
        """Replace logits by their softmax; `best` is their maximum."""
        own = self.own(logits, labels)
        p = torch.softmax(logits, 1, out=logits)
        log_sum_exp = best - p.amax(1).log()  # the largest probability is never tiny
        return Reading(own - log_sum_exp, log_sum_exp, own - best == 0, best - best == 0)

    def soften(self, logits: Tensor, best: Tensor, tau: float, out: Tensor) -> Tensor:
        """z2'' = softmax(logits / tau); zeros in a row that is not finite, from which nothing can be learned."""
        torch.div(logits, tau, out=out)
        return torch.softmax(out, 1, out=out).nan_to_num_(0.0)
