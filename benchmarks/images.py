"""Time of an update of the image networks by memory layout and number format, on one CPU thread.

    python -m benchmarks.images [--rounds 5]

The lab uses the memory layout `channels_last`; "channels first" is torch's default layout. bf16-mixed is the flag
`--precision bf16-mixed`, which is faster on processors with bf16 instructions.
"""

import argparse
import tempfile
from functools import partial
from pathlib import Path

import torch

from benchmarks.__main__ import machine, markdown
from benchmarks.full_size import write_cifar
from benchmarks.timing import best_seconds
from benchmarks.training_loop import make_loop, write_mnist

SIDES = {
    "float32, channels first": ("32", torch.contiguous_format),
    "float32": ("32", torch.channels_last),
    "bf16-mixed": ("bf16-mixed", torch.channels_last),
}
RECIPES = ("mnist-cnn", "cifar10-small")
UPDATES = 3


def measure(rounds: int) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        write_mnist(Path(folder))
        write_cifar(Path(folder))
        for recipe in RECIPES:
            sides = {}
            for name, (precision, layout) in SIDES.items():
                loop = make_loop(recipe, "label-embedding", Path(folder), precision)
                loop.run.classifier.body.to(memory_format=layout)
                sides[name] = partial(loop.update, loop.run.shuffled()[0])
            seconds = best_seconds(sides, rounds=rounds, repeats=UPDATES)
            before = seconds["float32, channels first"]
            rows += [
                {"recipe": recipe, "layout and format": name, "ms an update": f"{1000 * found:.1f}"}
                | {"faster": f"{before / found:.2f}x"}
                for name, found in seconds.items()
            ]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="rounds of which the best counts (5)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(machine() + "\n")
    print(markdown(measure(options.rounds)))


if __name__ == "__main__":
    main()
