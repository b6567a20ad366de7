"""Time of a whole training step of the paper's MNIST networks, with the library's heads and in bare torch."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.timing import best_seconds
from labelemb.heads import registry
from labelemb.losses.objective import Objective

BATCH = 100
LABELS = 10
UPDATES = 8250
"""Of the paper's training, which a rising floor must know."""

METHODS: dict[str, tuple[str, dict[str, object]]] = {
    "PlainHead": ("plain", {}),
    "label embedding": ("label-embedding", {}),
    "label embedding, dense": ("label-embedding", {"embedding": "dense"}),
    "label embedding, rising floor": (
        "label-embedding",
        {"embedding": "running", "objective": Objective.rising_floor()},
    ),
    "label embedding, authors": ("label-embedding", {"embedding": "dense", "objective": Objective.authors_vision()}),
    "label embedding, running mean": ("label-embedding", {"embedding": "running"}),
    "label embedding, fading": (
        "label-embedding",
        {"embedding": "running", "prior_rows": LABELS, "objective": Objective.fading()},
    ),
    "label smoothing": ("label-smoothing", {}),
    "label smoothing, fading": ("label-smoothing", {"label_smoothing": 0.9, "mass_floor": 0.9}),
    "online smoothing": ("online-smoothing", {}),
    "confidence penalty": ("confidence-penalty", {}),
    "teacher-free": ("teacher-free", {}),
}
"""A method and its options by the name in the table."""
OURS = ("PlainHead", "label embedding", "label embedding, dense")


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
        head: nn.Module = TorchHead(features, LABELS)
    else:
        method, options = METHODS[head_name]
        head = registry.make(method, features, LABELS, rows_per_epoch=BATCH * 550, total_steps=UPDATES, **options)
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
    for network, make_body, repeats, compiled, heads in (
        ("MLP 784-500-500", mlp, 20, False, tuple(METHODS)),
        ("MLP 784-500-500, compiled up to the loss", mlp, 20, True, OURS),
        ("CNN", cnn, 2, False, OURS),
    ):
        names = ("torch", *heads)
        sides = {name: training_step(make_body, name, compiled) for name in names}
        seconds = best_seconds(sides, rounds=rounds, repeats=repeats)
        for name in names[1:]:
            rows.append(
                {
                    "step of": network,
                    "head": name,
                    "ms": f"{1e3 * seconds[name]:.2f}",
                    "bare torch ms": f"{1e3 * seconds['torch']:.2f}",
                    "ratio": f"{seconds[name] / seconds['torch']:.3f}",
                }
            )
    return rows
