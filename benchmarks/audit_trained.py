"""Flipped labels of CLINC150 and MNIST found again by models that the lab trains, in sample and out of fold.

A share of the training labels is flipped, to a random label or to the most similar one (by the cosine of the labels'
mean inputs). Plain cross entropy and label embedding train on all examples (in sample: ranked by the last prediction,
or by the loss averaged over the epochs) and in folds (out of fold: ranked by `labelemb.audit`). cleanlab, where it can
be imported, flags the out-of-fold probabilities of plain cross entropy; of many labels it gets the ten largest of a
row, the rest spread evenly. `--examples` takes that many examples of each label.

    python -m benchmarks.audit_trained clinc150 --data clinc150/data_full.json.gz
    python -m benchmarks.audit_trained mnist --data mnist
"""

import argparse
import csv
import gzip
import json
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer

from benchmarks.audit import Ranking, Score, cleanlab_flags, flip, measure, most_similar, ours, row
from labelemb.lab import load_recipe, train_run
from labelemb.lab.data import Fold
from labelemb.lab.data.images.idx import read_idx
from labelemb.lab.recipes.recipe import Recipe
from labelemb.lab.runs.held_out import JoinedFolds, join_folds, read_predictions
from labelemb.lab.runs.messages import RunOptions

METHODS = ("plain", "label-embedding")


class Source(NamedTuple):
    """Examples with their labels and the most similar label of each, the recipe, and how flipped data is written."""

    recipe: Recipe
    inputs: Any
    labels: np.ndarray
    names: list[str]
    similar: np.ndarray

    def write(self, given: np.ndarray, folder: Path) -> Path:
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
    return Source(load_recipe("text-csv"), list(texts), labels, names.tolist(), most_similar(features, labels))


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


def train(source: Source, method: str, given: np.ndarray, path: Path, folds: int, seed: int) -> Trained:
    recipe = source.recipe
    if folds == 1:
        recipe = msgspec.structs.replace(recipe, train=msgspec.structs.replace(recipe.train, dev=False))
    found, seconds = [], 0.0
    for number in range(folds):
        with tempfile.TemporaryDirectory() as folder:
            fold = Fold(number, folds, seed=seed)
            result = train_run(recipe, method, seed, path, folder, fold=fold, options=RunOptions(threads=1))
            found.append(read_predictions(Path(folder)))
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


def rankings(source: Source, given: np.ndarray, path: Path, folds: int, seed: int) -> dict[str, tuple[Any, Any, float]]:
    """For each side: what ranks, what it ranks, and the seconds of training before it."""
    found: dict[str, tuple[Any, Any, float]] = {}
    for method in METHODS:
        alone = train(source, method, given, path, 1, seed)
        probabilities = dense(alone.joined, len(source.names))
        found[f"{method}, in sample, last prediction"] = (ours, probabilities, alone.seconds)
        found[f"{method}, in sample, averaged loss"] = (lambda joined, _: by_loss(joined), alone.joined, alone.seconds)
        out = train(source, method, given, path, folds, seed)
        probabilities = dense(out.joined, len(source.names))
        found[f"{method}, out of fold"] = (ours, probabilities, out.seconds)
        if method == "plain":
            found["cleanlab, plain out of fold"] = (cleanlab_flags, probabilities, out.seconds)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", choices=("clinc150", "mnist"))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3, help="noise seeds (3)")
    parser.add_argument("--examples", type=int, default=10_000, help="examples of each label (10,000)")
    parser.add_argument("--folds", type=int, default=3)
    parser.add_argument("--share", type=float, default=0.1, help="share of the labels that are flipped (0.1)")
    options = parser.parse_args()
    source = {"clinc150": clinc150, "mnist": mnist}[options.source](options.data, options.examples)
    print("| flipped to | ranked by | precision at flips | average precision | flags | precision | recall | seconds |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for noise, similar in (("a random label", None), ("the most similar label", source.similar)):
        scores: dict[str, list[Score]] = {}
        for seed in range(options.seeds):
            given = flip(source.labels, options.share, similar, seed)
            with tempfile.TemporaryDirectory() as folder:
                path = source.write(given, Path(folder))
                for name, (side, ranked, seconds) in rankings(source, given, path, options.folds, seed).items():
                    try:
                        score = measure(side, ranked, given, given != source.labels)
                    except ImportError:
                        continue  # cleanlab is not installed
                    scores.setdefault(name, []).append(score._replace(seconds=score.seconds + seconds))
        for name, own in scores.items():
            print(row(noise, name, own), flush=True)


if __name__ == "__main__":
    main()
