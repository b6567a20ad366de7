"""Which default: the dev scores of the protocol in docs/results.md, what its rule says of them, and the test errors.

python results/default.py
"""

import math
import statistics
from dataclasses import dataclass
from pathlib import Path

from labelemb.lab.comparison.summary import BASELINE, PairedDifference, read_results
from labelemb.lab.comparison.tables import markdown
from labelemb.lab.tasks import task_of_result
from labelemb.lab.tasks.task import MainScore

RUNS = Path(__file__).parent / "runs"
TASKS = {
    "default-mnist-mlp-500": "MNIST, 500 a label",
    "default-clinc150": "CLINC150",
    "default-clinc150-10": "CLINC150, 10 a label",
    "default-clinc150-sgd": "CLINC150, SGD",
    "default-clinc150-tuned": "CLINC150, fine-tuned",
    "default-cifar10-few": "cifar10-few",
    "default-cifar10-few-sgd": "cifar10-few, SGD",
    "default-cifar10-few-tuned": "cifar10-few, fine-tuned",
    "default-cifar100-few": "cifar100-few",
    "default-multi30k": "Multi30k (BLEU)",
}
CANDIDATES = {
    "a1": "label-embedding@halves",
    "a2": "label-embedding@halves+embedding_lr=0.05",
    "b": "label-embedding@halves+embedding=running",
    "c": "label-embedding@halves+soft_weight=0.9+mass_floor=0.9+embedding=running+prior_rows=",
}
PEERS = {
    "plain": BASELINE,
    "label smoothing": "label-smoothing",
    "label smoothing, rising": "label-smoothing@rising",
    "online smoothing": "online-smoothing",
}

TESTED = {
    "clinc150": "CLINC150",
    "clinc150-10": "CLINC150, 10 a label",
    "mnist-mlp": "MNIST, MLP",
    "mnist-cnn-bf16": "MNIST, CNN, bf16",
    "mnist-cnn-narrow": "MNIST, narrow CNN",
    "clinc150-10-vectors": "CLINC150, 10 a label, token vectors",
    "clinc150-10-minilm": "CLINC150, 10 a label, MiniLM",
    "cifar10-few": "cifar10-few",
    "cifar100-few": "cifar100-few",
    "cifar100-small": "cifar100-small",
    "cifar100-pretrained": "cifar100-pretrained",
}
"""Comparisons on test sets, with other seeds than the protocol's."""
TESTED_IN_PROTOCOL = (
    *("default-mnist-mlp-500", "default-clinc150-sgd", "default-clinc150-tuned"),
    *("default-cifar10-few-sgd", "default-cifar10-few-tuned"),
)
"""Tasks of the protocol that have no such comparison: test errors of its own runs."""
BESIDE = ("plain", "label smoothing", "label smoothing, rising", "online smoothing")
"""Peers of the default on the test sets."""
VERDICTS = ("ahead", "level", "behind")

COLUMNS = CANDIDATES | PEERS


@dataclass(frozen=True)
class DevScores:
    """Dev scores of one task, by column and seed."""

    main: MainScore
    values: dict[str, dict[int, float]]

    @property
    def sign(self) -> int:
        """What makes a lower score the better one."""
        return -1 if self.main.higher_is_better else 1

    @property
    def is_complete(self) -> bool:
        return all(self.values.get(name) for name in (BASELINE, *CANDIDATES))

    def mean(self, column: str) -> float:
        return statistics.fmean(self.values[column].values())

    def lag(self, column: str) -> float | None:
        """By how many standard errors of the paired difference a column is behind plain; None with one seed."""
        own, plain = self.values[column], self.values[BASELINE]
        differences = [self.sign * (own[seed] - plain[seed]) for seed in own.keys() & plain.keys()]
        if len(differences) < 2:
            return None
        error = statistics.stdev(differences) / math.sqrt(len(differences))
        return statistics.fmean(differences) / max(error, 1e-9)

    def rank(self, candidate: str) -> float:
        """Among the candidates, 1 the best; equal means share the mean of their ranks."""
        means = [self.sign * self.mean(name) for name in CANDIDATES]
        own = self.sign * self.mean(candidate)
        return 0.5 + sum(mean < own for mean in means) + 0.5 * sum(mean == own for mean in means)


