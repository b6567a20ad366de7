"""Runs of a second, and how to tell whether two of them are the same."""

import json
import signal
from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors.torch import load_file

from labelemb.lab.methods.method import METHOD_NAMES, parse_method
from labelemb.lab.recipes.recipe import Recipe, load_recipe
from labelemb.lab.runs.loop import train_run
from labelemb.lab.runs.messages import Progress, RunOptions
from labelemb.lab.tasks.classification import ClassificationResult
from labelemb.lab.tasks.records import RunResult
from labelemb.support.interrupts import StopRequests

TIMES = ("seconds", "seconds_per_epoch")
METHODS_OF_DATA_ALONE = [name for name in METHOD_NAMES if name != "reused-labels"]
"""Those that need no labels of an earlier training."""


def quick_recipe(*overrides: str) -> Recipe:
    """The digits with a small body and three epochs of ten updates."""
    return load_recipe("digits", ["train.epochs=3", "body.hidden=[16]", "train.lr=0.01", *overrides])


def quick_run(
    out: Path, recipe: Recipe | None = None, method: str = "label-embedding", seed: int = 0, **arguments: Any
) -> RunResult:
    return train_run(recipe or quick_recipe(), parse_method(method), seed, None, out, **arguments)


def made_result(**values: Any) -> RunResult:
    """The result of a classification run that never was, with some values given."""
    given = {
        **{"recipe": "hand", "fingerprint": "f", "version": "1", "method": "plain", "seed": 0, "test_error": 1.0},
        **{"final_error": 1.0, "curve": [], "epochs": 1, "steps": 1, "seconds_per_epoch": 1.0, "test_nll": 0.1},
        **{"test_ece": 1.0, "examples": {"train": 1, "dev": 0, "test": 1, "labels": 2}, "command": "", "processes": 1},
        **{"test_nll_scaled": None, "test_ece_scaled": None, "temperature": None, "best_step": 1, "best_epoch": 1.0},
        **{"method_settings": {}, "versions": {}, "machine": {"cpu": "a processor", "threads": 1, "system": "Linux"}},
        **{"parameters": {"body": 1, "head": 1, "predicting": 2}, "seconds": {"training": 1, "evaluation": 1}},
        "reliability": [],
    }
    return msgspec.convert(given | values, ClassificationResult)


def every_update_saved() -> RunOptions:
    return RunOptions(checkpoint_seconds=0.0)


def without_times(value: Any) -> Any:
    """A result or a list of records without what a clock wrote."""
    if isinstance(value, dict):
        return {key: without_times(entry) for key, entry in value.items() if key not in TIMES}
    return [without_times(entry) for entry in value] if isinstance(value, list) else value


class StopAt(StopRequests):
    """Asks to stop from a given update on."""

    def __init__(self, step: int) -> None:
        super().__init__(enabled=False)
        self.step = step

    def hear(self, progress: Progress) -> None:
        if progress.step >= self.step:
            self.request(signal.SIGINT)


def read_records(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def assert_same_run(one: Path, other: Path) -> None:
    """Bit for bit the same model, evaluations and result, apart from times."""
    tensors, others = load_file(one / "model.safetensors"), load_file(other / "model.safetensors")
    assert tensors.keys() == others.keys()
    for name, tensor in tensors.items():
        assert torch.equal(tensor, others[name]), name
    assert without_times(read_records(one)) == without_times(read_records(other))
    results = [without_times(json.loads((run / "result.json").read_text())) for run in (one, other)]
    assert results[0] == results[1]
