"""Memory of each process when the labels are split over p processes:  python -m benchmarks.sharded

Spawns 1, 2 and 4 processes that take training steps together (Adam, so that parameters, gradients and two moments are
held) and prints for each the bytes of its parameters, and its peak resident memory minus that of a process that has
only loaded torch and joined the group. Linux only: the peak is read from /proc.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch.distributed.device_mesh import init_device_mesh

from benchmarks.__main__ import markdown
from benchmarks.memory import MEGABYTE, status
from benchmarks.naive import zipf_labels
from labelemb.heads.sharded import ShardedLabelEmbeddingHead

STEPS = 2  # the second has Adam's moments in memory


def one_process(rank: int, processes: int, folder: str, sizes: dict[str, int]) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=processes)
    mesh = init_device_mesh("cpu", (processes,))
    train(ShardedLabelEmbeddingHead(4, 2 * processes, mesh=mesh, rank=2), 8)  # the libraries' own buffers come first
    before = status("VmRSS")
    head = ShardedLabelEmbeddingHead(sizes["d"], sizes["labels"], mesh=mesh, rank=sizes["rank"])
    train(head, sizes["rows"])
    held = sum(parameter.to_local().nbytes for parameter in head.parameters())  # type: ignore[attr-defined]  # DTensors
    torch.save((held, status("VmHWM") - before), Path(folder) / f"{rank}.pt")
    dist.destroy_process_group()


def train(head: ShardedLabelEmbeddingHead, rows: int) -> None:
    optimizer = torch.optim.Adam(head.parameters())
    generator = torch.Generator().manual_seed(0)  # the same rows in all processes
    hidden = torch.randn(rows, head.in_features, generator=generator)
    targets = zipf_labels(rows, head.num_labels)
    for _ in range(STEPS):
        optimizer.zero_grad()
        head(hidden, targets).loss.backward()
        optimizer.step()


def measure(counts: list[int], sizes: dict[str, int]) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for processes in counts:
        with tempfile.TemporaryDirectory() as folder:
            multiprocessing.spawn(one_process, args=(processes, folder, sizes), nprocs=processes)
            found = [torch.load(Path(folder) / f"{rank}.pt") for rank in range(processes)]
        held, peak = (max(values) for values in zip(*found, strict=True))
        rows.append(
            {
                "processes": processes,
                "parameters MB": f"{held / MEGABYTE:.0f}",
                "peak MB": f"{peak / MEGABYTE:.0f}",
                "peak / parameters": f"{peak / held:.1f}",
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sharded", description=__doc__)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4], metavar="P")
    for name, default in (("rows", 64), ("d", 64), ("labels", 200_001), ("rank", 16)):
        parser.add_argument(f"--{name}", type=int, default=default, help=f"default {default}")
    options = vars(parser.parse_args())
    counts = options.pop("processes")
    print(", ".join(f"{name} {value:,}" for name, value in options.items()) + "; the largest of the processes")
    print()
    print(markdown(measure(counts, options)))


if __name__ == "__main__":
    main()
