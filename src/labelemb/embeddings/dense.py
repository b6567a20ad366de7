"""`DenseEmbedding`: E, an m x m matrix of logits."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from labelemb.embeddings.base import LabelEmbedding
from labelemb.labelspace import LabelSpace
from labelemb.labelspace.rows import dense_rows

DENSE_LIMIT_BYTES = 2 * 1024**3


class DenseEmbedding(LabelEmbedding):
    """A label embedding E with one parameter, an m x m matrix of logits for m labels.

    It takes 4 m² bytes; above 2 GB it is refused.

    Arguments:
        num_labels: number of labels m.
        identity_scale: E starts as this number times the identity matrix. Higher: closer to one-hot at the start.
    """

    def __init__(self, num_labels: int, identity_scale: float = 1.0) -> None:
        super().__init__(num_labels)
        size = 4 * num_labels**2
        if size > DENSE_LIMIT_BYTES:
            raise ValueError(
                f"a dense embedding of {num_labels} labels needs {size / 1024**3:.1f} GB (the limit is 2 GB): "
                'pass embedding="compressed", rank=100 or embedding="running"'
            )
        self.identity_scale = identity_scale
        self.weight = nn.Parameter(torch.eye(num_labels) * identity_scale)

    @classmethod
    def from_space(cls, space: LabelSpace) -> DenseEmbedding:
        """A trainable embedding that starts from a label space."""
        embedding = cls(space.num_labels)
        with torch.no_grad():
            embedding.weight.copy_(space.matrix(kind="logit"))
        return embedding

    def rows(self, labels: Tensor) -> Tensor:
        return dense_rows(labels, self.weight)

    def all_rows(self) -> Tensor:
        return self.weight

    def add_row_gradients(self, labels: Tensor, rows: Tensor, gradient: Tensor, buffers: dict[str, Tensor]) -> None:
        if "weight" in buffers:
            buffers["weight"].index_add_(0, labels, gradient.to(buffers["weight"].dtype))

    def to_space(self, names: Sequence[str] | None, counts: Tensor, objective: dict[str, object]) -> LabelSpace:
        return LabelSpace.from_matrix(self.weight, names, kind="logit", counts=counts, objective=objective)
