"""Label embeddings: the sources of soft targets, all with one interface."""

from labelemb.embeddings.base import LabelEmbedding
from labelemb.embeddings.compressed import CompressedEmbedding
from labelemb.embeddings.dense import DenseEmbedding
from labelemb.embeddings.fixed import FixedEmbedding
from labelemb.embeddings.running import RunningEmbedding

__all__ = ["CompressedEmbedding", "DenseEmbedding", "FixedEmbedding", "LabelEmbedding", "RunningEmbedding"]
