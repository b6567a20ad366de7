"""Show that the paper's networks run at full size: the time of an update with plain and with label embedding.

    python -m benchmarks.full_size [--updates 2] [--recipes cifar10-resnet8,cifar100-resnet18]

The images are random, in CIFAR's formats: the time of an update does not depend on what they show.
"""

import argparse
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import torch

from benchmarks.__main__ import machine, markdown
from benchmarks.timing import best_seconds
from benchmarks.training_loop import make_loop

METHODS = ("plain", "label-embedding")


def measure(recipes: list[str], updates: int) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        write_cifar(Path(folder))
        for recipe in recipes:
            loops = {method: make_loop(recipe, method, Path(folder)) for method in METHODS}
            batches = {method: loop.run.shuffled()[0] for method, loop in loops.items()}
            sides = {method: partial(loop.update, batches[method]) for method, loop in loops.items()}
            seconds = best_seconds(sides, rounds=updates)
            for method, loop in loops.items():
                loop.run.log.check(updates)  # the losses are finite
                rows.append(
                    {
                        "recipe": recipe,
                        "method": method,
                        "parameters": f"{sum(p.numel() for p in loop.run.model.parameters()):,}",
                        "batch": len(batches[method]),
                        "s an update": f"{seconds[method]:.2f}",
                        "ratio": f"{seconds[method] / seconds['plain']:.3f}",
                    }
                )
    return rows


def write_cifar(folder: Path) -> None:
    """CIFAR-10 (one label byte) and CIFAR-100 (coarse and fine label bytes), each of a few hundred records."""
    random = np.random.default_rng(0)
    for name, labels, names in (
        ("cifar-10-batches-bin", 1, [*(f"data_batch_{k}.bin" for k in range(1, 6)), "test_batch.bin"]),
        ("cifar-100-binary", 2, ["train.bin", "test.bin"]),
    ):
        (folder / name).mkdir()
        for file in names:
            records = random.integers(0, 256, (200, labels + 3072))
            fine = np.arange(200) % (10 if labels == 1 else 100)
            records[:, labels - 1] = fine
            if labels == 2:
                records[:, 0] = fine // 5
            (folder / name / file).write_bytes(records.astype(np.uint8).tobytes())
    (folder / "cifar-10-batches-bin/batches.meta.txt").write_text("".join(f"label{k}\n" for k in range(10)))
    (folder / "cifar-100-binary/fine_label_names.txt").write_text("".join(f"fine{k}\n" for k in range(100)))
    (folder / "cifar-100-binary/coarse_label_names.txt").write_text("".join(f"coarse{k}\n" for k in range(20)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--updates", type=int, default=2, help="timed updates of each side, of which the best counts (2)"
    )
    parser.add_argument("--recipes", default="cifar10-resnet8,cifar100-resnet18")
    options = parser.parse_args()
    torch.set_num_threads(2)
    print(machine() + "\n")
    print(markdown(measure(options.recipes.split(","), options.updates)))


if __name__ == "__main__":
    main()
