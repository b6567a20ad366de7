"""The table of CLINC150 under SGD: test errors, and training errors at the end, at each learning rate and length.

python results/sgd.py
"""

import json
import statistics
from pathlib import Path

from labelemb.lab.comparison.tables import markdown

RUNS = Path(__file__).parent / "runs"
ROWS = {
    "clinc150-sgd-0.03": "0.03, constant, 15 epochs",
    "default-clinc150-sgd": "0.1, constant, 15 epochs",
    "clinc150-sgd-0.1-linear": "0.1, to 0, 15 epochs",
    "clinc150-sgd-0.3": "0.3, constant, 15 epochs",
    "clinc150-sgd-0.3-linear": "0.3, to 0, 15 epochs",
    "clinc150-sgd-0.1-linear-60": "0.1, to 0, 60 epochs",
}
OWN_RATE = "label-embedding@halves+embedding_lr="
METHODS = {
    "plain": ("plain",),
    "label smoothing": ("label-smoothing",),
    "online smoothing": ("online-smoothing",),
    "label embedding": (f"{OWN_RATE}0.05",),
    "rate x labels": (f"{OWN_RATE}15", f"{OWN_RATE}45"),
    "running mean": ("label-embedding@halves+embedding=running",),
}
"""Columns, and the names of their method: 150 labels times a learning rate of 0.1 or 0.3 is 15 or 45."""


def cell(folder: Path, methods: tuple[str, ...]) -> str:
    """Mean and standard deviation of the test error, and the mean training error, of the runs of one method."""
    runs = [run for method in methods for run in sorted((folder / method).glob("seed-*"))]
    if not runs:
        return "-"
    errors = [json.loads((run / "result.json").read_text())["test_error"] for run in runs]
    trained = [json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])["train_error"] for run in runs]
    return f"{statistics.fmean(errors):.2f} ± {statistics.stdev(errors):.2f} ({statistics.fmean(trained):.1f})"


def table() -> str:
    rows = [[title, *(cell(RUNS / name, names) for names in METHODS.values())] for name, title in ROWS.items()]
    return markdown(["learning rate", *METHODS], rows)


if __name__ == "__main__":
    print(table())
