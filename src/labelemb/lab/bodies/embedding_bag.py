"""`EmbeddingBag`: the mean of word n-gram vectors, then fully connected layers: a fast body for short texts."""

from collections.abc import Sequence

from torch import Tensor, nn

from labelemb.lab.bodies.mlp import MLP


class EmbeddingBag(nn.Module):
    """Mean of the feature vectors of each text, then an MLP; a text without features has the zero vector.

    Takes the feature numbers of all texts, concatenated, and the start of each text.
    """

    def __init__(self, features: int, embedding_size: int, hidden: Sequence[int], dropout: float = 0.0) -> None:
        super().__init__()
        self.vectors = nn.EmbeddingBag(features, embedding_size, mode="mean")
        self.dropout = nn.Dropout(dropout)
        self.top = MLP(embedding_size, hidden, dropout)
        self.out_features = self.top.out_features

    def forward(self, features: Tensor, starts: Tensor) -> Tensor:
        return self.top(self.dropout(self.vectors(features, starts)))
