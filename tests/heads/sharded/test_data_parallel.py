"""Rows shared out over processes: DDP and FSDP2 train what one process trains on the whole batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from labelemb import HeadOutput, LabelEmbeddingHead, Objective
from tests.helpers.cases import Case
from tests.helpers.processes import run_in_processes

STEPS, ROWS, FEATURES, LABELS = 4, 8, 3, 5
SHARES = [slice(0, 3), slice(3, 8)]  # unequal, and ignored rows make them more so


@dataclass(frozen=True)
class Training:
    embedding: str
    impl: str
    chunk_rows: int | None
    objective: str

    def case(self) -> Case:
        objective = {
            # the gates open and the soft term starts on the way
            "gated": Objective(soft_start=2, alpha=0.3),
            "floor": Objective.rising_floor(),
        }[self.objective]
        return Case(objective, self.embedding, self.impl, self.chunk_rows, in_features=FEATURES, num_labels=LABELS)


EMBEDDINGS = ["dense", "compressed", "compressed-bias", "running", "fixed"]
TRAININGS = [
    *(Training(embedding, "chunked", 2, "gated") for embedding in EMBEDDINGS),
    *(Training(embedding, "auto", None, "gated") for embedding in EMBEDDINGS),
    *(Training(embedding, "autograd", None, "gated") for embedding in ("dense", "running")),
    *(Training(embedding, "chunked", 2, "floor") for embedding in ("compressed", "running")),
]


class Model(nn.Module):
    def __init__(self, head: LabelEmbeddingHead) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, FEATURES), nn.Tanh()).double()
        self.head = head

    def forward(self, inputs: Tensor, targets: Tensor, **keywords: Any) -> HeadOutput:
        return self.head(self.body(inputs), targets, **keywords)


def batches() -> Iterator[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(7)
    for step in range(STEPS):
        inputs = torch.randn(ROWS, 4, generator=generator, dtype=torch.float64)
        targets = torch.randint(LABELS, (ROWS,), generator=generator)
        targets[:2] = -100
        if step == 1:
            targets[2] = -100  # nothing is left for the first process
        yield inputs, targets


def make_model(training: Training) -> Model:
    head = training.case().head()
    torch.manual_seed(1)
    return Model(head)


def train(model: nn.Module, share: slice, processes: int) -> list[Tensor]:
    """The loss of each step. Gradients are averaged over processes, so each divides by its part of the valid rows."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.5)
    losses = []
    for step, (inputs, targets) in enumerate(batches()):
        items = int((targets != -100).sum())
        output = model(inputs[share], targets[share], num_items=items / processes, progress=step / STEPS)
        optimizer.zero_grad()
        output.loss.backward()
        optimizer.step()
        losses.append(output.loss.detach())
    return losses


def state_of(model: nn.Module) -> dict[str, Tensor]:
    state = model.state_dict().items()
    return {name: (v.full_tensor() if isinstance(v, DTensor) else v).detach().clone() for name, v in state}


def in_each_process() -> dict[str, Any]:
    share, results = SHARES[dist.get_rank()], {}
    for training in TRAININGS:
        data_parallel = DistributedDataParallel(make_model(training))
        losses = train(data_parallel, share, 2)
        results[f"DDP {training}"] = torch.stack(losses), state_of(data_parallel.module)

        sharded = make_model(training)
        fully_shard(sharded.head)
        fully_shard(sharded)
        losses = train(sharded, share, 2)
        results[f"FSDP2 {training}"] = torch.stack(losses), state_of(sharded)
    return results


def test_two_processes_train_what_one_process_trains(tmp_path: Path, subtests: pytest.Subtests) -> None:
    """Losses, parameters, counts of right observations, update counters and running tables after several updates."""
    results = run_in_processes(2, in_each_process, tmp_path)
    for training in TRAININGS:
        model = make_model(training)
        losses = torch.stack(train(model, slice(None), 1))
        for kind in ("DDP", "FSDP2"):
            with subtests.test(kind, training=training):
                found = [result[f"{kind} {training}"] for result in results]
                torch.testing.assert_close(sum(losses for losses, _ in found) / 2, losses, rtol=1e-9, atol=1e-11)
                for _, state in found:
                    assert_same_state(state, model.state_dict())


def assert_same_state(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-8, atol=1e-10, msg=lambda m, n=name: f"{n}: {m}")
