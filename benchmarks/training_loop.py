"""Time of the lab's training loop compared with a bare PyTorch loop over the same model, data and optimiser.

The lab's loop adds device and precision handling, statistics for the metrics, and after each update the checks whether
to evaluate, report, save or stop. Evaluations and checkpoints are left out, because a bare loop needs them as well. The
target is at most 5 % more time on the MLP of the paper's first experiment. `python -m benchmarks.training_loop`
"""

import argparse
import gzip
import tempfile
from pathlib import Path

import numpy as np
import torch

from benchmarks.timing import best_seconds
from labelemb.lab.data import load_data
from labelemb.lab.methods.method import parse_method
from labelemb.lab.recipes.recipe import load_recipe
from labelemb.lab.runs.engine import make_fabric, make_optimizer
from labelemb.lab.runs.folder import RunFolder
from labelemb.lab.runs.loop import Loop
from labelemb.lab.runs.messages import RunOptions, ignore
from labelemb.lab.runs.state import Run
from labelemb.support.interrupts import StopRequests

UPDATES = 50


def measure(rounds: int = 7) -> list[dict[str, object]]:
    """One row a method: milliseconds of an update in a bare loop, and in the lab's."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        write_mnist(path)
        return [_measure_method(method, path, rounds) for method in ("plain", "label-embedding")]


def _measure_method(method: str, folder: Path, rounds: int) -> dict[str, object]:
    bare, loop = _make_run("mnist-mlp", method, folder), make_loop("mnist-mlp", method, folder)
    optimizer = make_optimizer(bare.settings, bare.classifier.body, bare.classifier.head, embedding_lr=None)

    def bare_updates() -> None:
        for step, index in enumerate(bare.shuffled()[:UPDATES]):
            inputs, targets = bare.data.train.batch(index)
            out = bare.classifier.head(bare.classifier.body(*inputs), targets, progress=step / bare.total_steps)
            out.loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    def lab_updates() -> None:
        run = loop.run
        run.batch = 0
        for index in run.shuffled()[:UPDATES]:
            loop.update(index)
            run.batch += 1
            if loop._pause_is_due():
                loop.pause()
        run.log.take()

    seconds = best_seconds({"bare": bare_updates, "lab": lab_updates}, rounds=rounds)
    return {
        "method": method,
        "bare loop, ms an update": f"{1000 * seconds['bare'] / UPDATES:.3f}",
        "lab, ms an update": f"{1000 * seconds['lab'] / UPDATES:.3f}",
        "ratio": f"{seconds['lab'] / seconds['bare']:.3f}",
    }


def _make_run(recipe_name: str, method: str, folder: Path, precision: str = "32") -> Run:
    recipe = load_recipe(recipe_name, ["train.device=cpu", f"train.precision={precision}"])
    data = load_data(recipe, folder, seed=0)
    fabric = make_fabric(recipe.train)
    return Run(fabric, recipe, parse_method(method), 0, data, RunFolder(folder), RunOptions())


def make_loop(recipe_name: str, method: str, folder: Path, precision: str = "32") -> Loop:
    """A recipe's loop that only updates: no evaluation comes between."""
    loop = Loop(_make_run(recipe_name, method, folder, precision), StopRequests(enabled=False), report=ignore)
    loop.evaluation_points = set()
    loop.run.model.train()
    return loop


def write_mnist(folder: Path) -> None:
    """Random images in MNIST's format: the time of an update does not depend on what they show."""
    random = np.random.default_rng(0)
    for name, count in (("train", 5000 + 100 * UPDATES), ("t10k", 100)):
        for kind, values in (
            ("images-idx3", random.integers(0, 256, (count, 28, 28))),
            ("labels-idx1", np.arange(count) % 10),
        ):
            header = bytes([0, 0, 8, values.ndim]) + np.array(values.shape, dtype=">u4").tobytes()
            content = gzip.compress(header + values.astype(np.uint8).tobytes(), compresslevel=1)
            (folder / f"{name}-{kind}-ubyte.gz").write_bytes(content)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="rounds of which the best counts (7)")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads (1)")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    for row in measure(options.rounds):
        print("  ".join(f"{name}: {value}" for name, value in row.items()))


if __name__ == "__main__":
    main()
