"""How well models that the lab trains find flipped labels of CLINC150 and MNIST, in sample and out of fold.

A share of the training labels is flipped, to a random label or to the most similar one (by the cosine of the labels'
mean inputs). Plain cross entropy and label embedding train on all examples (in sample: ranked by the last prediction,
or by the loss averaged over the epochs) and in folds (out of fold: ranked by `labelemb.audit`). cleanlab, where it is
installed (extra `peers`), reads the out-of-fold probabilities of plain cross entropy; with many labels, the ten largest
of a row, and the rest spread evenly. `--examples` takes that many examples of each label.

Texts use the recipe text-vectors with frozen vectors, images the recipe mnist-mlp with 8 epochs.

The models are kept in `--work`, so that a stopped measurement can be continued. The scores are kept in `--out`, and
`--show` prints their table.

    python -m benchmarks.audit_trained clinc150 --data clinc150/data_full.json.gz --work DIR --out DIR
    python -m benchmarks.audit_trained mnist --examples 1000 --data mnist --work DIR --out DIR
    python -m benchmarks.audit_trained clinc150 --show --out DIR
"""

import argparse
import csv
import gzip
import json
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer

from benchmarks.audit import HEADER, RULE, Ranking, Score, Side, cleanlab_flags, flip, measure, most_similar, ours, row
from labelemb.lab import load_recipe, train_run
from labelemb.lab.data import Fold
from labelemb.lab.data.images.idx import read_idx
from labelemb.lab.recipes.recipe import Recipe
from labelemb.lab.runs.folder import keep_recipe
from labelemb.lab.runs.held_out import JoinedFolds, join_folds, read_predictions
from labelemb.lab.runs.messages import RunOptions

METHODS = ("plain", "label-embedding@halves")
NOISES = {"random": "a random label", "similar": "the most similar label"}
Kept = dict[str, dict[str, list[Score]]]
"""Scores of each noise and side, one for each noise seed."""


