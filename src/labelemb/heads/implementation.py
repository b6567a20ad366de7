"""Chooses the implementation of a loss: plain autograd, or chunks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from labelemb.losses.batch import Batch
from labelemb.losses.chunked import ChunkOptions
from labelemb.support.tensors import is_transformed

Implementation = Literal["auto", "autograd", "chunked"]

FEW_LOGITS = 1 << 20
"""Up to this many logits "auto" uses no chunks: gradients in closed form or autograd are then as fast."""


@dataclass(frozen=True)
class ImplementationChoice:
    """The options `impl` and `chunk_rows` of a head; see `LabelEmbeddingHead`."""

    impl: Implementation = "auto"
    chunk_rows: int | None = None

    def __post_init__(self) -> None:
        if self.impl not in ("auto", "autograd", "chunked"):
            raise ValueError(f'impl is {self.impl!r}, but must be "auto", "autograd" or "chunked"')
        if self.chunk_rows is not None and (self.chunk_rows < 1 or self.impl == "autograd"):
            raise ValueError(f'chunk_rows is {self.chunk_rows}, but must be 1 or more, and impl "auto" or "chunked"')

    @property
    def options(self) -> ChunkOptions:
        return ChunkOptions(self.chunk_rows)

    def uses_chunks(self, batch: Batch, num_labels: int) -> bool:
        """Whether the loss of a batch is computed in chunks."""
        if self.impl == "autograd":
            return False
        if batch.reduction == "none":
            if self.impl == "chunked":
                raise ValueError('reduction="none" needs impl="autograd" or "auto": chunks only add rows up')
            return False
        if batch.labels is None or torch.compiler.is_compiling() or is_transformed():
            return False
        return self.impl == "chunked" or len(batch.hidden) * num_labels > FEW_LOGITS
