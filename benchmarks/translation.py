"""Speed and memory of translation: training and beam search, methods interleaved in the same run.

    python -m benchmarks.translation                  all tables at full size, on a quiet machine
    python -m benchmarks.translation --tiny           every table at toy sizes, to see that it runs

training   target tokens a second of label embedding (the library's default, and the authors' form with a compressed
           embedding that observes all rows) and of plain, and the time of body, head and optimiser alone.
stepwise   the same model written with a Python step for each target position and a beam for each sentence
           (`benchmarks/stepwise.py`). Whole sequences are a few large products instead of many small ones, and the
           beams of a batch share each of the decoder's products. The targets: 1.3 times and 2 times its speed.
beam       beam 10 compared with greedy search. The targets: at most 12 times the time, and at least 0.8 of the
           hypothesis tokens a second.
full       the paper's two text experiments at full size: milliseconds a step and peak memory, each in its own process;
           and the embedding of 50,000 labels, dense and compressed.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.__main__ import machine, markdown
from benchmarks.naive import zipf_labels
from benchmarks.stepwise import sentence_beam, stepwise_loss
from benchmarks.timing import best_seconds
from labelemb import Head, LabelEmbeddingHead, Objective, PlainHead
from labelemb.lab.bodies.seq2seq import Seq2Seq
from labelemb.lab.data.pairs.sequences import Ragged, SequenceExamples
from labelemb.lab.tasks.beam import SearchOptions, Symbols, search

SYMBOLS = Symbols(begin=1, end=2)
MEGABYTE = 1024**2
Row = dict[str, object]


@dataclass(frozen=True)
class Size:
    """A model and its batches."""

    labels: int
    hidden: int = 512
    embedding: int = 512
    layers: int = 2
    rank: int = 100
    pairs: int = 64
    source: int = 20
    target: int = 20
    bidirectional: bool = False


TINY = Size(labels=60, hidden=16, embedding=16, layers=1, rank=4, pairs=6, source=7, target=6)
MULTI30K = Size(labels=8000, hidden=256, embedding=256, layers=1, source=13, target=13)
IWSLT = Size(labels=22_439, source=21, target=26)
LCSTS = Size(labels=4000, hidden=500, embedding=400, layers=1, source=104, target=18)


def make_pairs(size: Size, count: int) -> SequenceExamples:
    """Random pairs whose lengths vary by a quarter around those of the size, words drawn by Zipf's law."""
    torch.manual_seed(0)

    def draw(mean: int) -> Ragged:
        lengths = (mean * (0.75 + 0.5 * torch.rand(count))).round().long().clamp_min(1)
        values = zipf_labels(int(lengths.sum()), size.labels - 3).int() + 3
        starts = torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)])
        return Ragged(values, starts)

    target = draw(size.target)
    target.values[target.starts[1:] - 1] = SYMBOLS.end
    return SequenceExamples(draw(size.source), target, SYMBOLS.begin)


def make_body(size: Size) -> Seq2Seq:
    torch.manual_seed(0)
    sizes = {"embedding_size": size.embedding, "hidden_size": size.hidden, "layers": size.layers}
    return Seq2Seq(size.labels, size.labels, **sizes, bidirectional=size.bidirectional)


def make_head(size: Size, kind: str) -> Head:
    torch.manual_seed(0)
    if kind == "plain":
        return PlainHead(size.hidden, size.labels)
    if kind == "default":
        return LabelEmbeddingHead(size.hidden, size.labels)
    objective = Objective.authors_text().replace(soft_start=0)
    options: dict[str, Any] = {"embedding": "compressed", "rank": size.rank, "observe_rows": None}
    return LabelEmbeddingHead(size.hidden, size.labels, objective=objective, **options)


