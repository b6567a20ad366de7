"""Rows of a data matrix, dense or sparse, handed out in batches: only a batch is ever copied."""

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
import torch
from torch import Tensor


def precision_of(matrix: Any) -> torch.dtype:
    """What data of this precision is computed in: scikit-learn hands on nothing but float32 and float64."""
    return torch.float32 if matrix.dtype == np.float32 else torch.float64


class SparseBatch(NamedTuple):
    """Some rows of a sparse matrix, their entries one after the other."""

    features: Tensor  # (entries,), the column of each
    values: Tensor  # (entries,)
    starts: Tensor  # (rows,), the first entry of each row
    num_features: int

    def dense(self) -> Tensor:
        """(rows, features)."""
        lengths = torch.diff(self.starts, append=self.starts.new_tensor([len(self.features)]))
        row = torch.repeat_interleave(torch.arange(len(self.starts)), lengths)
        full = self.values.new_zeros(len(self.starts), self.num_features)
        return full.index_put_((row, self.features.long()), self.values, accumulate=True)


class Rows:
    """The rows of a validated data matrix: an array, or a scipy CSR matrix."""

    def __init__(self, matrix: np.ndarray | scipy.sparse.csr_array) -> None:
        self.matrix = matrix

    def __len__(self) -> int:
        return self.matrix.shape[0]

    def batch(self, index: np.ndarray, dtype: torch.dtype) -> Tensor | SparseBatch:
        """The rows with these numbers in a network's precision, which may be that of earlier data."""
        part = self.matrix[index]  # always a copy, so that memory-mapped data is never written to
        if not scipy.sparse.issparse(part):
            return torch.from_numpy(part).to(dtype)
        return SparseBatch(
            torch.from_numpy(part.indices),
            torch.from_numpy(part.data).to(dtype),
            torch.from_numpy(part.indptr[:-1]),
            part.shape[1],
        )
