"""Rows of logits from the tensors that an embedding stores."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


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
