"""One label space of each storage form."""

import pytest
import torch

from labelemb.labelspace import LabelSpace

NAMES = ["cat", "dog", "car", "truck", "pad", "空 白"]


def dense_space(**about):
    generator = torch.Generator().manual_seed(1)
    return LabelSpace.from_matrix(torch.randn(6, 6, generator=generator) * 2, NAMES, kind="logit", **about)


def factor_space(**about):
    generator = torch.Generator().manual_seed(2)
    A, B, bias = (torch.randn(*shape, generator=generator) for shape in ((6, 3), (3, 6), (6,)))
    return LabelSpace.from_factors(A, B, bias, NAMES, **about)


def top_k_space(**about):
    indices = [[0, 1, 2], [1, 0, 5], [2, 3, -1], [3, 2, 4], [4, 0, 1], [5, 4, 3]]
    probabilities = [
        [0.6, 0.2, 0.05], [0.7, 0.15, 0.1], [0.5, 0.25, 0.0], [0.8, 0.14, 0.06], [0.4, 0.3, 0.2], [0.9, 0.05, 0.01],
    ]  # fmt: skip
    return LabelSpace.from_top_k(indices, probabilities, NAMES, **about)


ALL_FORMS = pytest.mark.parametrize("make", [dense_space, factor_space, top_k_space])
