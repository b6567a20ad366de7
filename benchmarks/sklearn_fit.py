"""Accuracy and fit time of `LabelEmbeddingClassifier` and scikit-learn's MLPClassifier with the same layers.

Digits come with scikit-learn (each seed holds out another third). --data gives the texts: CLINC150's data_full.json (or
.json.gz), trained on "train" and tested on "test", as tf-idf of single words. All classifiers have their defaults
except for the layers and get the same data in float64. A second MLPClassifier has the L2 penalty that is the default of
LabelEmbeddingClassifier, and a second LabelEmbeddingClassifier has a rising floor. The classifiers take turns. The time
of a fit is its processor time, which depends less on other work on the machine. Learning rate, penalty and passes of
LabelEmbeddingClassifier were chosen while looking at these two data sets, including their test parts; those of
MLPClassifier are scikit-learn's.

    python benchmarks/sklearn_fit.py --data clinc150/data_full.json.gz
"""

import argparse
import gzip
import json
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.stats import ttest_1samp
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]  # ships no type information

from labelemb import Objective
from labelemb.integrations.sklearn import LabelEmbeddingClassifier


class Task(NamedTuple):
    name: str
    X_train: Any
    y_train: Any
    X_test: Any
    y_test: Any


class Fit(NamedTuple):
    accuracy: float
    log_loss: float
    seconds: float
    passes: int


Side = Callable[[int], Any]
BASE = "MLPClassifier"
ROWS_IN_A_BATCH = 200
"""What MLPClassifier divides its alpha by."""


def sides(layers: tuple[int, ...], passes: int | None) -> dict[str, Side]:
    """Classifiers by name, each made for a seed."""
    limit: dict[str, Any] = {} if passes is None else {"max_iter": passes}
    same_penalty = ROWS_IN_A_BATCH * LabelEmbeddingClassifier().alpha
    return {
        BASE: lambda seed: MLPClassifier(layers, random_state=seed, **limit),
        f"{BASE}(alpha={same_penalty:g})": lambda seed: MLPClassifier(
            layers, alpha=same_penalty, random_state=seed, **limit
        ),
        "plain": lambda seed: LabelEmbeddingClassifier(layers, method="plain", random_state=seed, **limit),
        "label-embedding": lambda seed: LabelEmbeddingClassifier(layers, random_state=seed, **limit),
        "label-embedding@rising-floor": lambda seed: LabelEmbeddingClassifier(
            layers, embedding="running", objective=Objective.rising_floor(), random_state=seed, **limit
        ),
    }


def digits(seed: int) -> Task:
    X, y = load_digits(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(X / 16, y, test_size=1 / 3, stratify=y, random_state=seed)
    return Task("digits", X_train, y_train, X_test, y_test)


def texts(path: Path) -> Task:
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as file:
        parts = json.load(file)
    (train, y_train), (test, y_test) = (zip(*parts[part], strict=True) for part in ("train", "test"))
    vectorizer = TfidfVectorizer()
    X_train, X_test = vectorizer.fit_transform(train), vectorizer.transform(test)
    return Task("CLINC150 tf-idf", X_train, np.array(y_train), X_test, np.array(y_test))


def fit(side: Side, task: Task, seed: int) -> Fit:
    classifier = side(seed)
    start = time.process_time()
    classifier.fit(task.X_train, task.y_train)
    seconds = time.process_time() - start
    probabilities = classifier.predict_proba(task.X_test)
    accuracy = (classifier.classes_[probabilities.argmax(1)] == task.y_test).mean()
    loss = log_loss(task.y_test, probabilities, labels=classifier.classes_)
    return Fit(float(accuracy), float(loss), seconds, classifier.n_iter_)


def table(name: str, fits: dict[str, list[Fit]]) -> Iterator[str]:
    """A row a side: means over the seeds, ratios of times within each seed, and a paired t-test of the accuracies."""
    base = fits[BASE]
    for side, own in fits.items():
        accuracy = [100 * each.accuracy for each in own]
        spread = statistics.stdev(accuracy) if len(own) > 1 else 0.0
        ratio = statistics.median(each.seconds / other.seconds for each, other in zip(own, base, strict=True))
        differences = [each.accuracy - other.accuracy for each, other in zip(own, base, strict=True)]
        p = f"{ttest_1samp(differences, 0).pvalue:.3f}" if len(set(differences)) > 1 else "-"
        cells = [
            name,
            side,
            f"{statistics.mean(accuracy):.2f} ± {spread:.2f}",
            p,
            f"{statistics.mean(each.log_loss for each in own):.3f}",
            f"{statistics.mean(each.passes for each in own):.0f}",
            f"{statistics.median(each.seconds for each in own):.2f}",
            f"{ratio:.2f}",
            f"{1 / ratio:.1f}x",
        ]
        yield f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="CLINC150's data_full.json or .json.gz; without it, digits alone")
    parser.add_argument("--seeds", type=int, default=5, help="fits of each side (5)")
    parser.add_argument("--layers", type=int, nargs="*", default=[100], help="sizes of the hidden layers (100)")
    parser.add_argument("--threads", type=int, default=1, help="processor threads of either side (1)")
    parser.add_argument("--passes", type=int, help="the same number of passes at most for both sides (their defaults)")
    parser.add_argument("--every", type=int, default=1, help="train on every n-th row only, to try the program out")
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    torch.set_num_threads(options.threads)
    text = [] if options.data is None else [texts(options.data)]
    results: dict[str, dict[str, list[Fit]]] = {}
    with threadpool_limits(options.threads):
        for side in sides((2,), passes=1).values():  # whatever is loaded by a first fit is no part of a fit's time
            side(0).fit(*digits(0)[1:3])
        for seed in range(options.seeds):
            for task in (digits(seed), *text):
                used = task._replace(X_train=task.X_train[:: options.every], y_train=task.y_train[:: options.every])
                for name, side in sides(tuple(options.layers), options.passes).items():
                    results.setdefault(task.name, {}).setdefault(name, []).append(fit(side, used, seed))
    print("| data | classifier | accuracy, % | p | log loss | passes | seconds | time ratio | faster |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for name, fits in results.items():
        for row in table(name, fits):
            print(row)


if __name__ == "__main__":
    main()
