"""The labels of a space in their order: from what a user calls a label to its index."""

import operator
from collections.abc import Iterable
from typing import SupportsIndex

import torch
from torch import Tensor

from labelemb.labelspace.conversion import integer_copy
from labelemb.labelspace.errors import LabelSpaceError, UnknownLabelError
from labelemb.labelspace.names import check_names
from labelemb.support.wording import LONGEST_QUOTE, did_you_mean

Label = str | SupportsIndex
Labels = Iterable[Label] | Label | Tensor


class LabelIndex:
    """Names in order, and the index of a label given by name or index."""

    def __init__(self, names: Iterable[str] | None, num_labels: int) -> None:
        self.names = check_names(names, num_labels)
        self._index_of = {name: index for index, name in enumerate(self.names)}

    def __len__(self) -> int:
        return len(self.names)

    def __contains__(self, name: object) -> bool:
        return name in self._index_of

    def index(self, label: Label) -> int:
        if isinstance(label, str):
            if label in self._index_of:
                return self._index_of[label]
            hint = did_you_mean(label, self.names, limit=3)
            raise UnknownLabelError(f"unknown label {label[:LONGEST_QUOTE]!r} among {len(self)}{hint}")
        if isinstance(label, bool):
            raise TypeError(f"a label is a name or an index, not {label}")
        try:
            index = operator.index(label)
        except TypeError:
            raise TypeError(f"a label is a name or an index, not {type(label).__name__}") from None
        if not 0 <= index < len(self):
            raise UnknownLabelError(f"label index {index} is outside [0, {len(self)})")
        return index

    def indices(self, labels: Labels | None) -> Tensor:
        """The indices (k,) int64 of one label, several, or a tensor of indices; None is all."""
        if labels is None:
            return torch.arange(len(self))
        if isinstance(labels, Tensor) and labels.ndim > 0:
            return self._checked(labels)
        if isinstance(labels, str | Tensor) or not isinstance(labels, Iterable):
            return torch.tensor([self.index(labels)])
        return torch.tensor([self.index(label) for label in labels], dtype=torch.int64)

    def _checked(self, labels: Tensor) -> Tensor:
        if labels.ndim != 1:
            raise LabelSpaceError(f"a tensor of labels must have one dimension, not shape {tuple(labels.shape)}")
        indices = integer_copy("labels", labels)
        outside = indices[(indices < 0) | (indices >= len(self))]
        if len(outside):
            raise UnknownLabelError(f"label index {int(outside[0])} is outside [0, {len(self)})")
        return indices
