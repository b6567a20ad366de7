"""Compare the ways to find the temperature by NLL and ECE on new inputs: CLINC150 with ten examples a label.

python -m benchmarks.calibration --data DIR/clinc150/data_full.json.gz --seeds 5

Trains the recipe `text-csv` with `data.max_per_label=10` and prints NLL and ECE on the test set for the predictor's raw
softmax and for temperatures fitted to:

- the observer on training inputs (`calibrate` without targets), or on the inputs of the dev set;
- a second observer, fitted to nine tenths of the training rows and evaluated on the rest;
- the labels of the training rows, of 150 rows of the dev set, or of the whole dev set (what the lab does).
"""

import argparse
import statistics
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labelemb.heads.base import Head
from labelemb.heads.calibration import agreeing_temperature, fit_temperature
from labelemb.lab.data import Examples, load_data
from labelemb.lab.recipes.recipe import load_recipe
from labelemb.lab.runs.loop import train_run
from labelemb.lab.runs.messages import RunOptions
from labelemb.lab.tasks.scores.classification import calibration_error, error_percent, mean_nll
from labelemb.lab.trained.model import TrainedModel
from labelemb.support.tensors import evaluating

WAYS = ("raw", "observer, training inputs", "observer, dev inputs", "observer anew, held-back rows", "training labels")
FEW = 150
METHODS = (
    *("plain", "label-smoothing", "label-embedding", "label-embedding@halves", "label-embedding@halves+no-cap"),
    *("label-embedding@clean-observer", "label-embedding@rising-floor"),
)


@torch.no_grad()
def hidden_states(model: TrainedModel, examples: Examples) -> Tensor:
    inputs, _ = examples.batch(torch.arange(len(examples)))
    with evaluating(model.classifier):
        return model.classifier.body(*(inputs if isinstance(inputs, tuple) else (inputs,)))


def observer_anew(hidden: Tensor, targets: Tensor, labels: int) -> tuple[nn.Linear, Tensor]:
    """A linear layer fitted to nine tenths of the rows, and the other rows."""
    order = torch.randperm(len(hidden), generator=torch.Generator().manual_seed(0))
    held, used = order[: len(order) // 10], order[len(order) // 10 :]
    torch.manual_seed(0)
    layer = nn.Linear(hidden.shape[1], labels)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.01)
    for _ in range(100):
        optimizer.zero_grad()
        F.cross_entropy(layer(hidden[used]), targets[used]).backward()
        optimizer.step()
    return layer, hidden[held]


def temperatures(head: Head, train: tuple[Tensor, Tensor], dev: tuple[Tensor, Tensor]) -> Iterator[tuple[str, float]]:
    """Each way by name, with the temperature that it finds."""
    yield "raw", 1.0
    observer = getattr(head, "observer", None)
    if observer is not None:
        yield WAYS[1], agreeing_temperature(train[0], head.logits, observer)
        yield WAYS[2], agreeing_temperature(dev[0], head.logits, observer)
        layer, held = observer_anew(*train, head.num_labels)
        yield WAYS[3], agreeing_temperature(held, head.logits, layer)
    yield WAYS[4], fit_temperature(head.logits(train[0]), train[1])
    few = torch.randperm(len(dev[0]), generator=torch.Generator().manual_seed(0))[:FEW]
    yield f"{FEW} dev labels", fit_temperature(head.logits(dev[0][few]), dev[1][few])
    yield "dev labels", fit_temperature(head.logits(dev[0]), dev[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--out", type=Path, default=Path("runs/calibration"))
    options = parser.parse_args()
    recipe = load_recipe("text-csv", ["data.max_per_label=10"])
    print("| method | temperature from | T | NLL | ECE | n |\n| --- | --- | --: | --: | --: | --: |", flush=True)
    for method in options.methods.split(","):
        found: dict[str, list[tuple[float, float, float]]] = {}
        confidences: list[tuple[float, float, float]] = []
        for seed in range(options.seeds):
            out = options.out / method / f"seed-{seed}"
            train_run(recipe, method, seed, options.data, out, options=RunOptions(threads=1))
            model, data = TrainedModel(out), load_data(recipe, options.data, seed)
            assert data.dev is not None
            train, dev, test = (
                (hidden_states(model, part), part.targets) for part in (data.train, data.dev, data.test)
            )
            head = model.classifier.head
            with torch.no_grad():
                logits = head.logits(test[0])
            for way, temperature in temperatures(head, train, dev):
                scaled = logits / temperature
                scores = temperature, mean_nll(scaled, test[1]), calibration_error(scaled, test[1])
                found.setdefault(way, []).append(scores)
            observer = getattr(head, "observer", None)
            if observer is not None:
                with torch.no_grad():
                    seen, new = observer(train[0]), observer(test[0])
                mean = float(new.softmax(-1).amax(-1).mean()) * 100
                confidences.append((float(seen.softmax(-1).amax(-1).mean()) * 100, mean, error_percent(new, test[1])))
        for way, rows in found.items():
            t, nll, ece = (statistics.fmean(column) for column in zip(*rows, strict=True))
            print(f"| {method} | {way} | {t:.2f} | {nll:.3f} | {ece:.2f} | {len(rows)} |", flush=True)
        if confidences:
            seen, new, wrong = (statistics.fmean(column) for column in zip(*confidences, strict=True))
            print(f"<!-- observer: confidence {seen:.1f} on training, {new:.1f} on test; test error {wrong:.1f} -->")


if __name__ == "__main__":
    main()
