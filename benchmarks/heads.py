"""Forward and backward of the head alone, for many labels, against the naive loss and the matrix-product floor.

The floor. With N rows, d features, m labels, U distinct labels in the batch and rank r, these products cannot be
avoided: z1 = h W1 (2 N d m operations), its two gradients (4 N d m), z2 = h W2 (2 N d m) and one gradient, since h is
stopped (2 N d m): 10 N d m. The embedding's rows of the distinct labels cost 2 U r m and their two gradients 4 U r m.
The floor is (10 N d m + 6 U r m) operations at the speed that torch.mm reaches in the same run on z1 = h W1.
"""

from collections.abc import Callable

import torch
from torch import nn

from benchmarks.naive import NaiveHead, zipf_labels
from benchmarks.timing import best_seconds
from labelemb import LabelEmbeddingHead

SIZES = ((1600, 512, 22_439, 512), (1024, 512, 50_000, 100))  # rows, features, labels, rank


def head_call(head: nn.Module, hidden: torch.Tensor, targets: torch.Tensor) -> Callable[[], None]:
    def call() -> None:
        for parameter in head.parameters():
            parameter.grad = None
        inputs = hidden.clone().requires_grad_()
        out = head(inputs, targets)
        (out if isinstance(out, torch.Tensor) else out.loss).backward()

    return call


def measure(rounds: int) -> list[dict[str, object]]:
    rows = []
    for n, d, m, rank in SIZES:
        torch.manual_seed(0)
        hidden, targets = torch.randn(n, d), zipf_labels(n, m)
        distinct = len(targets.unique())
        chunked = LabelEmbeddingHead(d, m, embedding="compressed", rank=rank)
        naive = NaiveHead(d, m, rank)
        naive.load_state_dict({name: chunked.state_dict()[name] for name in naive.state_dict()})
        weight, product = chunked.predictor.weight.detach(), torch.empty(n, m)
        sides = {
            "chunked": head_call(chunked, hidden, targets),
            "naive": head_call(naive, hidden, targets),
            "mm": lambda h=hidden, w=weight, out=product: torch.mm(h, w.T, out=out),
        }
        seconds = best_seconds(sides, rounds=rounds)
        speed = 2 * n * d * m / seconds["mm"]
        floor = (10 * n * d * m + 6 * distinct * rank * m) / speed
        rows.append(
            {
                "rows": n,
                "d": d,
                "labels": m,
                "rank": rank,
                "distinct": distinct,
                "chunked s": f"{seconds['chunked']:.3f}",
                "naive s": f"{seconds['naive']:.3f}",
                "naive / chunked": f"{seconds['naive'] / seconds['chunked']:.2f}",
                "floor s": f"{floor:.3f}",
                "chunked / floor": f"{seconds['chunked'] / floor:.2f}",
                "torch.mm GFLOP/s": f"{speed / 1e9:.0f}",
            }
        )
    return rows
