"""Run the benchmarks and print their tables:  python -m benchmarks [steps heads memory ...]

Each table gives ratios between methods that are measured in the same run, interleaved, best of several rounds. Run it
while the machine is idle.
"""

import argparse
import os
import platform
from pathlib import Path

import torch

from benchmarks import heads, memory, operations, steps, training_loop

TABLES = {
    "steps": (steps.measure, "Whole training step, batch 100, Adam, 10 labels"),
    "heads": (heads.measure, "Head alone, forward and backward, labels drawn by Zipf's law"),
    "operations": (operations.measure, "Operations started and waits of a call and its backward pass, off the CPU"),
    "loop": (training_loop.measure, "The lab's training loop against a bare one, MNIST's MLP, one update"),
    "memory": (memory.measure, "Peak memory of one forward and backward pass"),
}


def markdown(rows: list[dict[str, object]]) -> str:
    names = list(rows[0])
    lines = [names, ["---"] * len(names), *([str(row[name]) for name in names] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def machine() -> str:
    cpu = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), cpu)
    return f"{cpu}, {os.cpu_count()} cores, {torch.get_num_threads()} threads, torch {torch.__version__}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=f"of {', '.join(TABLES)}; all by default")
    parser.add_argument("--rounds", type=int, default=7, help="rounds of which the best counts (default 7)")
    options = parser.parse_args()
    unknown = set(options.tables) - set(TABLES)
    if unknown:
        parser.error(f"unknown table {min(unknown)!r}: choose from {', '.join(TABLES)}")
    load = os.getloadavg()[0]
    print(f"{machine()}; load before the run {load:.1f}")
    for name in options.tables or TABLES:
        measure, title = TABLES[name]
        print(f"\n{title} (`python -m benchmarks {name} --rounds {options.rounds}`)\n")
        print(markdown(measure(options.rounds)))


if __name__ == "__main__":
    main()
