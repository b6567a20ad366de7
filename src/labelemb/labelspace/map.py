"""A two-dimensional map of labels, in which labels that are similar to the same labels are close together.

The rows of the label space are taken as distributions. A label's own share says how sure the model is of it, not what
it resembles, so it is replaced by the share of its nearest label and the row is divided by its sum. The square roots of
such rows are unit vectors whose distances are Hellinger distances; the map is their best flat picture, the first two
components of a singular value decomposition. Of very many labels stored as factors, the rows of logits A_y B (before
ReLU) are taken as they are; of others, the nearest labels. No random numbers: the same space gives the same map.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from labelemb.labelspace.errors import LabelSpaceError
from labelemb.labelspace.forms import BLOCK_NUMBERS, FactorForm
from labelemb.labelspace.neighbors import NeighborTable, neighbor_table
from labelemb.labelspace.record import LabelRecord
from labelemb.support.optional import import_optional

MOST_WHOLE_ROWS = 2000
"""Up to this many labels whole rows are used, beyond it the factors or the nearest labels of each row."""
MOST_LABELS = 100_000
"""Beyond it a map takes minutes, unless the space is stored as factors."""
NEIGHBORS = 20
TOLERANCE = 1e-3
"""Of the directions, relative: no picture shows more, and labels that hardly differ would take very many rounds."""
SMALLEST = 1e-12


@dataclass(frozen=True)
class LabelMap:
    """The positions of the labels, and the share of their differences that the map shows.

    Attributes:
        positions: (labels, 2), the larger side of the map from -1 to 1.
        share: the part of the variance of the rows that lies in the two directions, 0 to 1.
    """

    positions: np.ndarray
    share: float


def label_map(record: LabelRecord, table: NeighborTable | None = None) -> LabelMap:
    """The map of all labels of a space; `table` saves the time to find the nearest labels of many once more."""
    labels = record.num_labels
    if labels < 3:  # one or two points need no decomposition, and have no second direction
        return LabelMap(np.array([[0.0, 0.0]] if labels == 1 else [[-1.0, 0.0], [1.0, 0.0]]), 1.0)
    if labels <= MOST_WHOLE_ROWS:
        positions, share = _from_rows(np.asarray(record.matrix(), dtype=np.float64))
    elif isinstance(record.form, FactorForm):
        positions, share = _from_factors(record.form)
    elif labels > MOST_LABELS:
        raise LabelSpaceError(f"a map of {labels} labels takes too long (at most {MOST_LABELS}): use select() first")
    else:
        positions, share = _from_neighbors(table or neighbor_table(record, NEIGHBORS))
    for axis in range(2):  # a decomposition leaves the signs open
        if positions[np.abs(positions[:, axis]).argmax(), axis] < 0:
            positions[:, axis] *= -1
    positions -= (positions.max(axis=0) + positions.min(axis=0)) / 2
    return LabelMap(positions / max(float(np.abs(positions).max()), SMALLEST), share)


def _from_rows(matrix: np.ndarray) -> tuple[np.ndarray, float]:
    np.fill_diagonal(matrix, 0)
    np.fill_diagonal(matrix, matrix.max(axis=1))
    vectors = np.sqrt(matrix / np.maximum(matrix.sum(axis=1, keepdims=True), SMALLEST))
    vectors -= vectors.mean(axis=0)
    # the same as the singular vectors of the rows, in less than half of the time
    variances, left = np.linalg.eigh(vectors @ vectors.T)  # the smallest first
    main = np.maximum(variances[:-3:-1], 0)
    return left[:, :-3:-1] * np.sqrt(main), _share(main, float((vectors**2).sum()))


def _from_factors(form: FactorForm) -> tuple[np.ndarray, float]:
    """The rows A_y B by the main directions of their differences, found among `rank` numbers, never among labels.

    A bias moves all rows alike.
    """
    pieces = form.A.split(max(1, BLOCK_NUMBERS // form.rank))
    mean = form.A.mean(dim=0, dtype=torch.float64)
    products = torch.stack([piece.double().T @ piece.double() for piece in pieces]).sum(dim=0)
    scatter = products - form.num_labels * torch.outer(mean, mean)  # of the centred rows of A
    values, directions = torch.linalg.eigh(form.B.double() @ form.B.double().T)
    # rows of A times this keep all distances that their products with B have
    to_distances: Tensor = directions * values.clamp(min=0).sqrt()
    variances, main = torch.linalg.eigh(to_distances.T @ scatter @ to_distances)  # the smallest first
    main = to_distances @ main[:, -2:].flip(1)
    positions = torch.cat([piece.double() @ main for piece in pieces]) - mean @ main
    if form.rank == 1:  # all on a line
        positions = torch.nn.functional.pad(positions, (0, 1))
    return positions.numpy(), _share(variances[-2:].clamp(min=0).numpy(), float(variances.clamp(min=0).sum()))


def _from_neighbors(table: NeighborTable) -> tuple[np.ndarray, float]:
    """The same from the nearest labels alone: a sparse matrix, whose mean is taken off without filling it."""
    sparse_arrays = import_optional("scipy.sparse", "a map of this many labels", "plot")
    solvers = import_optional("scipy.sparse.linalg", "a map of this many labels", "plot")
    labels = len(table.indices)
    columns = np.column_stack([np.arange(labels), table.indices])
    entries = np.column_stack([table.similarities[:, 0], table.similarities]).astype(np.float64)
    rows = np.broadcast_to(np.arange(labels)[:, None], columns.shape)
    used = (columns >= 0) & (entries > 0)
    entries = np.sqrt(entries / np.maximum(entries.sum(axis=1, keepdims=True), SMALLEST))
    sparse = sparse_arrays.csr_matrix((entries[used], (rows[used], columns[used])), shape=(labels, labels))
    mean = np.asarray(sparse.mean(axis=0)).ravel()
    ones = np.ones(labels)
    centred = solvers.LinearOperator(
        sparse.shape,
        matvec=lambda x: sparse @ x.ravel() - ones * (mean @ x.ravel()),
        rmatvec=lambda x: sparse.T @ x.ravel() - mean * x.sum(),
        dtype=np.float64,
    )
    left, values, _ = solvers.svds(centred, k=2, v0=np.cos(np.arange(labels)), tol=TOLERANCE)
    order = np.argsort(-values)
    total = float(sparse.multiply(sparse).sum() - labels * (mean @ mean))
    return left[:, order] * values[order], _share(values**2, total)


def _share(variances: np.ndarray, total: float) -> float:
    # variances are squares: what rounding leaves of equal rows is far below the square of SMALLEST
    return min(1.0, float(variances.sum()) / max(total, SMALLEST**2))
