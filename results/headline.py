"""Tables of test errors that two pages show: the README's, and the one beside other methods in docs/peers.md.

python results/headline.py
"""

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent
TASKS = {
    "clinc150-10": "CLINC150, 150 intents, 10 examples of each",
    "clinc150": "CLINC150, all examples",
    "cifar10-few": "CIFAR-10, 500 images of each label, a small CNN",
    "cifar100-few": "CIFAR-100, 100 images of each label, a small CNN",
    "cifar100-small": "CIFAR-100, 45,000 images, a small CNN",
    "mnist-mlp": "MNIST, the paper's MLP",
    "mnist-cnn-bf16": "MNIST, the paper's CNN, bf16",
    "mnist-cnn-narrow": "MNIST, the same CNN, a quarter of its channels",
}
METHODS = {
    "cross entropy": "plain",
    "label smoothing": "label-smoothing",
    "online smoothing": "online-smoothing",
    "label embedding": "label-embedding@halves+embedding_lr=0.05",
    "smoothing that fades": "label-smoothing@rising",
    "`fading()`": "label-embedding@fading",
}

PEER_TASKS = {
    "clinc150": "CLINC150",
    "clinc150-10": "CLINC150, 10 a label",
    "mnist-mlp": "MNIST, MLP",
    "cifar10-few": "CIFAR-10, few",
    "cifar100-few": "CIFAR-100, few",
}
PEERS = {
    "cross entropy": "plain",
    "label smoothing 0.1": "label-smoothing",
    "confidence penalty 0.1": "confidence-penalty",
    "Tf-KD, hand-made teacher": "teacher-free",
    "OLS": "online-smoothing",
    "label smoothing that fades (`label-smoothing@rising`)": "label-smoothing@rising",
    "label embedding (the default)": "label-embedding@halves+embedding_lr=0.05",
    "the same at the network's rate (`@halves`)": "label-embedding@halves",
    "the same as a running mean (`@halves+embedding=running`)": "label-embedding@halves+embedding=running",
    "the authors' image preset (`@authors-vision`)": "label-embedding@authors-vision",
    "`@rising-floor`": "label-embedding@rising-floor",
    "`@fading`": "label-embedding@fading",
}

Score = dict[str, Any]


def scores(name: str, methods: dict[str, str]) -> dict[str, Score | None]:
    """The test error of each method on a task; None where it was not trained."""
    kept = json.loads((RESULTS / name / "summary.json").read_text())["methods"]
    return {title: kept[method]["test_error"] if method in kept else None for title, method in methods.items()}


def most_seeds(found: dict[str, Score | None]) -> int:
    return max(score["n"] for score in found.values() if score)


def cell(score: Score | None, lowest: float, seeds: int) -> str:
    """Mean and standard deviation, the lowest mean in bold; the number of seeds where it is not that of the others."""
    if score is None:
        return "-"
    text = f"{score['mean']:.2f} ± {score['std']:.2f}"
    text = f"**{text}**" if round(score["mean"], 2) == lowest else text
    return text if score["n"] == seeds else f"{text} ({score['n']} seeds)"


def cells(found: dict[str, Score | None]) -> list[str]:
    """One cell for each method of a task."""
    lowest = min(round(score["mean"], 2) for score in found.values() if score)
    return [cell(score, lowest, most_seeds(found)) for score in found.values()]


def rows_of(lines: list[list[str]]) -> str:
    head, *body = lines
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *body])


def readme_table() -> str:
    """A row for each task."""
    found = {title: scores(name, METHODS) for name, title in TASKS.items()}
    body = [[f"{title} ({most_seeds(row)} seeds)", *cells(row)] for title, row in found.items()]
    return rows_of([["", *METHODS], *body])


def peers_table() -> str:
    """A row for each method."""
    found = {
        f"{title} ({most_seeds(row)} seeds)": row for name, title in PEER_TASKS.items() for row in [scores(name, PEERS)]
    }
    columns = [cells(column) for column in found.values()]
    body = [[method, *(column[at] for column in columns)] for at, method in enumerate(PEERS)]
    return rows_of([["test error in percent", *found], *body])


if __name__ == "__main__":
    print(readme_table(), peers_table(), sep="\n\n")
