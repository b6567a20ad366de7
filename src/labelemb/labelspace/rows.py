"""Rows of logits and distributions from the tensors that a label space or a label embedding stores."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

TINY = torch.finfo(torch.float32).tiny


def dense_rows(labels: Tensor, logits: Tensor) -> Tensor:
    """Logits (k, labels) of some labels, from a matrix of logits."""
    return F.embedding(labels, logits)


def factor_rows(labels: Tensor, A: Tensor, B: Tensor, bias: Tensor | None = None) -> Tensor:
    """Logits ReLU(A_y B + bias) of some labels, (k, labels)."""
    factors = F.embedding(labels, A)  # (k, rank)
    return (factors @ B if bias is None else torch.addmm(bias, factors, B)).relu_()


def top_k_rows(labels: Tensor, indices: Tensor, probabilities: Tensor) -> Tensor:
    """Logits (k, labels) of some labels, from their largest probabilities."""
    return log_rows(sparse_rows(labels, indices, probabilities).dense(len(indices)))


def log_rows(probabilities: Tensor) -> Tensor:
    """Logits whose softmax is the distribution; a zero becomes the smallest number with a logarithm."""
    return probabilities.clamp_min(TINY).log()


class SparseRows(NamedTuple):
    """Distributions over all labels of which a few entries are listed; every other label has the same share."""

    indices: Tensor  # (k, listed)
    excess: Tensor  # (k, listed): probability minus share, 0 in unused places
    share: Tensor  # (k,)

    def dense(self, num_labels: int) -> Tensor:
        """(k, num_labels)."""
        even = self.share.unsqueeze(1).repeat(1, num_labels)
        return even.scatter_add_(1, self.indices, self.excess)


def sparse_rows(labels: Tensor, indices: Tensor, probabilities: Tensor) -> SparseRows:
    """The rows of some labels; what the listed probabilities leave of 1 is spread evenly. -1 is an unused place."""
    listed, num_labels = indices[labels].long(), len(indices)
    used = listed >= 0
    kept = probabilities[labels]
    others = (num_labels - used.sum(1)).clamp_min(1)
    share = (1 - kept.sum(1)).clamp_min(0) / others
    excess = torch.where(used, kept - share.unsqueeze(1), 0.0)
    return SparseRows(listed.clamp_min(0), excess, share)
