"""Classifiers in the processes of a group, those of torchrun say: every fit is its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from sklearn.datasets import make_blobs
from torch import Tensor

from labelemb.support.tensors import sum_over_processes
from tests.helpers.classifiers import quick
from tests.helpers.processes import run_in_processes

METHODS: list[dict[str, Any]] = [{}, {"embedding": "running"}, {"method": "online-smoothing"}]


def trained(data: int, **options: Any) -> dict[str, Tensor]:
    """The network after a fit and a partial_fit on data of its own."""
    X, y = make_blobs(120, centers=3, n_features=5, random_state=data)
    return quick(max_iter=3, **options).fit(X / 5, y).partial_fit(X / 5, y).network_.state_dict()


def train_in_a_group() -> dict[str, Any]:
    """Each process on data of its own, without a word to the other; then a sum, which both make together."""
    rank = dist.get_rank()
    talk = AssertionError("a fit waits for other processes")
    with mock.patch.object(dist, "all_reduce", side_effect=talk):
        networks = [trained(rank, **options) for options in METHODS]
    return {"networks": networks, "sum": sum_over_processes(torch.tensor(rank + 1))}


def test_fits_in_a_process_group_are_those_of_single_processes(tmp_path: Path) -> None:
    for rank, found in enumerate(run_in_processes(2, train_in_a_group, tmp_path)):
        assert found["sum"] == 3
        for options, network in zip(METHODS, found["networks"], strict=True):
            torch.testing.assert_close(network, trained(rank, **options), rtol=0, atol=0)
