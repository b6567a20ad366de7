"""When targets should be soft: four schedules, with learned and with even targets, on CLINC150.

python -m benchmarks.schedules --data DIR/clinc150/data_full.json.gz --seeds 5
python -m benchmarks.schedules --data DIR/clinc150/data_full.json.gz --per-label 0 --seeds 2  # all examples

Trains the recipe `text-csv`. The soft part of a target weighs at most 0.9, and a schedule says what share of the target
the true label has at least at progress t in [0, 1] of the training:

    falling softness     0.9 t          `Objective.fading()`, and label smoothing with the same schedule
    constant             0.45
    rising softness      0.9 (1 - t)    the direction of PS-KD
    on, then off         0, from t = 0.5 on 1    two-stage label smoothing (TSLA)

The soft part is a running mean of the observer's predictions with a prior of one row for each label, the same without
a prior, or even. Finished runs are kept in --out, so a stopped command continues when it is run again.
"""

import argparse
import itertools
import json
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from labelemb import LabelEmbeddingHead, Objective, PlainHead
from labelemb.heads import registry
from labelemb.heads.base import Head
from labelemb.heads.clock import Clock, Moment
from labelemb.lab.comparison.tables import markdown
from labelemb.lab.recipes.recipe import load_recipe
from labelemb.lab.runs.folder import keep_recipe
from labelemb.lab.runs.loop import train_run
from labelemb.lab.runs.messages import RunOptions
from labelemb.lab.runs.result import machine

Schedule = Callable[[Any], Any]
Scores = dict[str, dict[str, list[float]]]
"""Test errors by schedule and kind of soft target, one a seed."""

SCHEDULES: dict[str, Schedule] = {
    "falling": lambda t: 0.9 * t,
    "constant": lambda t: 0.45 + 0 * t,
    "rising": lambda t: 0.9 * (1 - t),
    "on-then-off": lambda t: 1.0 * (t >= 0.5),
}
TARGETS = {"prior": "learned, with a prior", "no-prior": "learned, without", "even": "even"}
SOFT_WEIGHT = 0.9


@dataclass(frozen=True)
class ScheduledClock(Clock):
    """A clock that shows the least share of the true label in place of the progress; the mass floor must be 1."""

    schedule: Schedule = SCHEDULES["falling"]

    def read(self, given: Any, updates: Any, training: bool) -> Moment:
        moment = super().read(given, updates, training)
        return moment._replace(progress=self.schedule(moment.progress))


def make_head(
    target: str, schedule: Schedule, in_features: int, num_labels: int, *, rows_per_epoch: int, total_steps: int
) -> Head:
    head: Head
    if target == "even":
        head = PlainHead(in_features, num_labels, label_smoothing=SOFT_WEIGHT, mass_floor=1.0, total_steps=total_steps)
    else:
        head = LabelEmbeddingHead(
            in_features,
            num_labels,
            embedding="running",
            prior_rows=num_labels if target == "prior" else 0,
            rows_per_epoch=rows_per_epoch,
            objective=Objective(soft_weight=SOFT_WEIGHT, mass_floor=1.0),
            total_steps=total_steps,
        )
    head.clock = ScheduledClock(mass_floor=1.0, total_steps=total_steps, schedule=schedule)
    return head


def table(scores: Scores) -> str:
    """Mean and spread of the test errors, a schedule a row and a kind of soft target a column."""
    return markdown(
        ["softness", *TARGETS.values()],
        [[name, *(mean_and_spread(scores[name][target]) for target in TARGETS)] for name in SCHEDULES],
    )


def mean_and_spread(errors: list[float]) -> str:
    spread = f" ± {statistics.stdev(errors):.2f}" if len(errors) > 1 else ""
    return f"{statistics.fmean(errors):.2f}{spread}"


def read_scores(out: Path) -> Scores:
    scores: Scores = json.loads((out / "scores.json").read_text())["test_error"]
    return scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--per-label", type=int, default=10, help="examples of each label, 0 for all (default: 10)")
    parser.add_argument("--out", type=Path, default=Path("runs/schedules"), help="scores.json, and a folder a run")
    options = parser.parse_args()
    recipe = load_recipe("text-csv", [f"data.max_per_label={options.per_label}"])
    scores: Scores = {name: {target: [] for target in TARGETS} for name in SCHEDULES}
    for (name, schedule), target in itertools.product(SCHEDULES.items(), TARGETS):
        method = f"{target}-{name}"
        registry.register(method, partial(make_head, target, schedule))
        for seed in range(options.seeds):
            folder = options.out / method / f"seed-{seed}"
            run = train_run(recipe, method, seed, options.data, folder, options=RunOptions(threads=1))
            scores[name][target].append(run.test_error)
    about = {"recipe": recipe.name, "machine": msgspec.to_builtins(machine()), "seeds": options.seeds}
    keep_recipe(options.out / "recipe.toml", recipe)
    (options.out / "scores.json").write_text(json.dumps(about | {"test_error": scores}, indent=1) + "\n")
    print(f"Test error in percent, {options.seeds} seeds:\n")
    print(table(scores))


if __name__ == "__main__":
    main()
