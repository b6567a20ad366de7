"""`LabelRecord`: the labels of a space with their rows, counts and specials, and how they are read.

The functions of this folder (neighbours, pairs, groups, maps, pictures) take a record; `LabelSpace` is a record that
can be made, saved and exported as well.
"""

from collections.abc import Iterable
from typing import Literal

import torch
from torch import Tensor

from labelemb.labelspace.errors import LabelSpaceError
from labelemb.labelspace.forms import Form
from labelemb.labelspace.labels import ArrayLike, Label, LabelIndex, Labels, checked_counts

Kind = Literal["probability", "logit"]

LARGEST_MATRIX_BYTES = 2 * 10**9


class LabelRecord:
    """Labels with names, rows of similarities, counts and specials; see `LabelSpace` for the attributes."""

    def __init__(
        self,
        form: Form,
        names: Iterable[str] | None = None,
        counts: ArrayLike | None = None,
        specials: Iterable[Label] = (),
    ) -> None:
        self.form = form
        self._labels = LabelIndex(names, form.num_labels)
        self.names = self._labels.names
        self.counts = None if counts is None else checked_counts(counts, form.num_labels)
        if isinstance(specials, str):
            raise TypeError(f"specials must be a sequence of labels, not the one string {specials!r}")
        self.specials = tuple(dict.fromkeys(self.names[self.index(special)] for special in specials))
        self._log_normalisers: Tensor | None = None

    @property
    def num_labels(self) -> int:
        return self.form.num_labels

    @property
    def rank(self) -> int | None:
        """The rank of the factors; None if the space is not stored as factors."""
        return self.form.rank

    def __len__(self) -> int:
        return self.num_labels

    def index(self, label: Label) -> int:
        """The index of a label given by name or index. The error for an unknown name suggests similar names."""
        return self._labels.index(label)

    def indices(self, labels: Labels | None = None) -> Tensor:
        """The indices (k,) int64 of labels given by name or index. None: all labels."""
        return self._labels.indices(labels)

    def special_indices(self) -> Tensor:
        """The indices (k,) int64 of the specials."""
        return torch.tensor([self.index(name) for name in self.specials], dtype=torch.int64)

    def learned(self, label: Label) -> bool:
        """False if the observer was never right about the label, so its row still holds initial values."""
        index = self.index(label)
        return self.counts is None or bool(self.counts[index] > 0)

    def rows(self, labels: Labels) -> Tensor:
        """Logits (k, labels) float32 of these labels; log-probabilities if the largest entries are stored."""
        return self.form.rows(self.indices(labels))

    def distribution(self, label: Label) -> Tensor:
        """How similar every label is to this one: the softmax of its row, (labels,)."""
        return self.rows(self.index(label))[0].softmax(dim=0)

    def similarity(self, label: Label, other: Label) -> float:
        """How similar `other` is to `label`: distribution(label)[other]. Not symmetric."""
        return float(self.distribution(label)[self.index(other)])

    def matrix(self, labels: Labels | None = None, kind: Kind = "probability") -> Tensor:
        """The (k, k) similarities between these labels, float32.

        With `labels` the rows do not sum to 1, because probabilities refer to all labels; `select` renormalises.

        Args:
            labels: names or indices. None: all labels.
            kind: "probability" as in `similarity`, or "logit".
        """
        check_kind(kind)
        indices = self.indices(labels)
        refuse_large(len(indices), len(indices), "pass labels= for the part you need, or use rows() and nearest()")
        matrix = torch.empty(len(indices), len(indices))
        start = 0
        for piece in self.form.blocks(indices):
            rows = self.form.rows(piece)
            if kind == "probability":
                rows = rows.softmax(dim=1)
            matrix[start : start + len(piece)] = rows[:, indices]
            start += len(piece)
        return matrix

    def log_normalisers(self) -> Tensor:
        """log-sum-exp of every row, (labels,). Computed in blocks the first time, then kept, also by `save`."""
        if self._log_normalisers is None:
            self._log_normalisers = self.form.log_normalisers()
        return self._log_normalisers


def check_kind(kind: str) -> None:
    """Raise unless `kind` is one of `Kind`."""
    if kind not in ("probability", "logit"):
        raise LabelSpaceError(f'kind must be "probability" or "logit", not {kind!r}')


def refuse_large(rows: int, columns: int, advice: str) -> None:
    """Raise where a matrix would take more than 2 GB."""
    size = 4 * rows * columns
    if size > LARGEST_MATRIX_BYTES:
        raise LabelSpaceError(
            f"a matrix of {rows} x {columns} takes {size / 1e9:.1f} GB (at most 2 GB are made): {advice}"
        )
