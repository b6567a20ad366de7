"""`EvenTargets`: the soft target of label smoothing."""

from __future__ import annotations

from torch import Tensor, float32

from labelemb.embeddings.base import LabelEmbedding
from labelemb.labelspace.rows import SparseRows


class EvenTargets(LabelEmbedding):
    """The even distribution as the soft target of every label: nothing is learned or stored."""

    trained_by_gradient = False
    needs_observer = False

    def probabilities(self, labels: Tensor) -> Tensor:
        return self.sparse_probabilities(labels).dense(self.num_labels)

    def sparse_probabilities(self, labels: Tensor) -> SparseRows:
        none = labels.new_empty(len(labels), 0)
        return SparseRows(none, none.float(), none.new_full((len(labels),), 1 / self.num_labels, dtype=float32))
