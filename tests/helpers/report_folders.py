"""Folders of runs that were never trained: small, with known numbers and label names that mean harm."""

import json
from pathlib import Path
from typing import Any

import torch

from labelemb import LabelSpace
from labelemb.lab.data import Dataset, ImageExamples
from labelemb.lab.recipes.recipe import load_recipe
from labelemb.lab.runs.example_pictures import FILE, draw_examples

NAMES = ["cat", "kitten", "dog", "<script>alert(1)</script>", '"; drop', "café & </script>"]
METHODS = {"plain": (8.0, 9.0), "label-embedding": (6.0, 7.0)}
EPOCHS = 4


def similar_labels() -> LabelSpace:
    """Cat and kitten are nearly the same; every other pair is faint."""
    logits = 4 * torch.eye(len(NAMES)) + 0.1 * torch.arange(len(NAMES))
    logits[0, 1] = logits[1, 0] = 3.8
    groups = {"pets": NAMES[:3], "trouble": NAMES[3:]}
    return LabelSpace.from_matrix(logits, NAMES, kind="logit", superclasses=groups)


def result(method: str, seed: int, error: float) -> dict[str, Any]:
    """What a finished run of a classification writes, as far as the page reads it."""
    curve = [{"epoch": epoch, "test_error": error + EPOCHS - epoch} for epoch in range(1, EPOCHS + 1)]
    scores = {f"test_{name}": 0.5 for name in ("nll", "ece", "nll_scaled", "ece_scaled")}
    return {
        **{"recipe": "pets", "fingerprint": "f", "version": "0", "method": method, "seed": seed},
        **{"test_error": error, "dev_error": error, "final_error": error, **scores},
        **{
            "curve": curve,
            "epochs": EPOCHS,
            "steps": 40,
            "seconds_per_epoch": 0.25 + seed,
            "command": "labelemb compare pets",
        },
        "examples": {"train": 60, "dev": 6, "test": 12, "labels": len(NAMES)},
        "parameters": {"body": 100, "head": 20, "predicting": 110},
        "reliability": [
            {"count": 0, "confidence": 0.0, "accuracy": 0.0},
            {"count": 4 + seed, "confidence": 0.5, "accuracy": 0.25},
        ],
        "machine": {"cpu": "a processor", "threads": 1, "system": "Linux"},
        "versions": {"labelemb": "0"},
        **{"best_step": 40, "best_epoch": EPOCHS, "temperature": None, "processes": 1, "method_settings": {}},
        "seconds": {"training": 1.0, "evaluation": 0.5},
    }


def worst_examples() -> list[dict[str, Any]]:
    """Two confident errors, one of a label that means harm."""
    return [
        {"number": 3, "label": "cat", "predicted": "kitten", "probability": 0.9, "label_probability": 0.1, "text": "a"},
        {"number": 1, "label": NAMES[3], "predicted": NAMES[4], "probability": 0.8, "label_probability": 0.0}
        | {"text": "<img src=x onerror=alert(1)>"},
    ]


def write_finished(folder: Path, method: str, seed: int, error: float, space: LabelSpace | None) -> Path:
    run = folder / method / f"seed-{seed}"
    run.mkdir(parents=True)
    (run / "result.json").write_text(json.dumps(result(method, seed, error)))
    confusion = {"labels": NAMES, "examples": [2] * len(NAMES), "wrong": [[0, 1, 1 + seed], [3, 4, 1]]}
    (run / "confusion.json").write_text(json.dumps(confusion))
    (run / "worst.json").write_text(json.dumps(worst_examples()))
    if space is not None:
        space.save(run / "labels.safetensors")
    return run


def write_unfinished(folder: Path, method: str = "plain", seed: int = 9) -> Path:
    """A run that has come to the end of its second epoch."""
    run = folder / method / f"seed-{seed}"
    run.mkdir(parents=True)
    about = {"recipe": "pets", "fingerprint": "f", "version": "0", "method": method, "seed": seed, "data": None}
    (run / "run.json").write_text(json.dumps(about))
    (run / "recipe.toml").write_text(load_recipe("digits", [f"train.epochs={EPOCHS}"]).to_toml())
    records = [{"step": 10 * epoch, "epoch": float(epoch), "test_error": 20.0 - epoch} for epoch in (1, 2)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return run


def write_examples(run: Path) -> Path:
    """Small test images in a run's folder: three of each label but one of the last, in a colour of its own."""
    targets = torch.tensor([*range(len(NAMES)), *range(len(NAMES) - 1), *range(len(NAMES) - 1)])
    images = (40 * targets.view(-1, 1, 1, 1) + torch.tensor([5, 20, 0]).view(1, 3, 1, 1)).to(torch.uint8)
    examples = ImageExamples(images.expand(-1, 3, 8, 8).contiguous(), targets)
    content = draw_examples(Dataset(examples, None, examples, NAMES, examples.form))
    assert content is not None
    (run / FILE).write_bytes(content)
    return run / FILE


def write_translations(folder: Path, scores: dict[str, float]) -> Path:
    """A finished translation run of each method with this BLEU, five less by greedy search."""
    for method, bleu in scores.items():
        run = write_finished(folder, method, 0, 60.0, None)
        (run / "confusion.json").unlink()
        (run / "worst.json").unlink()
        text = result(method, 0, 60.0) | {"task": "translation", "main_score": "bleu", "beam": 3, "reliability": []}
        text |= {
            "test_bleu": bleu,
            "dev_bleu_greedy": bleu - 5,
            "bleu_signature": "nrefs:1|tok:none",
        }
        for point in text["curve"]:
            point |= {f"{part}_bleu_greedy": bleu - 5 - EPOCHS + point["epoch"] for part in ("dev", "test")}
        (run / "result.json").write_text(json.dumps(text))
    return folder


def write_comparison(folder: Path, space: LabelSpace | None = None) -> Path:
    """Two methods with two seeds; label embedding's runs have a label space."""
    space = space or similar_labels()
    for method, errors in METHODS.items():
        for seed, error in enumerate(errors):
            write_finished(folder, method, seed, error, space if method == "label-embedding" else None)
    return folder
