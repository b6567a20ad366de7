"""Compare the ways to find the temperature by NLL and ECE on new inputs: CLINC150 with ten examples a label.

python -m benchmarks.calibration --data DIR/clinc150/data_full.json.gz --seeds 5

Trains the recipe `text-csv` with `data.max_per_label=10` and prints NLL and ECE on the test set for the predictor's raw
softmax and for temperatures fitted to:

- the observer on training inputs (`calibrate` without targets), or on the inputs of the dev set;
- a second observer, fitted to nine tenths of the training rows and evaluated on the rest;
- the labels of the training rows, of 150 rows of the dev set, or of the whole dev set (what the lab does).

Finished runs are kept in --out, so a stopped command continues when it is run again.
"""

import argparse
import itertools
import json
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labelemb.heads.base import Head
from labelemb.heads.calibration import agreeing_temperature, fit_temperature
from labelemb.lab.data import Examples, load_data
from labelemb.lab.recipes.recipe import Recipe, load_recipe
from labelemb.lab.runs.folder import keep_recipe
from labelemb.lab.runs.loop import train_run
from labelemb.lab.runs.messages import RunOptions
from labelemb.lab.runs.result import machine
from labelemb.lab.tasks.scores.classification import calibration_error, error_percent, mean_nll
from labelemb.lab.trained.model import TrainedModel
from labelemb.support.tensors import evaluating

FEW = 150
WAYS = {
    "raw": "none (raw)",
    "observer, training inputs": "observer, training inputs: `calibrate(hidden)`",
    "observer, dev inputs": "observer, inputs of the dev set",
    "observer anew, held-back rows": "another observer, training rows that it has not seen",
    "training labels": "labels of training rows",
    "few dev labels": f"labels of {FEW} rows of the dev set",
    "dev labels": "labels of the dev set (3,000): `calibrate(hidden, targets)`",
}
"""The ways by their short names."""
Scores = dict[str, dict[str, list[list[float]]]]
"""By method and way, for each seed: temperature, NLL, ECE."""
METHODS = (
    *("plain", "label-embedding", "label-embedding@clean-observer", "label-embedding@halves"),
    *("label-embedding@halves+clean-observer", "label-embedding@halves+no-cap", "label-embedding@rising-floor"),
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
        yield "observer, training inputs", agreeing_temperature(train[0], head.logits, observer)
        yield "observer, dev inputs", agreeing_temperature(dev[0], head.logits, observer)
        layer, held = observer_anew(*train, head.num_labels)
        yield "observer anew, held-back rows", agreeing_temperature(held, head.logits, layer)
    yield "training labels", fit_temperature(head.logits(train[0]), train[1])
    few = torch.randperm(len(dev[0]), generator=torch.Generator().manual_seed(0))[:FEW]
    yield "few dev labels", fit_temperature(head.logits(dev[0][few]), dev[1][few])
    yield "dev labels", fit_temperature(head.logits(dev[0]), dev[1])


@dataclass(frozen=True)
class Trained:
    """A trained head with hidden states and labels of the three sets."""

    head: Head
    train: tuple[Tensor, Tensor]
    dev: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]


def trained(recipe: Recipe, method: str, seed: int, data_path: Path, out: Path) -> Trained:
    train_run(recipe, method, seed, data_path, out, options=RunOptions(threads=1))
    model, data = TrainedModel(out), load_data(recipe, data_path, seed)
    assert data.dev is not None
    sets = ((hidden_states(model, part), part.targets) for part in (data.train, data.dev, data.test))
    return Trained(model.classifier.head, *sets)


def measure(run: Trained) -> Iterator[tuple[str, list[float]]]:
    """Temperature, NLL and ECE on the test set by each way."""
    hidden, targets = run.test
    with torch.no_grad():
        logits = run.head.logits(hidden)
    for way, temperature in temperatures(run.head, run.train, run.dev):
        scaled = logits / temperature
        yield way, [temperature, mean_nll(scaled, targets), calibration_error(scaled, targets)]


@torch.no_grad()
def observer_confidence(run: Trained) -> list[float]:
    """In percent: the observer's mean probability of its prediction on training and test rows, and its test error."""
    seen, new = run.head.observer(run.train[0]), run.head.observer(run.test[0])
    confidences = [100 * float(logits.softmax(-1).amax(-1).mean()) for logits in (seen, new)]
    return [*confidences, error_percent(new, run.test[1])]


def table(scores: Scores) -> str:
    """A row for each method and way, with means over the seeds."""
    lines = ["| method | temperature from | T | NLL | ECE | n |", "| --- | --- | --: | --: | --: | --: |"]
    for method, ways in scores.items():
        for way, rows in ways.items():
            t, nll, ece = (statistics.fmean(column) for column in zip(*rows, strict=True))
            lines.append(f"| `{method}` | {WAYS[way]} | {t:.2f} | {nll:.3f} | {ece:.2f} | {len(rows)} |")
    return "\n".join(lines)


def read_scores(out: Path) -> Scores:
    scores: Scores = json.loads((out / "scores.json").read_text())["temperature_nll_ece"]
    return scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--out", type=Path, default=Path("runs/calibration"), help="scores.json, and a folder a run")
    options = parser.parse_args()
    recipe = load_recipe("text-csv", ["data.max_per_label=10"])
    scores: Scores = {}
    confidences: dict[str, list[list[float]]] = {}
    for method, seed in itertools.product(options.methods.split(","), range(options.seeds)):
        run = trained(recipe, method, seed, options.data, options.out / method / f"seed-{seed}")
        for way, found in measure(run):
            scores.setdefault(method, {}).setdefault(way, []).append(found)
        if getattr(run.head, "observer", None) is not None:
            confidences.setdefault(method, []).append(observer_confidence(run))
    about = {"recipe": recipe.name, "machine": msgspec.to_builtins(machine()), "seeds": options.seeds}
    keep_recipe(options.out / "recipe.toml", recipe)
    found = {"temperature_nll_ece": scores, "observer_confidence_train_test_error": confidences}
    (options.out / "scores.json").write_text(json.dumps(about | found, indent=1) + "\n")
    print(table(scores))
    for method, rows in confidences.items():
        seen, new, wrong = (statistics.fmean(column) for column in zip(*rows, strict=True))
        print(f"observer of {method}: confidence {seen:.1f} on training, {new:.1f} on test; test error {wrong:.1f}")


if __name__ == "__main__":
    main()
