"""How well `labelemb.audit`, self-confidence and cleanlab find flipped labels of CLINC150.

A share of the labels of CLINC150's "train" part is flipped, to a random label or to the most similar one (by the cosine
of the labels' mean tf-idf vectors). Out-of-fold probabilities come from logistic regression on tf-idf of words and word
pairs. All methods rank the same probabilities, and their time excludes computing them. cleanlab takes part if it is
installed: its flagged rows come first, then the others, both ranked by self-confidence.

    python benchmarks/audit.py --data clinc150/data_full.json.gz
"""

import argparse
import gzip
import importlib
import json
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]  # ships no type information

from labelemb import audit


class Ranking(NamedTuple):
    """Rows from the most to the least suspicious, and how many of them are flagged (None: the side flags none)."""

    order: np.ndarray
    flagged: int | None


class Score(NamedTuple):
    """Shares of flipped labels: among as many first rows as there are flips, on average, and among the flagged rows."""

    precision: float
    average_precision: float
    flagged: float
    flags_precision: float
    flags_recall: float
    seconds: float


HEADER = "| flipped to | ranked by | precision at flips | average precision | flags | precision | recall | seconds |"
RULE = "| --- | --- | --- | --- | --- | --- | --- | --- |"
Side = Callable[[np.ndarray, np.ndarray], Ranking]


def ours(probabilities: np.ndarray, given: np.ndarray) -> Ranking:
    found = audit(probabilities, given)
    return Ranking(found.examples.order, found.examples.num_issues)


def self_confidence(probabilities: np.ndarray, given: np.ndarray) -> Ranking:
    return Ranking(np.argsort(probabilities[np.arange(len(given)), given], kind="stable"), None)


def cleanlab_flags(probabilities: np.ndarray, given: np.ndarray) -> Ranking:
    find_label_issues = importlib.import_module("cleanlab.filter").find_label_issues
    flagged = find_label_issues(given, probabilities, return_indices_ranked_by="self_confidence", n_jobs=1)
    order = self_confidence(probabilities, given).order
    return Ranking(np.concatenate([flagged, order[~np.isin(order, flagged)]]), len(flagged))


def sides() -> dict[str, Side]:
    """The sides by name; cleanlab only where it is installed."""
    found: dict[str, Side] = {"labelemb.audit": ours, "self-confidence": self_confidence}
    try:
        version = importlib.import_module("cleanlab").__version__
    except ImportError:
        return found
    return {**found, f"cleanlab {version}": cleanlab_flags}


def flip(labels: np.ndarray, share: float, similar: np.ndarray | None, seed: int) -> np.ndarray:
    """The labels with exactly this share changed: to the similar label of each, or to any other one."""
    generator = np.random.default_rng(seed)
    count = int(labels.max()) + 1
    rows = generator.choice(len(labels), round(share * len(labels)), replace=False)
    given = labels.copy()
    others = (labels[rows] + generator.integers(1, count, len(rows))) % count
    given[rows] = others if similar is None else similar[labels[rows]]
    return given


def most_similar(features: Any, labels: np.ndarray) -> np.ndarray:
    """(labels,) the label whose mean vector has the largest cosine with that of each."""
    means = np.stack([np.asarray(features[labels == label].mean(axis=0)).ravel() for label in np.unique(labels)])
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    cosines = means @ means.T
    np.fill_diagonal(cosines, -1)
    return cosines.argmax(axis=1)


def out_of_fold(features: Any, given: np.ndarray, folds: int, seed: int) -> np.ndarray:
    model = LogisticRegression(C=10, max_iter=25)
    splits = StratifiedKFold(folds, shuffle=True, random_state=seed)
    return cross_val_predict(model, features, given, cv=splits, method="predict_proba")


def measure(side: Side, probabilities: np.ndarray, given: np.ndarray, flipped: np.ndarray) -> Score:
    start = time.process_time()
    ranking = side(probabilities, given)
    seconds = time.process_time() - start
    suspicion = np.empty(len(given))
    suspicion[ranking.order] = -np.arange(len(given))
    flags = flipped[ranking.order[: ranking.flagged]]
    none = ranking.flagged is None
    return Score(
        precision=flipped[ranking.order[: flipped.sum()]].mean(),
        average_precision=average_precision_score(flipped, suspicion),
        flagged=np.nan if none else len(flags),
        flags_precision=np.nan if none else flags.mean(),
        flags_recall=np.nan if none else flags.sum() / flipped.sum(),
        seconds=seconds,
    )


def row(noise: str, name: str, scores: list[Score]) -> str:
    """Means over the noise seeds, with the standard deviation of the first two."""

    def cell(field: str, digits: int, spread: bool = False) -> str:
        values = [getattr(score, field) for score in scores]
        if None in values or np.isnan(values).any():
            return "-"
        deviation = f" ± {statistics.stdev(values):.{digits}f}" if spread and len(values) > 1 else ""
        return f"{statistics.mean(values):.{digits}f}{deviation}"

    cells = [noise, name, cell("precision", 3, True), cell("average_precision", 3, True), cell("flagged", 0)]
    cells += [cell("flags_precision", 3), cell("flags_recall", 3), cell("seconds", 2)]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="CLINC150's data_full.json or .json.gz")
    parser.add_argument("--seeds", type=int, default=3, help="noise seeds (3)")
    parser.add_argument("--folds", type=int, default=3, help="folds of the out-of-fold probabilities (3)")
    parser.add_argument("--share", type=float, default=0.1, help="share of the labels that are flipped (0.1)")
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    opener = gzip.open if options.data.suffix == ".gz" else open
    with opener(options.data, "rt", encoding="utf-8") as file:
        texts, names = zip(*json.load(file)["train"], strict=True)
    labels = np.unique(names, return_inverse=True)[1]
    features = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, min_df=2, dtype=np.float32).fit_transform(texts)
    similar = most_similar(features, labels)
    print(HEADER, RULE, sep="\n")
    with threadpool_limits(1):
        for noise, target in (("a random label", None), ("the most similar label", similar)):
            scores: dict[str, list[Score]] = {}
            for seed in range(options.seeds):
                given = flip(labels, options.share, target, seed)
                probabilities = out_of_fold(features, given, options.folds, seed)
                for name, side in sides().items():
                    scores.setdefault(name, []).append(measure(side, probabilities, given, given != labels))
            for name, own in scores.items():
                print(row(noise, name, own), flush=True)


if __name__ == "__main__":
    main()
