"""How well learned similarities agree with the 20 coarse classes of CIFAR-100, which are not used in training.

python -m benchmarks.coarse_labels FOLDER                 # of a comparison on CIFAR-100
python -m benchmarks.coarse_labels FOLDER --out KEPT      # and keep the measures in KEPT/scores.json

For each method, as a mean over its seeds: the mean rank of a label's four relatives (of the same coarse class) among
the 99 other labels, sorted by similarity; 2.5 is perfect, 50 is chance. There are two similarities: the run's label
space (label embedding, or the table of online smoothing), and for every method the rows of its confusion matrix on the
test set, whose empty cells share their ranks. The table also counts the pairs of the paper's heatmap in which each
label is among the other's five nearest.
"""

import argparse
import json
from collections.abc import Iterable, Iterator
from itertools import combinations
from pathlib import Path
from statistics import fmean, stdev
from typing import NamedTuple

import msgspec
import numpy as np
from scipy.stats import rankdata

from labelemb import LabelSpace
from labelemb.lab.comparison.tables import markdown
from labelemb.lab.recipes.recipe import load_recipe
from labelemb.lab.runs.folder import RunFolder, find_runs, keep_recipe
from labelemb.lab.runs.labels import load_space
from labelemb.lab.runs.result import machine
from labelemb.lab.tasks.records import Confusion, read_record
from labelemb.support.files import make_folder, write_text

PAPER_GROUPS = (("bottle", "can"), ("bowl", "cup", "plate"), ("man", "woman", "boy"))
PAPER_PAIRS = [pair for group in PAPER_GROUPS for pair in combinations(group, 2)]
NEAREST = 5


def ranks(similarity: np.ndarray) -> np.ndarray:
    """(labels, labels): the rank of each other label by similarity, 1 the most similar; equal ones share theirs."""
    others = similarity.astype(np.float64)
    np.fill_diagonal(others, -np.inf)  # last, so that it takes no rank from the others
    return rankdata(-others, axis=1)


def confusion_counts(confusion: Confusion) -> np.ndarray:
    counts = np.zeros((len(confusion.labels), len(confusion.labels)))
    for target, predicted, count in confusion.wrong:
        counts[target, predicted] = count
    return counts


def relatives_rank(ranked: np.ndarray, names: list[str], coarse: dict[str, list[str]]) -> float:
    """The mean rank of labels of the same coarse class."""
    place = {name: index for index, name in enumerate(names)}
    pairs = [(place[a], place[b]) for members in coarse.values() for a, b in combinations(members, 2)]
    return float(np.mean([(ranked[a, b] + ranked[b, a]) / 2 for a, b in pairs]))


def paper_pairs(ranked: np.ndarray, names: list[str]) -> int:
    """How many pairs of the paper's three groups are among each other's nearest."""
    pairs = [(names.index(a), names.index(b)) for a, b in PAPER_PAIRS]
    return sum(bool(max(ranked[a, b], ranked[b, a]) <= NEAREST) for a, b in pairs)


class Measure(NamedTuple):
    """How well one similarity of a run knows the coarse classes."""

    method: str
    source: str
    rank: float
    """Mean rank of relatives."""
    pairs: int
    """Pairs of the paper that are found."""


def measure(run: RunFolder, coarse: dict[str, list[str]]) -> Iterator[Measure]:
    """A measure of each similarity that a run has."""
    result = run.require_result()
    confusion = read_record(run.path / "confusion.json", Confusion)
    sources = [("confusion matrix", confusion.labels, confusion_counts(confusion))]
    if run.labels_file.exists():
        space = load_space(run.path)
        sources.insert(0, ("label space", list(space.names), space.matrix().numpy()))
    for source, names, similarity in sources:
        ranked = ranks(similarity)
        yield Measure(result.method, source, relatives_rank(ranked, names, coarse), paper_pairs(ranked, names))


def table(measures: Iterable[Measure]) -> str:
    """A row for each method and similarity, the best first: means over the seeds."""
    by_kind: dict[tuple[str, str], list[Measure]] = {}
    for one in measures:
        by_kind.setdefault((one.method, one.source), []).append(one)
    found = sorted(by_kind.items(), key=lambda item: fmean(one.rank for one in item[1]))
    rows = [
        [
            method,
            source,
            str(len(own)),
            f"{fmean(one.rank for one in own):.1f}" + (f" ± {stdev(one.rank for one in own):.1f}" if own[1:] else ""),
            f"{fmean(one.pairs for one in own):.1f} of {len(PAPER_PAIRS)}",
        ]
        for (method, source), own in found
    ]
    return markdown(["method", "similarity", "seeds", "mean rank of relatives", "pairs of the paper"], rows)


def keep_scores(out: Path, measures: list[Measure]) -> None:
    make_folder(out)
    kept = {"machine": msgspec.to_builtins(machine()), "measures": [one._asdict() for one in measures]}
    write_text(out / "scores.json", json.dumps(kept, indent=1) + "\n")


def read_scores(out: Path) -> list[Measure]:
    """Measures that were kept."""
    return [Measure(**one) for one in json.loads((out / "scores.json").read_text())["measures"]]


def coarse_classes(spaces: Iterator[LabelSpace]) -> dict[str, list[str]]:
    for space in spaces:
        if space.superclasses:
            return {name: list(members) for name, members in space.superclasses.items()}
    raise SystemExit(
        "no run has a label space with coarse classes: name a comparison on CIFAR-100 with label-embedding"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, help="folder for scores.json and recipe.toml")
    options = parser.parse_args()
    runs = [run for run in find_runs(options.folder) if run.result() is not None]
    coarse = coarse_classes(load_space(run.path) for run in runs if run.labels_file.exists())
    measures = [one for run in runs for one in measure(run, coarse)]
    if options.out is not None:
        keep_scores(options.out, measures)
        keep_recipe(options.out / "recipe.toml", load_recipe(str(options.folder / "recipe.toml")))
    print(table(measures))


if __name__ == "__main__":
    main()
