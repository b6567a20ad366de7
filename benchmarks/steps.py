"""A whole training step of the paper's MNIST networks: label embedding heads against `PlainHead` and bare torch."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.timing import best_seconds
from labelemb import LabelEmbeddingHead, Objective, PlainHead

BATCH = 100


def mlp() -> tuple[nn.Module, int]:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 500), nn.ReLU(), nn.Linear(500, 500), nn.ReLU()), 500


def cnn() -> tuple[nn.Module, int]:
    body = nn.Sequential(
        nn.Conv2d(1, 32, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(3136, 1024),
        nn.ReLU(),
    )
    return body, 1024


class TorchHead(nn.Linear):
    """What stands in a plain PyTorch script: a linear layer and F.cross_entropy."""

    def loss(self, hidden: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(self(hidden), targets)


def training_step(
    make_body: Callable[[], tuple[nn.Module, int]], head_name: str, compiled: bool = False
) -> Callable[[], None]:
    torch.manual_seed(0)
    body, features = make_body()
    if head_name == "torch":
        head: nn.Module = TorchHead(features, 10)
    elif head_name == "plain":
        head = PlainHead(features, 10)
    elif head_name == "rising floor":
        head = LabelEmbeddingHead(
            features, 10, embedding="running", objective=Objective.rising_floor(), total_steps=8250
        )
    else:
        head = LabelEmbeddingHead(features, 10)
    optimizer = torch.optim.Adam([*body.parameters(), *head.parameters()], lr=1e-3)
    images, targets = torch.rand(BATCH, 1, 28, 28), torch.randint(10, (BATCH,))

    def loss_of(images: Tensor, targets: Tensor) -> Tensor:
        hidden = body(images)
        return head.loss(hidden, targets) if isinstance(head, TorchHead) else head(hidden, targets).loss

    call = torch.compile(loss_of, fullgraph=True, dynamic=False) if compiled else loss_of

    def step() -> None:
        optimizer.zero_grad()
        loss: Tensor = call(images, targets)
        loss.backward()
        optimizer.step()

    return step


def measure(rounds: int) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    names = ("torch", "plain", "label embedding", "rising floor")
    for network, make_body, repeats, compiled in (
        ("MLP 784-500-500", mlp, 20, False),
        ("MLP 784-500-500, compiled up to the loss", mlp, 20, True),
        ("CNN", cnn, 2, False),
    ):
        sides = {name: training_step(make_body, name, compiled) for name in names}
        seconds = best_seconds(sides, rounds=rounds, repeats=repeats)
        for name in names[1:]:
            rows.append(
                {
                    "step of": network,
                    "head": "PlainHead" if name == "plain" else name,
                    "ms": f"{1e3 * seconds[name]:.2f}",
                    "bare torch ms": f"{1e3 * seconds['torch']:.2f}",
                    "ratio": f"{seconds[name] / seconds['torch']:.3f}",
                }
            )
    return rows
