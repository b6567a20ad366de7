"""Small data with known wrong labels, and audits of it."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from labelemb.findings import Audit, audit
from labelemb.lab.data import AuditedData
from labelemb.lab.recipes.recipe import Recipe, load_recipe
from labelemb.lab.runs.held_out import FoldPredictions
from tests.helpers.noisy_labels import noisy_labels
from tests.helpers.tiny_data import write_csv

INTENTS = ("music", "weather", "alarm")
WRONG = (3, 17)
"""Rows of `write_intents` whose label is not that of their text."""
HOSTILE = ["=cmd|' /C calc'!A1", "<script>window.broken = 1</script>", "</script><b>bold", "名前", 'a "quoted", name']


def quick_audit_recipe(*overrides: str) -> Recipe:
    """Texts with a small body and twenty epochs of a few updates."""
    body = ["body.hidden=[16]", "body.embedding_size=16", "body.dropout=0", "data.ngrams=1"]
    train = ["train.epochs=20", "train.lr=0.02", "train.batch_size=8"]
    return load_recipe("text-csv", [*body, *train, *overrides])


def write_intents(path: Path, per_label: int = 12, extra: Sequence[Sequence[str]] = ()) -> Path:
    """Texts that hold the word of their label, two of which carry another label."""
    rows = [[f"{label} number {number}", label] for label in INTENTS for number in range(per_label)]
    for row in WRONG:
        rows[row][1] = "alarm"
    return write_csv(path, [["text", "label"], *rows, *extra])


def even_folds(read: AuditedData) -> list[FoldPredictions]:
    """Predictions of two folds that find all labels alike."""
    labels = len(read.label_names)
    halves = (read.judged[::2], read.judged[1::2])
    return [
        FoldPredictions(
            rows=torch.from_numpy(rows),
            self_confidence=torch.full((len(rows),), 1 / labels),
            labels=torch.arange(labels, dtype=torch.int32).repeat(len(rows), 1),
            values=torch.full((len(rows), labels), 1 / labels),
            train_rows=torch.from_numpy(others),
            losses=torch.ones(len(others)),
        )
        for rows, others in (halves, halves[::-1])
    ]


def hostile_audit(rows: int = 120) -> tuple[Audit, AuditedData]:
    """An audit of texts whose texts and labels try to be formulas and markup."""
    noisy = noisy_labels(rows=rows, labels=len(HOSTILE), flips=0.15)
    texts = [f"{HOSTILE[row % 5]} number {row}" for row in range(rows)]
    texts[5] = texts[6] = "the very same text"
    parts = ["train"] * (rows - 20) + ["test"] * 20
    probabilities = noisy.probabilities.copy()
    probabilities[rows - 20 :] = np.nan
    read = AuditedData(
        label_names=HOSTILE,
        targets=noisy.given,
        parts=parts,
        judged=np.arange(rows - 20),
        texts=texts,
        images=None,
        files=None,
        digest="0" * 64,
    )
    losses = np.linspace(0, 2, rows)
    return audit(probabilities, noisy.given, HOSTILE, inputs=texts, losses=losses, splits=parts), read
