"""Two ablations of label embedding, which use the autograd implementation."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor

from labelemb.embeddings.base import LabelEmbedding, RowGradients
from labelemb.heads import registry
from labelemb.heads.label_embedding import LabelEmbeddingHead
from labelemb.losses.parts import Parts


class SingleOutputHead(LabelEmbeddingHead):
    """The version that the paper rejects: no observer, the embedding learns from the predictor itself."""

    def __init__(self, in_features: int, num_labels: int, **options: Any) -> None:
        super().__init__(in_features, num_labels, **options | {"impl": "autograd"})
        self.observer = None


class FlatTargetHead(LabelEmbeddingHead):
    """Keeps the mass that each label's soft target has on itself and spreads the rest evenly over the others.

    What label embedding gives beyond this control comes from the learned similarities, not from the softening.
    """

    def __init__(self, in_features: int, num_labels: int, **options: Any) -> None:
        super().__init__(in_features, num_labels, **options | {"impl": "autograd"})

    def parts(self) -> Parts:
        return replace(super().parts(), embedding=_FlatTargets(self.embedding))


class _FlatTargets(LabelEmbedding):
    """Learns as another embedding does, and gives flat soft targets."""

    def __init__(self, inner: LabelEmbedding) -> None:
        super().__init__(inner.num_labels)
        self.inner = inner
        self.trained_by_gradient, self.needs_observer = inner.trained_by_gradient, inner.needs_observer

    @property
    def learns(self) -> bool:
        return self.inner.learns

    def probabilities(self, labels: Tensor) -> Tensor:
        q = self.inner.probabilities(labels)
        own = q.gather(-1, labels.unsqueeze(-1))
        even = ((1 - own) / (self.num_labels - 1)).expand_as(q)
        return even.scatter(-1, labels.unsqueeze(-1), own)

    def trained_log_rows(self, labels: Tensor | None) -> Tensor | None:
        return self.inner.trained_log_rows(labels)

    def begin(self, rows: Tensor) -> None:
        self.inner.begin(rows)

    def learn_from(
        self, labels: Tensor | None, sums: Tensor, masses: Tensor, gradients: RowGradients | None = None
    ) -> Tensor:
        return self.inner.learn_from(labels, sums, masses, gradients)

    def finish(self) -> None:
        self.inner.finish()


CONTROLS = {"single-output": "label-embedding: single-output", "flat": "label-embedding: flat"}
"""Name in the registry for each switch of `label-embedding`."""
registry.register(CONTROLS["single-output"], partial(registry.label_embedding, make=SingleOutputHead))
registry.register(CONTROLS["flat"], partial(registry.label_embedding, make=FlatTargetHead))
