"""Peak memory of one forward and backward pass, each head in its own process.

"Extra" is the peak minus what the process held before the pass, minus the gradients of the parameters and of the hidden
states: the memory of the computation itself, without a head's parameters and tables. The observer is right about every
row, so the embedding learns from all of them: the most work. Linux only: the peak is read from /proc.
"""

import subprocess
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.naive import NaiveHead, make_right, rows_of_labels, zipf_labels
from labelemb import LabelEmbeddingHead, PlainHead

MEGABYTE = 1024**2
KINDS = ("PlainHead", "default", "compressed")


class LinearCrossEntropy(nn.Linear):
    """F.cross_entropy(F.linear(...)): what a plain model needs."""

    def forward(self, hidden: Tensor, targets: Tensor) -> Tensor:  # type: ignore[override]  # a loss needs targets
        return F.cross_entropy(super().forward(hidden), targets)


def make_head(kind: str, d: int, m: int, rank: int) -> nn.Module:
    if kind == "naive":
        return NaiveHead(d, m, rank)
    if kind == "cross entropy":
        return LinearCrossEntropy(d, m)
    if kind == "PlainHead":
        return PlainHead(d, m)
    if kind == "default":
        return LabelEmbeddingHead(d, m)
    return LabelEmbeddingHead(d, m, embedding="compressed", rank=rank)


def status(field: str) -> int:
    """A line of this process's status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) * 1024


def one_pass(kind: str, n: int, d: int, m: int, rank: int) -> None:
    """Child process: prints extra bytes and peak resident bytes."""
    torch.manual_seed(0)
    head = make_head(kind, d, m, rank)
    targets = zipf_labels(n, m)
    hidden = rows_of_labels(targets, d).requires_grad_()
    if isinstance(head, LabelEmbeddingHead) and head.observer is not None:
        make_right(head.observer, hidden, targets)
    torch.randn(64, 64) @ torch.randn(64, 64)  # the libraries' own buffers come first
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before = status("VmRSS")
    out = head(hidden, targets)
    (out if isinstance(out, Tensor) else out.loss).backward()
    gradients = sum(p.grad.nbytes for p in [hidden, *head.parameters()] if p.grad is not None)
    print(status("VmHWM") - before - gradients, status("VmHWM"))


def peak(kind: str, n: int, d: int, m: int, rank: int) -> tuple[int, int]:
    command = [sys.executable, "-m", "benchmarks.memory", kind, *map(str, (n, d, m, rank))]
    extra, resident = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return int(extra), int(resident)


def measure(rounds: int) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for n, d, m, rank in ((4096, 512, 50_000, 100), (512, 256, 100_000, 100), (64, 256, 100_000, 100)):
        found = {kind: peak(kind, n, d, m, rank) for kind in ("cross entropy", *KINDS, "naive")}
        base = found["cross entropy"][0]
        rows += [_row(kind, n, d, m, rank, *found[kind], f"{found[kind][0] / max(base, 1):.2f}") for kind in found]
    for kind in KINDS:
        rows.append(_row(kind, 512, 128, 1_000_000, 32, *peak(kind, 512, 128, 1_000_000, 32), "-"))
    return rows


def _row(kind: str, n: int, d: int, m: int, rank: int, extra: int, resident: int, share: str) -> dict[str, object]:
    return {
        "head": kind,
        "rows": n,
        "d": d,
        "labels": m,
        "rank": rank,
        "extra MB": f"{extra / MEGABYTE:.0f}",
        "of cross entropy": share,
        "peak resident MB": f"{resident / MEGABYTE:.0f}",
    }


if __name__ == "__main__":
    one_pass(sys.argv[1], *map(int, sys.argv[2:]))
