"""What a call starts on a device, and that it never waits for it: see tests/helpers/operations.py."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from labelemb import LabelEmbeddingHead, LabelSpace, Objective, PlainHead, RunningEmbedding
from labelemb.heads.base import Head
from tests.helpers.operations import Operations, count_operations

EMBEDDINGS: dict[str, dict[str, Any]] = {
    "dense": {"embedding": "dense"},
    "compressed": {"embedding": "compressed", "rank": 4},
    "running": {"embedding": "running"},
    "rising-floor": {"embedding": "running", "objective": Objective.rising_floor(), "total_steps": 100},
}
ONE_CHUNK, BESIDES = 60, 150
MANY = 5000


def operations_of(head: Head, rows: int) -> Operations:
    hidden = torch.randn(rows, head.in_features, requires_grad=True)
    targets = torch.randint(head.num_labels, (rows,))
    targets[0] = -100

    def call() -> torch.Tensor:
        head.zero_grad()
        hidden.grad = None
        return head(hidden, targets).loss

    return count_operations(call)


def many_labels(name: str, **options: Any) -> LabelEmbeddingHead:
    """A head whose running tables keep their largest entries, as they do with very many labels."""
    chosen = EMBEDDINGS[name] | options
    if chosen["embedding"] == "running":
        chosen["embedding"] = RunningEmbedding(MANY, top_k=8, prior_rows=10)
    return LabelEmbeddingHead(4, MANY, **chosen)


def test_the_counter_sees_waits() -> None:
    values = torch.ones(3, requires_grad=True)
    for wait in (lambda: values.sum().item(), lambda: values[values > 0], lambda: values.detach().unique()):

        def call(wait: Any = wait) -> torch.Tensor:
            wait()
            return values.sum()

        assert count_operations(call).waits == 1


@pytest.mark.parametrize("name", EMBEDDINGS)
def test_few_labels_start_few_operations_and_wait_for_none(name: str) -> None:
    operations = operations_of(LabelEmbeddingHead(4, 10, **EMBEDDINGS[name]), rows=50)
    assert operations.started <= 130, operations.by_name
    assert operations.waits == 0


@pytest.mark.parametrize("name", ["compressed", "running", "rising-floor"])
def test_many_labels_start_few_operations_a_chunk_and_wait_for_none(name: str) -> None:
    rows, chunk = 64, 16
    head = many_labels(name, observe_rows=chunk, impl="chunked", chunk_rows=chunk)
    operations = operations_of(head, rows)
    chunks = rows // chunk + 1  # the last one is the observer's
    assert operations.started <= BESIDES + chunks * ONE_CHUNK, operations.by_name
    assert operations.waits == 0


@pytest.mark.parametrize("name", ["compressed", "running"])
def test_another_chunk_starts_no_more_than_its_share(name: str) -> None:
    counts = [
        operations_of(many_labels(name, observe_rows=16, impl="chunked", chunk_rows=16), rows).started
        for rows in (32, 64)
    ]
    assert counts[1] - counts[0] <= 2 * ONE_CHUNK


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_plain_heads_wait_for_nothing(smoothing: float) -> None:
    for labels in (10, MANY):
        operations = operations_of(PlainHead(4, labels, label_smoothing=smoothing), rows=300)
        assert operations.waits == 0
        assert operations.started <= BESIDES


def test_a_fixed_space_of_largest_entries_makes_no_targets_of_all_labels() -> None:
    """Neither for rows nor for distinct labels: the only tensors with an entry for every label are chunks of logits."""
    indices = (torch.arange(MANY).unsqueeze(1) + torch.arange(3)) % MANY
    space = LabelSpace.from_top_k(indices, torch.full((MANY, 3), 0.3))
    head = LabelEmbeddingHead(4, MANY, embedding=space, impl="chunked", chunk_rows=16)
    assert operations_of(head, 64).waits == 0
    sizes: list[int] = []

    class Sizes(Operations):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = super().__torch_dispatch__(func, types, args, kwargs)
            sizes.extend(one.numel() for one in [out] if isinstance(one, torch.Tensor) and one.dim() == 2)
            return out

    with Sizes():
        head(torch.randn(64, 4), torch.randint(MANY, (64,)))
    assert max(sizes) <= 16 * MANY
    assert sum(size == 16 * MANY for size in sizes) <= 4 * 8  # a few operations on each chunk of logits
