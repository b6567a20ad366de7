"""Cases of the fuzz: from a number to a damaged copy of some files and the command that reads it."""

import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

from benchmarks.fuzz.case import Case
from benchmarks.fuzz.damage import (
    ODD_NUMBERS,
    ODD_TEXTS,
    damage_bytes,
    damage_checkpoint,
    damage_file,
    damage_lines,
    damage_run,
    damage_toml,
)
from benchmarks.fuzz.finding_cases import audit_case, search_case
from benchmarks.fuzz.workbench import (
    IMAGE_SETTINGS,
    PAIR_SETTINGS,
    TEXT_SETTINGS,
    Workbench,
    data_and_out,
    settings_words,
)
from labelemb.lab.recipes.recipe import recipe_names, recipe_text

SHORT = ("train.epochs=1",)


def make_case(number: int, seed: int, bench: Workbench, place: Path) -> Case:
    """Case `number` of a campaign, made in the folder `place`."""
    rng = Random(f"{seed}:{number}")
    kinds: tuple[tuple[str, Callable[[Random, Workbench, Path], Case]], ...] = (
        *(("run folder", _run_folder), ("run folder", _run_folder), ("stopped run", _stopped_run)),
        *(("comparison", _comparison), ("label file", _label_file), ("data", _data), ("recipe", _recipe)),
        *(("inputs", _inputs), ("arguments", _arguments), ("arguments", _arguments)),
        *(("audit", audit_case), ("search", search_case)),
    )
    _, make = kinds[number % len(kinds)]
    return make(rng, bench, place)


def _run_folder(rng: Random, bench: Workbench, place: Path) -> Case:
    kind = rng.choice(("texts", "texts", "images", "pairs"))
    run = shutil.copytree(bench.runs[kind], place / "run")
    about, signed = damage_run(run, rng)
    return Case("run folder", _reading(rng, kind, run, bench), about, None if signed else bench.runs[kind])


def _comparison(rng: Random, bench: Workbench, place: Path) -> Case:
    folder = shutil.copytree(bench.comparison, place / "comparison")
    about, _ = damage_run(rng.choice(sorted(folder.glob("*/seed-*"))), rng)
    again = ("compare", "text-csv", *settings_words(TEXT_SETTINGS), "--data", str(bench.table), "--seeds", "2")
    arguments = ["report", str(folder)]
    if rng.random() < 0.2 and all(run.joinpath("result.json").exists() for run in folder.glob("*/seed-*")):
        arguments = [*again, "--out", str(folder)]  # draws pictures, which takes long
    return Case("comparison", arguments, about)


def _stopped_run(rng: Random, bench: Workbench, place: Path) -> Case:
    run = shutil.copytree(bench.stopped, place / "run")
    if rng.random() < 0.6:
        damage_checkpoint(run / "checkpoint", rng)
        about = "checkpoint, signed"
    else:
        about, _ = damage_run(run, rng)
    again = ["train", "text-csv", *settings_words(TEXT_SETTINGS), "--data", str(bench.table), "--out", str(run)]
    return Case("stopped run", rng.choice((again, again, ["report", str(run)])), about)


def _label_file(rng: Random, bench: Workbench, place: Path) -> Case:
    intact = rng.choice(bench.labels)
    file = Path(shutil.copy(intact, place / intact.name))
    if file.suffix == ".csv":
        file.write_bytes(rng.choice((damage_bytes, damage_lines))(file.read_bytes(), rng))
    else:
        damage_file(file, rng)
    arguments = rng.choice(
        (
            ["nearest", str(file), "music"],
            ["nearest", str(file), "--frequent", "2", "--json"],
            ["heatmap", str(file), "--json"],
            ["map", str(file), "--json"],
            [
                "train",
                "text-csv",
                *settings_words(TEXT_SETTINGS),
                *data_and_out(bench.table, place),
                "--labels",
                str(file),
            ],
        )
    )
    return Case("label file", arguments, file.name)


def _data(rng: Random, bench: Workbench, place: Path) -> Case:
    kind = rng.choice(("texts", "images", "pairs"))
    if kind == "texts":
        data = Path(shutil.copy(bench.table, place / "texts.csv"))
        data.write_bytes(rng.choice((damage_bytes, damage_lines))(data.read_bytes(), rng))
        return Case(
            "data", ["train", "text-csv", *settings_words(TEXT_SETTINGS), *data_and_out(data, place)], "texts.csv"
        )
    if kind == "images":
        data = shutil.copytree(bench.images, place / "images")
        file = rng.choice(sorted(data.glob("*/*.png")))
        file.write_bytes(damage_bytes(file.read_bytes(), rng))
        if rng.random() < 0.2:
            file.rename(file.with_name(rng.choice(("x" * 200, "\u202ea\x1b", "noend")) + file.suffix))
        arguments = ["train", "image-folder", *settings_words(IMAGE_SETTINGS), *data_and_out(data, place)]
        return Case("data", arguments, str(file.relative_to(place)))
    data = shutil.copytree(bench.path / "pairs", place / "pairs")
    file = rng.choice(sorted(data.iterdir()))
    file.write_bytes(rng.choice((damage_bytes, damage_lines))(file.read_bytes(), rng))
    arguments = ["train", "multi30k-en-de-small", *settings_words(PAIR_SETTINGS), *data_and_out(data, place)]
    return Case("data", arguments, file.name)