class Step:
    """A training step on one batch, and its three parts alone."""

    def __init__(self, size: Size, kind: str) -> None:
        self.body, self.head = make_body(size), make_head(size, kind)
        self.parameters = [*self.body.parameters(), *self.head.parameters()]
        self.optimizer = torch.optim.Adam(self.parameters, fused=True)
        examples = make_pairs(size, size.pairs)
        self.inputs, self.targets = examples.batch(torch.arange(size.pairs))
        self.tokens = examples.rows
        self()  # gradients and the optimiser's state are there from now on

    def __call__(self) -> None:
        self.optimizer.zero_grad()
        self.head(self.body(*self.inputs), self.targets).loss.backward()
        self.optimizer.step()

    def body_alone(self) -> None:
        hidden = self.body(*self.inputs)
        hidden.backward(torch.ones_like(hidden))

    def head_alone(self) -> None:
        hidden = torch.rand(*self.targets.shape, self.head.in_features, requires_grad=True)
        self.head(hidden, self.targets).loss.backward()


def measure_training(rounds: int, tiny: bool) -> list[Row]:
    rows = []
    for size in [TINY] if tiny else [Size(8000), Size(22_439)]:
        steps = {kind: Step(size, kind) for kind in ("plain", "default", "authors")}
        whole = best_seconds(dict(steps), rounds=rounds)
        for kind, step in steps.items():
            parts: dict[str, Callable[[], object]] = {
                "body": step.body_alone,
                "head": step.head_alone,
                "optimiser": step.optimizer.step,
            }
            alone = best_seconds(parts, rounds=rounds)
            rows.append(
                {
                    "labels": size.labels,
                    "method": kind,
                    "target tokens/s": f"{step.tokens / whole[kind]:.0f}",
                    "ms a step": f"{1000 * whole[kind]:.1f}",
                    "of plain": f"{whole[kind] / whole['plain']:.2f}",
                    **{f"{part} ms": f"{1000 * seconds:.1f}" for part, seconds in alone.items()},
                }
            )
    return rows


def measure_stepwise(rounds: int, tiny: bool) -> list[Row]:
    size = TINY if tiny else MULTI30K
    step = Step(size, "plain")
    other = Step(size, "plain")

    def stepwise() -> None:
        other.optimizer.zero_grad()
        stepwise_loss(other.body, other.head, other.inputs, other.targets).backward()
        other.optimizer.step()

    seconds = best_seconds({"lab": step, "stepwise": stepwise}, rounds=rounds)
    training = {name: step.tokens / value for name, value in seconds.items()}
    count = 6 if tiny else 64
    options = SearchOptions(3 if tiny else 10, max_length=size.target)
    examples = make_pairs(size, count)
    body, head = make_body(size).eval(), make_head(size, "plain").eval()
    source, lengths = examples.source_batch(torch.arange(count))

    def one_by_one() -> None:
        for row, length in enumerate(lengths.tolist()):
            sentence_beam(body, head, source[row : row + 1, :length], lengths[row : row + 1], SYMBOLS, options)

    sides: dict[str, Callable[[], object]] = {
        "lab": lambda: search(body, head, source, lengths, SYMBOLS, options),
        "stepwise": one_by_one,
    }
    searching = {name: count / value for name, value in best_seconds(sides, rounds=rounds).items()}
    return [
        against("training, target tokens/s", training),
        against(f"beam {options.beam}, sentences/s", searching),
    ]


def against(name: str, speeds: dict[str, float]) -> Row:
    """A row of two speeds, the lab's first, and their ratio."""
    lab, other = speeds.values()
    return {"what": name, **{side: f"{speed:.1f}" for side, speed in speeds.items()}, "ratio": f"{lab / other:.2f}"}