def column_of(method: str) -> str | None:
    """The column of a method; the prior of c differs from task to task."""
    exact = {method: column for column, method in COLUMNS.items()}
    return exact.get(method) or exact.get(method.rstrip("0123456789."))


def dev_scores(folder: Path) -> DevScores | None:
    """The dev scores of a task; None before its first run."""
    values: dict[str, dict[int, float]] = {}
    main = None
    for method, runs in read_results(folder).results.items() if folder.exists() else ():
        if (column := column_of(method)) is not None:
            main = task_of_result(runs[0]).main
            values[column] = {run.seed: getattr(run, main.dev_field) for run in runs}
    return None if main is None else DevScores(main, in_common(values))


def in_common(values: dict[str, dict[int, float]]) -> dict[str, dict[int, float]]:
    """The scores of the seeds that plain and all candidates have: means over different seeds cannot be ranked."""
    seeds = set.intersection(*(set(values.get(name, ())) for name in (BASELINE, *CANDIDATES)))
    kept = {name: {seed: score for seed, score in scores.items() if seed in seeds} for name, scores in values.items()}
    return {name: scores for name, scores in kept.items() if scores}


def cell(scores: DevScores, column: str) -> str:
    if column not in scores.values:
        return "-"
    lag = scores.lag(column) if column in CANDIDATES else None
    return f"{scores.mean(column):.2f}" + (" (behind)" if lag is not None and lag > 1 else "")


def verdict(difference: PairedDifference | None) -> str:
    """The difference of test errors, with a word: level where its 95 % interval holds 0."""
    if difference is None:
        return "-"
    word = "level" if not difference.is_clear else "ahead" if difference.mean < 0 else "behind"
    return f"{difference.mean:+.2f} ({word})"


def tested_row(name: str, title: str, default: str) -> list[str]:
    """The default beside its peers on one test set."""
    summary = read_results(RUNS / name).summary
    assert summary is not None
    own = summary.methods[default]
    return [title, str(len(own.seeds)), *(verdict(own.against.get(PEERS[peer])) for peer in BESIDE)]


def main() -> None:
    tasks = {title: scores for name, title in TASKS.items() if (scores := dev_scores(RUNS / name)) is not None}
    complete = [scores for scores in tasks.values() if scores.is_complete]
    rows = [
        [title, str(len(scores.values.get(BASELINE, ()))), *(cell(scores, column) for column in COLUMNS)]
        for title, scores in tasks.items()
    ]
    behind = {name: sum((scores.lag(name) or 0) > 1 for scores in complete) for name in CANDIDATES}
    ranks = {name: statistics.fmean(scores.rank(name) for scores in complete) for name in CANDIDATES}
    none = [""] * len(PEERS)
    rows.append(["tasks behind plain", str(len(complete)), *map(str, behind.values()), *none])
    rows.append(["mean rank", str(len(complete)), *(f"{rank:.2f}" for rank in ranks.values()), *none])
    print(markdown(["dev score", "n", *COLUMNS], rows))
    best = min(CANDIDATES, key=lambda name: (behind[name], ranks[name]))
    print(f"\nBy the rule, after {len(complete)} of {len(TASKS)} tasks: {best}\n")
    tested = [tested_row(name, title, CANDIDATES[best]) for name, title in TESTED.items()]
    tested += [tested_row(name, f"{TASKS[name]} *", CANDIDATES[best]) for name in TESTED_IN_PROTOCOL]
    counts = [
        [
            f"tasks {word}",
            str(len(tested)),
            *(str(sum(word in row[2 + at] for row in tested)) for at in range(len(BESIDE))),
        ]
        for word in VERDICTS
    ]
    print(markdown([f"{best} on test sets", "n", *BESIDE], tested + counts))


if __name__ == "__main__":
    main()
