"""Cases of the fuzz about audits and searches: their folders damaged, then read or gone on with."""

import json
import shutil
from pathlib import Path
from random import Random

from benchmarks.fuzz.case import Case
from benchmarks.fuzz.damage import damage_bytes, damage_file, damage_json, damage_lines, damage_run
from benchmarks.fuzz.workbench import Workbench

LINES = (".csv", ".journal")
"""Endings of files that are also damaged line by line."""


def audit_case(rng: Random, bench: Workbench, place: Path) -> Case:
    """An audit with a damaged file: its corrections applied, or its findings made again."""
    kind = rng.choice(("texts", "texts", "images"))
    folder = shutil.copytree(bench.audits[kind], place / "audit")
    if rng.random() < 0.35:
        about, _ = damage_run(rng.choice(sorted(folder.glob("*/fold-*"))), rng)
        return Case("audit", [*bench.audit_words(kind), "--out", str(folder)], about)
    file = folder / rng.choice(("audit.csv", "corrections.csv", "audit.json"))
    about = _damage_one(file, rng)
    words = ["audit", "apply", str(folder / "audit.csv"), str(folder / "corrections.csv")]
    more = rng.choice(([], ["--new-labels"], ["--json"]))
    return Case("audit", [*words, "--out", str(place / "cleaned.csv"), *more], about)


def search_case(rng: Random, bench: Workbench, place: Path) -> Case:
    """A search with a damaged journal or run, gone on with."""
    folder = shutil.copytree(bench.choice, place / "choice")
    if rng.random() < 0.5:
        about = _damage_one(folder / "search" / "study.journal", rng)
    elif rng.random() < 0.2:
        about = _damage_one(rng.choice(sorted(file for file in folder.rglob("recipe.toml"))), rng)
    else:
        about, _ = damage_run(rng.choice(sorted(folder.glob("*/*/seed-*"))), rng)
    more = rng.choice((["--trials", "3"], ["--trials", "3", "--json"], ["--trials", "4"]))
    return Case("search", [*bench.choose_words, "--out", str(folder), *more], about)


def _damage_one(file: Path, rng: Random) -> str:
    """Damage one file; what was done."""
    if rng.random() < 0.06:
        file.unlink()
        if rng.random() < 0.5:
            file.mkdir()
            return f"{file.name} is a folder"
        return f"{file.name} removed"
    if file.suffix == ".journal" and rng.random() < 0.5:
        lines = file.read_bytes().splitlines()
        index = rng.randrange(len(lines))
        lines[index] = damage_json(lines[index], rng)
        file.write_bytes(b"\n".join(lines) + b"\n")
        return f"an entry of {file.name}"
    if file.suffix in LINES and rng.random() < 0.5:
        file.write_bytes(rng.choice((damage_bytes, damage_lines, damage_lines))(file.read_bytes(), rng))
        return f"a line of {file.name}"
    if file.name == "audit.json" and rng.random() < 0.5:
        content = json.loads(file.read_bytes())
        content["about"] = json.loads(damage_json(json.dumps(content["about"]).encode(), rng))
        file.write_text(json.dumps(content))
        return "how the audit was made"
    damage_file(file, rng)
    return file.name
