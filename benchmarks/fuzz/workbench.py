"""The intact files that the fuzz damages: tiny data, runs, a comparison, audits, a search and label files."""

import contextlib
import csv
import io
import signal
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.fuzz.here import training_here
from labelemb import LabelSpace
from labelemb.lab.cli import command
from labelemb.lab.methods.method import parse_method
from labelemb.lab.recipes.recipe import load_recipe
from labelemb.lab.runs.loop import train_run
from labelemb.lab.runs.messages import Progress, RunOptions
from labelemb.lab.tasks.records import RunResult
from labelemb.support.interrupts import Interrupted, StopRequests

LABELS = ("music", "weather", "food")
SMALL = ("train.epochs=2", "body.hidden=[4]", "train.batch_size=8")
TEXT_SETTINGS = (*SMALL, "body.embedding_size=4")
IMAGE_SETTINGS = ("train.epochs=2", "body.hidden=[4]", "body.kind=mlp", "train.batch_size=8", "data.augment=none")
PAIR_SETTINGS = (
    *("train.epochs=1", "train.batch_size=8", "body.hidden_size=4", "body.embedding_size=4", "data.min_count=1"),
    *("decode.beam=2", "decode.max_length=4", *(f'data.{part}_files=["{part}"]' for part in ("train", "dev", "test"))),
)


@dataclass(frozen=True)
class Workbench:
    """The folder of the intact files, and which of them there are."""

    path: Path

    @property
    def table(self) -> Path:
        return self.path / "texts.csv"

    @property
    def images(self) -> Path:
        return self.path / "images"

    @property
    def runs(self) -> dict[str, Path]:
        """Finished runs by what they learned from."""
        return {name: self.path / "runs" / name for name in ("texts", "images", "pairs")}

    @property
    def stopped(self) -> Path:
        """A run on the texts that was stopped, with two checkpoints."""
        return self.path / "runs" / "stopped"

    @property
    def comparison(self) -> Path:
        return self.path / "comparison"

    @property
    def audits(self) -> dict[str, Path]:
        """Audits with corrections.csv, by what they are about."""
        return {name: self.path / "audits" / name for name in ("texts", "images")}

    def audit_words(self, kind: str) -> list[str]:
        """The command that made an audit, without its folder."""
        recipe, settings, data = {
            "texts": ("text-csv", TEXT_SETTINGS, self.table),
            "images": ("image-folder", IMAGE_SETTINGS, self.images),
        }[kind]
        return ["audit", recipe, *settings_words(settings), "--data", str(data), "--folds", "2", "--jobs", "1"]

    @property
    def choice(self) -> Path:
        """The folder of a search with three trials."""
        return self.path / "choice"

    @property
    def choose_words(self) -> list[str]:
        """The command that made the search, without its folder and number of trials."""
        words = ["choose", "text-csv", *settings_words(TEXT_SETTINGS), "--data", str(self.table)]
        return [*words, "--fresh-seeds", "1", "--jobs", "1"]

    @property
    def labels(self) -> list[Path]:
        return [self.path / name for name in ("dense.safetensors", "top-k.safetensors", "similar.csv")]


def make_workbench(path: Path) -> Workbench:
    """Write all intact files."""
    bench = Workbench(path)
    path.mkdir(parents=True, exist_ok=True)
    _write_data(bench)
    with training_here():
        _train_runs(bench)
        _make_findings(bench)
    matrix = [[0.8, 0.1, 0.1], [0.2, 0.6, 0.2], [0.1, 0.3, 0.6]]
    dense, top_k, table = bench.labels
    LabelSpace.from_matrix(matrix, LABELS).save(dense)
    LabelSpace.from_top_k([[0, 1], [1, 2], [2, 1]], [[0.8, 0.2], [0.6, 0.4], [0.6, 0.4]], LABELS).save(top_k)
    table.write_text(",music,weather,food\nmusic,0.8,0.1,0.1\nweather,0.2,0.6,0.2\nfood,0.1,0.3,0.6\n")
    return bench


def _write_data(bench: Workbench) -> None:
    rows = [f"{label} words {number % 4},{label}" for number in range(8) for label in LABELS]
    bench.table.write_text("\n".join(["text,label", *rows]) + "\n")
    (bench.path / "lines.txt").write_text("music words 1\nweather\n")
    for number, label in enumerate(LABELS):
        folder = bench.images / label
        folder.mkdir(parents=True, exist_ok=True)
        for index in range(6):
            pixels = np.full((6, 6, 3), 60 * number + index, dtype=np.uint8)
            Image.fromarray(pixels).save(folder / f"{index}.png")
    words = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    for part, count in (("train", 20), ("dev", 4), ("test", 4)):
        pairs = [(words[n % 10], words[(n + 1) % 10]) for n in range(count)]
        for side, language in enumerate(("en", "de")):
            lines = "".join(f"{pair[side]} {pair[side]}\n" for pair in pairs)
            (bench.path / "pairs").mkdir(exist_ok=True)
            (bench.path / "pairs" / f"{part}.{language}").write_text(lines)


def _train_runs(bench: Workbench) -> None:
    texts = load_recipe("text-csv", list(TEXT_SETTINGS))
    method = parse_method("label-embedding")

    def train(out: Path, seed: int = 0, name: str = "label-embedding") -> RunResult:
        return train_run(texts, parse_method(name), seed, bench.table, out)

    train(bench.runs["texts"])
    for name in ("plain", "label-embedding"):
        for seed in (0, 1):
            train(bench.comparison / name / f"seed-{seed}", seed, name)
    (bench.comparison / "recipe.toml").write_text(texts.to_toml())
    images = load_recipe("image-folder", list(IMAGE_SETTINGS))
    train_run(images, method, 0, bench.images, bench.runs["images"])
    pairs = load_recipe("multi30k-en-de-small", list(PAIR_SETTINGS))
    train_run(pairs, method, 0, bench.path / "pairs", bench.runs["pairs"])
    stop = StopRequests(enabled=False)

    def hear(progress: Progress) -> None:
        if progress.step >= 4:
            stop.request(signal.SIGINT)

    options = RunOptions(checkpoint_seconds=0)
    try:
        train_run(texts, method, 0, bench.table, bench.stopped, options=options, report=hear, stop=stop)
    except Interrupted:
        return
    raise AssertionError("the run was not stopped")


def _make_findings(bench: Workbench) -> None:
    """Two audits with some corrections, and a search."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        for kind, folder in bench.audits.items():
            command.execute([*bench.audit_words(kind), "--out", str(folder)])
        command.execute([*bench.choose_words, "--trials", "3", "--out", str(bench.choice)])
    for folder in bench.audits.values():
        with (folder / "audit.csv").open(newline="", encoding="utf-8-sig") as file:
            rows = list(csv.DictReader(file))
        marks = zip(rows, ("wrong", "fine", "unsure", "wrong"), ("food", "", "", ""), strict=False)
        lines = [f"{row['index']},{row['id']},{mark},{label}" for row, mark, label in marks]
        (folder / "corrections.csv").write_text("\n".join(["index,id,mark,label", *lines]) + "\n")


def settings_words(settings: tuple[str, ...]) -> list[str]:
    """Settings as words of a command."""
    return [word for setting in settings for word in ("--set", setting)]


def data_and_out(data: Path, place: Path) -> list[str]:
    """Where a command finds its data, and a new folder for what comes of it."""
    return ["--data", str(data), "--out", str(place / "runs" / "new")]
