"""How many operations a call and its backward pass start on a device, and how often they wait for it.

Counted on a CPU with a dispatch mode, on the code path that a GPU takes. Views start nothing and do not count.
"""

import torch

from labelemb import LabelEmbeddingHead, PlainHead
from labelemb.heads.base import Head
from tests.helpers.operations import count_operations

SIZES = ((100, 500, 10), (1024, 64, 22_439))
"""Rows, features, labels. The number of features changes no count."""


def heads(d: int, m: int) -> dict[str, Head]:
    rank = {"embedding": "compressed", "rank": 100}
    found: dict[str, Head] = {"PlainHead": PlainHead(d, m), "default": LabelEmbeddingHead(d, m)}
    found["running"] = LabelEmbeddingHead(d, m, embedding="running")
    return found | {"compressed": LabelEmbeddingHead(d, m, **rank)}  # type: ignore[arg-type]  # options by name


def measure(rounds: int) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for n, d, m in SIZES:
        hidden, targets = torch.randn(n, d, requires_grad=True), torch.randint(m, (n,))
        for name, head in heads(d, m).items():

            def call(head: Head = head, hidden: torch.Tensor = hidden, targets: torch.Tensor = targets) -> torch.Tensor:
                head.zero_grad()
                hidden.grad = None
                return head(hidden, targets).loss

            found = count_operations(call)
            rows.append({"rows": n, "labels": m, "head": name, "started": found.started, "waits": found.waits})
    return rows
