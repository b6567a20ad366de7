"""Forward and backward of the head alone, for many labels, compared with `F.cross_entropy(F.linear(...))`.

The bound is the ratio that the matrix products alone would have. With N rows of which O are observed, d features and m
labels, cross entropy needs 6 N d m operations: the logits and their two gradients. The observer adds 4 O d m (no
gradient flows into h). A compressed embedding of rank r, with U distinct labels in the batch and V among the observed
rows, adds 2 U r m for the targets and 6 V r m to learn. The bound is the sum divided by 6 N d m. Softmaxes, tables and
copies cost the rest.

The embedding learns only from rows that the observer gets right. Here it gets every row right, which is the most work;
"none right" is the same head with an observer that is wrong about every row, as at the start of training.
"""

from collections.abc import Callable

import torch
from torch import nn

from benchmarks.memory import LinearCrossEntropy
from benchmarks.naive import make_right, rows_of_labels, zipf_labels
from benchmarks.timing import best_seconds
from labelemb import LabelEmbeddingHead, PlainHead

SIZES = ((1600, 512, 22_439), (1024, 512, 50_000), (64, 256, 100_000), (512, 256, 100_000), (512, 128, 1_000_000))
"""Rows, features, labels."""
RANK = 100
MOST_LOGITS = 1 << 28
"""Beyond this cross entropy with all logits at once takes several GB: the chunked `PlainHead` stands in."""


def head_call(head: nn.Module, hidden: torch.Tensor, targets: torch.Tensor) -> Callable[[], None]:
    def call() -> None:
        for parameter in head.parameters():
            parameter.grad = None
        inputs = hidden.clone().requires_grad_()
        out = head(inputs, targets)
        (out if isinstance(out, torch.Tensor) else out.loss).backward()

    return call


def measure(rounds: int) -> list[dict[str, object]]:
    return [_measure_size(*size, rounds) for size in SIZES]


def _measure_size(n: int, d: int, m: int, rounds: int) -> dict[str, object]:
    torch.manual_seed(0)
    targets = zipf_labels(n, m)
    hidden = rows_of_labels(targets, d)
    default = LabelEmbeddingHead(d, m)
    heads: dict[str, nn.Module] = {"PlainHead": PlainHead(d, m), "default": default}
    if n * m <= MOST_LOGITS:
        heads["cross entropy"] = LinearCrossEntropy(d, m)
        heads["compressed"] = LabelEmbeddingHead(d, m, embedding="compressed", rank=RANK)
    for head in heads.values():
        if isinstance(head, LabelEmbeddingHead) and head.observer is not None:
            make_right(head.observer, hidden, targets)
    sides = {name: head_call(head, hidden, targets) for name, head in heads.items()}
    sides["none right"] = head_call(default, hidden, m - 1 - targets)
    seconds = best_seconds(sides, rounds=rounds)
    base = "cross entropy" if "cross entropy" in heads else "PlainHead"
    observed = min(n, default.observe_rows or n)
    products = 6 * n * d * m + 4 * observed * d * m
    distinct = len(targets.unique())
    learned = 2 * distinct * RANK * m + 6 * min(distinct, observed) * RANK * m

    def ratio(name: str) -> str:
        return f"{seconds[name] / seconds[base]:.2f}" if name in seconds else "-"

    return {
        "rows": n,
        "d": d,
        "labels": m,
        "observed": observed,
        "against": base,
        "its seconds": f"{seconds[base]:.3f}",
        "PlainHead": ratio("PlainHead"),
        "default": ratio("default"),
        "none right": ratio("none right"),
        "bound": f"{products / (6 * n * d * m):.2f}",
        f"compressed, rank {RANK}": ratio("compressed"),
        "its bound": f"{(products + learned) / (6 * n * d * m):.2f}" if "compressed" in heads else "-",
    }