def _recipe(rng: Random, bench: Workbench, place: Path) -> Case:
    name = rng.choice(recipe_names())
    file = place / "mine.toml"
    content = recipe_text(name).encode()
    file.write_bytes(rng.choice((damage_toml, damage_toml, damage_bytes, damage_lines))(content, rng))
    data, settings = (bench.table, TEXT_SETTINGS) if name == "text-csv" else (place / "nowhere", SHORT)
    return Case("recipe", ["train", str(file), *settings_words(settings), *data_and_out(data, place)], name)


def _inputs(rng: Random, bench: Workbench, place: Path) -> Case:
    """New inputs for a trained model."""
    kind, intact = rng.choice(
        (("texts", bench.table), ("texts", bench.path / "lines.txt"), ("images", bench.images / "food" / "0.png"))
    )
    file = Path(shutil.copy(intact, place / intact.name))
    file.write_bytes(damage_bytes(file.read_bytes(), rng))
    if rng.random() < 0.3:
        file = file.rename(file.with_suffix(rng.choice((".csv", ".tsv", ".jsonl", ".json", ".txt", ".png", ".gz"))))
    return Case("inputs", ["predict", str(bench.runs[kind]), str(file)], file.name)


def _arguments(rng: Random, bench: Workbench, place: Path) -> Case:
    """A command in order, with one to three words replaced, added or removed."""
    run, out = str(bench.runs["texts"]), str(place / "out")
    table, lines = (Path(shutil.copy(bench.path / name, place)) for name in ("texts.csv", "lines.txt"))
    commands: tuple[list[str], ...] = (
        ["train", "text-csv", *settings_words(TEXT_SETTINGS), *data_and_out(table, place), "--seed", "1"],
        ["train", "text-csv", *settings_words(TEXT_SETTINGS), *data_and_out(table, place), "--method", "plain"],
        ["nearest", run, "music", "-k", "2"],
        ["heatmap", run, "--labels", "music,food", "--json"],
        ["map", run, "--json"],
        ["predict", run, str(lines), "-k", "2"],
        ["evaluate", run, "--data", str(table)],
        ["report", run, "-o", f"{out}.html"],
        ["translate", str(bench.runs["pairs"]), "--beam", "2", "--max-length", "3", "--n-best", "2"],
        ["recipes", "show", "digits"],
        ["recipes", "copy", "digits", f"{out}.toml"],
        ["data", "where", "mnist", "--data", str(place)],
        ["nearest", str(bench.labels[0]), "--list", str(lines)],
        ["compare", "text-csv", *settings_words(TEXT_SETTINGS), *data_and_out(table, place), "--seeds", "1"],
        [*bench.audit_words("texts"), "--seed", "0", "--parts", "train", "--out", out],
        [
            "audit",
            "apply",
            *(str(bench.audits["texts"] / f"{name}.csv") for name in ("audit", "corrections")),
            "--out",
            out,
        ],
        [*bench.choose_words, "--trials", "1", "--budget", "2s", "--out", out],
        ["card", run, "-o", f"{out}.md"],
        ["export", run, "-o", f"{out}.pt2", "--format", "torch"],
        ["evaluate", run, "--worst", "2", "--csv"],
        ["predict", run, str(lines), "--json", "-o", f"{out}.csv"],
        ["train", "digits", "--set", "train.epochs=0", "--out", out],
    )
    words = list(rng.choice(commands))
    for _ in range(rng.randint(1, 3)):
        _change_words(words, rng, place)
    return Case("arguments", words, " ".join(words))


def _change_words(words: list[str], rng: Random, place: Path) -> None:
    """Change a word. Only files in `place` are named, for a command could write there."""
    flags = ("--json", "--methods", "--seeds", "-k", "--out", "-o", "--labels", "--threads", "--precision", "--set")
    paths = (*map(str, (place, place / "texts.csv", place / "new" / "x.png")), "a" * 300, ".")
    methods = ("plain@", "label-embedding@tau=", "plane")
    odd = (*(text.replace("\x00", "0") for text in ODD_TEXTS), *ODD_NUMBERS, *flags, *paths, *methods)
    index = rng.randrange(1, len(words)) if len(words) > 1 else 0
    way = rng.random()
    if way < 0.6 and words:
        words[index] = rng.choice(odd)
    elif way < 0.8:
        words.insert(index, rng.choice(odd))
    elif words:
        words.pop(index)


def _reading(rng: Random, kind: str, run: Path, bench: Workbench) -> list[str]:
    """A command that reads a run."""
    answers = {
        "texts": ["predict", str(run), str(bench.path / "lines.txt")],
        "images": ["predict", str(run), str(bench.images / "food")],
        "pairs": ["translate", str(run), "--beam", "2"],
    }
    commands = (
        ["evaluate", str(run), "--json"],
        ["evaluate", str(run), "--json"],
        answers[kind],
        ["report", str(run)],
        ["nearest", str(run), "--frequent", "2"],
        ["map", str(run), "--json"],
        ["card", str(run)],
        ["card", str(run)],
        ["evaluate", str(run), "--worst", "3"],
    )
    if rng.random() < 0.04:  # takes seconds
        return ["export", str(run), "--format", rng.choice(("torch", "onnx"))]
    return rng.choice(commands)
