"""Label embeddings by name."""

from __future__ import annotations

from typing import Literal, get_args

from labelemb.embeddings.base import LabelEmbedding
from labelemb.embeddings.compressed import CompressedEmbedding
from labelemb.embeddings.dense import DenseEmbedding
from labelemb.embeddings.fixed import FixedEmbedding
from labelemb.embeddings.running import RunningEmbedding
from labelemb.labelspace import LabelSpace

EmbeddingName = Literal["running", "dense", "compressed"]
NAMES: tuple[str, ...] = get_args(EmbeddingName)


def make_embedding(
    num_labels: int,
    embedding: EmbeddingName | LabelEmbedding | LabelSpace,
    *,
    rank: int | None = None,
    rows_per_epoch: int | None = None,
    prior_rows: float | None = None,
) -> LabelEmbedding:
    """Make an embedding from its name, a module or a label space. An option that has no effect is an error."""
    if rank is not None and embedding != "compressed":
        raise ValueError(f'rank={rank} is an option of embedding="compressed", but embedding is {_shown(embedding)}')
    for name, value in (("rows_per_epoch", rows_per_epoch), ("prior_rows", prior_rows)):
        if value is not None and embedding != "running":
            raise ValueError(
                f'{name}={value} is an option of embedding="running", but embedding is {_shown(embedding)}'
            )
    if isinstance(embedding, str):
        if embedding == "running":
            return RunningEmbedding(num_labels, rows_per_epoch, prior_rows=prior_rows)
        if embedding == "dense":
            return DenseEmbedding(num_labels)
        if embedding == "compressed":
            if rank is None:
                raise ValueError('embedding="compressed" needs rank= (100, say)')
            return CompressedEmbedding(num_labels, rank)
        raise ValueError(f"embedding is {embedding!r}, but must be one of {', '.join(NAMES)}, a module or a LabelSpace")
    if isinstance(embedding, LabelSpace):
        embedding = FixedEmbedding(embedding)
    if not isinstance(embedding, LabelEmbedding):
        raise TypeError(f"embedding is a {type(embedding).__name__}, but must be a name, a module or a LabelSpace")
    if embedding.num_labels != num_labels:
        raise ValueError(f"the embedding has {embedding.num_labels} labels, but the head {num_labels}")
    return embedding


def is_fixed(embedding: object) -> bool:
    """Whether a name, a module or a label space means soft targets that training does not change."""
    if isinstance(embedding, LabelEmbedding):
        return not embedding.needs_observer
    return isinstance(embedding, LabelSpace)


def _shown(embedding: object) -> str:
    return repr(embedding) if isinstance(embedding, str) else f"a {type(embedding).__name__}"
