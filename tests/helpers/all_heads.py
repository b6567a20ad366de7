"""One head of each kind, and a small call for them."""

from __future__ import annotations

import torch

from labelemb import (
    ConfidencePenaltyHead,
    Head,
    LabelEmbeddingHead,
    OnlineSmoothingHead,
    PlainHead,
    TeacherFreeHead,
)

HIDDEN = torch.zeros(2, 3)
LABELS = torch.tensor([0, 1])
PEERS = [
    lambda: PlainHead(3, 4, label_smoothing=0.1),
    lambda: OnlineSmoothingHead(3, 4, rows_per_epoch=10),
    lambda: ConfidencePenaltyHead(3, 4),
    lambda: TeacherFreeHead(3, 4),
]
"""Makes one head of each kind but label embedding, 3 features and 4 labels."""


def heads() -> list[Head]:
    """One of each kind, 3 features and 4 labels."""
    return [
        LabelEmbeddingHead(3, 4, impl="autograd"),
        LabelEmbeddingHead(3, 4, impl="chunked"),
        LabelEmbeddingHead(3, 4, embedding="compressed", rank=2, impl="chunked"),
        PlainHead(3, 4),
        OnlineSmoothingHead(3, 4, rows_per_epoch=10),
        ConfidencePenaltyHead(3, 4),
        TeacherFreeHead(3, 4),
    ]