class Source(NamedTuple):
    """Examples with their labels and the most similar label of each, the recipe, and how flipped data is written."""

    recipe: Recipe
    inputs: Any
    labels: np.ndarray
    names: list[str]
    similar: np.ndarray

    def write(self, given: np.ndarray, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        if isinstance(self.inputs, np.ndarray):
            for part in ("train", "t10k"):
                write_idx(folder / f"{part}-images-idx3-ubyte", self.inputs)
                write_idx(folder / f"{part}-labels-idx1-ubyte", given)
            return folder
        with (folder / "train.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["text", "label"])
            writer.writerows(zip(self.inputs, (self.names[label] for label in given), strict=True))
        return folder / "train.csv"


def write_idx(path: Path, values: np.ndarray) -> None:
    header = bytes([0, 0, 8, values.ndim]) + np.array(values.shape, dtype=">u4").tobytes()
    path.write_bytes(header + values.astype(np.uint8).tobytes())


def first_of_each(labels: np.ndarray, count: int) -> np.ndarray:
    """Indices of the first `count` examples of each label."""
    return np.sort(np.concatenate([np.flatnonzero(labels == label)[:count] for label in np.unique(labels)]))


def clinc150(path: Path, count: int) -> Source:
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as file:
        texts, given = zip(*json.load(file)["train"], strict=True)
    names, labels = np.unique(given, return_inverse=True)
    kept = first_of_each(labels, count)
    texts, labels = [texts[place] for place in kept], labels[kept]
    features = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, min_df=2, dtype=np.float32).fit_transform(texts)
    recipe = load_recipe("text-vectors", ["body.frozen_epochs=-1"])
    return Source(recipe, list(texts), labels, names.tolist(), most_similar(features, labels))


def mnist(path: Path, count: int) -> Source:
    images, labels = (
        np.asarray(read_idx(next(path.glob(f"train-{kind}*")), dimensions))
        for kind, dimensions in (("images", 3), ("labels", 1))
    )
    kept = first_of_each(labels, count)
    images, labels = images[kept], labels[kept]
    recipe = load_recipe("mnist-mlp", ["train.epochs=8", "train.evaluations_per_epoch=1", "data.dev_size=0.1"])
    flat = images.reshape(len(images), -1).astype(np.float32)
    names = [str(label) for label in range(10)]
    return Source(recipe, images, labels.astype(np.int64), names, most_similar(flat, labels))


class Trained(NamedTuple):
    """Predictions of an audit's folds, and the seconds of training them."""

    joined: JoinedFolds
    seconds: float


def train(source: Source, method: str, given: np.ndarray, work: Path, folds: int, seed: int) -> Trained:
    """Train in all folds, or one model on everything; finished trainings in the folder are only read."""
    recipe, path = source.recipe, source.write(given, work / "data")
    if folds == 1:
        recipe = msgspec.structs.replace(recipe, train=msgspec.structs.replace(recipe.train, dev=False))
    found, seconds = [], 0.0
    for number in range(folds):
        folder = work / method / f"fold-{number + 1}-of-{folds}"
        fold = Fold(number, folds, seed=seed)
        result = train_run(recipe, method, seed, path, folder, fold=fold, options=RunOptions(threads=1))
        found.append(read_predictions(folder))
        seconds += result.seconds.training
    return Trained(join_folds(found, given), seconds)


def dense(joined: JoinedFolds, labels: int) -> np.ndarray:
    """(rows, labels): the kept probabilities, the rest spread evenly."""
    rows, kept = joined.labels.shape
    rest = np.clip(1 - joined.values.sum(axis=1), 0, 1) / max(1, labels - kept)
    found = np.repeat(rest[:, None], labels, axis=1) if kept < labels else np.zeros((rows, labels), np.float32)
    np.put_along_axis(found, joined.labels.astype(np.int64), joined.values, axis=1)
    return found / found.sum(axis=1, keepdims=True)


def by_loss(joined: JoinedFolds) -> Ranking:
    return Ranking(np.argsort(-joined.losses, kind="stable"), None)


def score_sides(source: Source, given: np.ndarray, work: Path, folds: int, seed: int) -> dict[str, Score]:
    """Train and score every side on one set of given labels; cleanlab only where it is installed."""
    found: dict[str, Score] = {}

    def score(name: str, side: Side, ranked: Any, seconds: float) -> None:
        own = measure(side, ranked, given, given != source.labels)
        found[name] = own._replace(seconds=own.seconds + seconds)

    for method in METHODS:
        alone = train(source, method, given, work, 1, seed)
        score(f"{method}, in sample, last prediction", ours, dense(alone.joined, len(source.names)), alone.seconds)
        score(f"{method}, in sample, averaged loss", lambda joined, _: by_loss(joined), alone.joined, alone.seconds)
        held_out = train(source, method, given, work, folds, seed)
        probabilities = dense(held_out.joined, len(source.names))
        score(f"{method}, out of fold", ours, probabilities, held_out.seconds)
        if method == "plain" and find_spec("cleanlab"):
            name = f"cleanlab {version('cleanlab')}, plain out of fold"
            score(name, cleanlab_flags, probabilities, held_out.seconds)
    return found


def read_scores(out: Path) -> Kept:
    """The kept scores, nothing where there are none."""
    file = out / "scores.json"
    kept = json.loads(file.read_text())["scores"] if file.exists() else {}
    return {
        noise: {side: [Score(**score) for score in scores] for side, scores in sides.items()}
        for noise, sides in kept.items()
    }


def write_scores(out: Path, source: Source, options: argparse.Namespace, kept: Kept) -> None:
    record = {
        "source": options.source,
        "examples": len(source.labels),
        "labels": len(source.names),
        "folds": options.folds,
        "share": options.share,
        "scores": {
            noise: {side: [numbers(score) for score in scores] for side, scores in sides.items()}
            for noise, sides in kept.items()
        },
    }
    (out / "scores.json").write_text(json.dumps(record, indent=1) + "\n")


def numbers(score: Score) -> dict[str, float | None]:
    """The numbers of a score for JSON, which has no NaN."""
    return {name: None if np.isnan(value) else round(float(value), 6) for name, value in score._asdict().items()}


def table(kept: Kept) -> str:
    lines = [HEADER, RULE]
    lines += [row(NOISES[noise], side, scores) for noise, sides in kept.items() for side, scores in sides.items()]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", choices=("clinc150", "mnist"))
    parser.add_argument("--data", type=Path)
    parser.add_argument("--work", type=Path, help="where the trainings are kept")
    parser.add_argument("--out", type=Path, required=True, help="where the scores are kept")
    parser.add_argument("--show", action="store_true", help="print the table of the kept scores, train nothing")
    parser.add_argument("--seeds", type=int, default=3, help="noise seeds (3)")
    parser.add_argument("--examples", type=int, default=10_000, help="examples of each label (10,000)")
    parser.add_argument("--folds", type=int, default=3)
    parser.add_argument("--share", type=float, default=0.1, help="share of the labels that are flipped (0.1)")
    options = parser.parse_args()
    if options.show:
        print(table(read_scores(options.out)))
        return
    if options.data is None or options.work is None:
        parser.error("--data and --work are needed to measure")
    source = {"clinc150": clinc150, "mnist": mnist}[options.source](options.data, options.examples)
    options.out.mkdir(parents=True, exist_ok=True)
    keep_recipe(options.out / "recipe.toml", source.recipe)
    kept: Kept = {noise: {} for noise in NOISES}
    for seed in range(options.seeds):
        for noise in NOISES:
            given = flip(source.labels, options.share, source.similar if noise == "similar" else None, seed)
            work = options.work / f"{noise}-{seed}"
            for side, score in score_sides(source, given, work, options.folds, seed).items():
                kept[noise].setdefault(side, []).append(score)
            write_scores(options.out, source, options, kept)
    print(table(kept))


if __name__ == "__main__":
    main()