def measure_beam(rounds: int, tiny: bool) -> list[Row]:
    """The end symbol is made unlikely, so that every hypothesis has the same length in both searches."""
    size = TINY if tiny else MULTI30K
    count = 8 if tiny else 1000
    examples = make_pairs(size, count)
    body, head = make_body(size).eval(), make_head(size, "plain").eval()
    with torch.no_grad():
        head.predictor.bias[SYMBOLS.end] -= 100.0
    words = size.target
    greedy = SearchOptions(1, max_length=words)
    beam = replace(greedy, beam=3 if tiny else 10)

    def generate(options: SearchOptions) -> Callable[[], object]:
        batches = [examples.source_batch(index) for index in examples.batches(max(1, 640 // options.beam), None)]

        def call() -> None:
            for source, lengths in batches:
                search(body, head, source, lengths, SYMBOLS, options)

        return call

    seconds = best_seconds({"greedy": generate(greedy), "beam": generate(beam)}, rounds=rounds)
    tokens = {"greedy": count * words / seconds["greedy"], "beam": beam.beam * count * words / seconds["beam"]}
    return [
        {
            "search": f"beam {options.beam}",
            "s for all": f"{seconds[name]:.2f}",
            "of greedy": f"{seconds[name] / seconds['greedy']:.2f}",
            "hypothesis tokens/s": f"{tokens[name]:.0f}",
            "of greedy's": f"{tokens[name] / tokens['greedy']:.2f}",
        }
        for name, options in (("greedy", greedy), ("beam", beam))
    ]


def measure_full(rounds: int, tiny: bool) -> list[Row]:
    sizes = {"tiny": TINY} if tiny else {"iwslt15-en-vi": IWSLT, "lcsts": LCSTS}
    rows: list[Row] = []
    for name in sizes:
        for kind in ("plain", "label embedding"):
            command = [sys.executable, "-m", "benchmarks.translation", "--child", name, kind, str(rounds)]
            milliseconds, peak = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
            embedding = sizes[name].labels * sizes[name].rank * 8 / MEGABYTE if kind != "plain" else 0.0
            rows.append(_full_row(name, kind, milliseconds, f"{int(peak) / MEGABYTE:.0f}", f"{embedding:.1f}"))
    rows.append(_full_row("50,000 labels", "dense embedding", "-", "-", f"{50_000**2 * 4 / MEGABYTE:.1f}"))
    rows.append(_full_row("50,000 labels", "rank 100", "-", "-", f"{50_000 * 100 * 8 / MEGABYTE:.1f}"))
    return rows


def _full_row(name: str, kind: str, milliseconds: str, peak: str, embedding: str) -> Row:
    return {"experiment": name, "": kind, "ms a step": milliseconds, "peak MB": peak, "embedding MB": embedding}


def run_child(name: str, kind: str, steps: int) -> None:
    """A process of its own: prints milliseconds a step, the fastest, and the peak of its resident bytes."""
    step = Step({"tiny": TINY, "iwslt15-en-vi": IWSLT, "lcsts": LCSTS}[name], kind)
    fastest = float("inf")
    for _ in range(steps):
        start = time.perf_counter()
        step()
        fastest = min(fastest, time.perf_counter() - start)
    status = Path("/proc/self/status").read_text().splitlines()
    peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) * 1024
    print(f"{1000 * fastest:.1f}", peak)


TABLES: dict[str, Callable[[int, bool], list[Row]]] = {
    "training": measure_training,
    "stepwise": measure_stepwise,
    "beam": measure_beam,
    "full": measure_full,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=f"of {', '.join(TABLES)}; all by default")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of which the best counts (5)")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="CPU threads (all)")
    parser.add_argument("--tiny", action="store_true", help="toy sizes")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.child:
        run_child(options.child[0], options.child[1], int(options.child[2]))
        return
    unknown = set(options.tables) - set(TABLES)
    if unknown:
        parser.error(f"unknown table {min(unknown)!r}: choose from {', '.join(TABLES)}")
    print(machine())
    for name in options.tables or TABLES:
        rows = TABLES[name](options.rounds, options.tiny)
        print(f"\n{name} (`python -m benchmarks.translation {name} --rounds {options.rounds}`)\n\n{markdown(rows)}")


if __name__ == "__main__":
    main()
