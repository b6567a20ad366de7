"""Two controls that show what the parts of the method give. They use the reference implementation."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from labelemb.heads.label_embedding import LabelEmbeddingHead
from labelemb.losses.batch import Batch
from labelemb.losses.terms import widened


class SingleOutputHead(LabelEmbeddingHead):
    """The version that the paper rejects: no observer, the embedding learns from the predictor itself."""

    def __init__(self, in_features: int, num_labels: int, **options: Any) -> None:
        super().__init__(in_features, num_labels, **options | {"impl": "reference"})
        self.observer = None

    def observe(self, batch: Batch, z1: Tensor) -> Tensor | None:
        return z1.detach()


class FlatTargetHead(LabelEmbeddingHead):
    """Keeps the mass that each label's soft target has on itself and spreads the rest evenly over the others.

    What label embedding gives beyond this control comes from the learned similarities, not from the softening.
    """

    def __init__(self, in_features: int, num_labels: int, **options: Any) -> None:
        super().__init__(in_features, num_labels, **options | {"impl": "reference"})

    def soft_target(self, labels: Tensor, e: Tensor | None) -> Tensor:
        q = self.embedding.probabilities(labels) if e is None else widened(e.detach()).softmax(-1)
        own = q.gather(-1, labels.unsqueeze(-1))
        even = ((1 - own) / (self.num_labels - 1)).expand_as(q)
        return even.scatter(-1, labels.unsqueeze(-1), own)
