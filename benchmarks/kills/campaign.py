"""Trains a run uninterrupted, then again and again with kills, and compares every file byte by byte."""

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SETTINGS = ("train.epochs=3", "body.hidden=[8]", "train.batch_size=8", "body.embedding_size=8", "body.dropout=0.2")
TIMES = ("seconds", "seconds_per_epoch")
"""What a clock wrote, and no two trainings have in common."""
MOST_KILLS = 12
"""Of one training, before it is let run to its end."""


@dataclass
class Outcome:
    """How a campaign went."""

    kills: int = 0
    trainings: int = 0
    after_training: int = 0
    """Kills after the last update: while the last files were written."""
    problems: list[str] = field(default_factory=list)


class Victims:
    """The process that forks trainings, and how many operations an uninterrupted one does."""

    def __init__(self, place: Path) -> None:
        self.place = place
        command = [sys.executable, "-m", "benchmarks.kills.victim"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.calls = place / "calls"

    def run(self, arguments: list[str], operation: int | str | None) -> int:
        """Run a command in a child that is killed at an operation; its wait status."""
        order = {"arguments": arguments, "operation": operation, "calls": str(self.calls)}
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps(order), file=self.process.stdin, flush=True)
        status: int = json.loads(self.process.stdout.readline())
        return status

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def run_campaign(kills: int, seed: int, place: Path) -> Iterator[Outcome]:
    """Kill trainings until there were so many kills; yields the outcome so far after each training."""
    data = _write_data(place)
    victims = Victims(place)
    rng, outcome = random.Random(seed), Outcome()
    try:
        victims.run(_command(data, place / "warm"), "warm up")
        whole = place / "whole"
        if victims.run(_command(data, whole), None) != 0:
            raise RuntimeError("the training fails by itself")
        operations, expected = int(victims.calls.read_text()), contents(whole)
        last = _operations_after_training(victims, data, place)
        while outcome.kills < kills:
            killed = place / "killed"
            shutil.rmtree(killed, ignore_errors=True)
            _train_with_kills(victims, _command(data, killed), rng, operations, last, kills, outcome)
            for problem in differences(expected, contents(killed)):
                outcome.problems.append(f"after kill {outcome.kills} (seed {seed}): {problem}")
            yield outcome
    finally:
        victims.close()


def _train_with_kills(
    victims: Victims, command: list[str], rng: random.Random, operations: int, last: int, kills: int, outcome: Outcome
) -> None:
    """One training, killed several times on its way and at last let run to its end."""
    outcome.trainings += 1
    for _ in range(MOST_KILLS):
        if outcome.kills >= kills:
            break
        late = rng.random() < 0.35
        operation = operations - rng.randint(1, last) if late else rng.randrange(operations)
        status = victims.run(command, operation)
        if status == 0:  # it came to its end before the operation: a resumed training has fewer
            return
        if status != 9:
            outcome.problems.append(f"after kill {outcome.kills}: the command ended with {status} in place of a kill")
            return
        outcome.kills += 1
        outcome.after_training += late
    if (status := victims.run(command, None)) != 0:
        outcome.problems.append(f"after kill {outcome.kills}: the command failed with {status}")


def _operations_after_training(victims: Victims, data: Path, place: Path) -> int:
    """How many operations a training does when only its end is left to do."""
    folder = place / "end"
    command = [*_command(data, folder), "--keep-checkpoints"]
    victims.run(command, None)
    (folder / "result.json").unlink()
    victims.run(command, None)
    return int(victims.calls.read_text())


def contents(folder: Path) -> dict[str, Any]:
    """Every file of a run: bytes, or for files with times in them their values without these."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if not path.is_file():
            found[name] = "a folder"
        elif path.suffix in (".json", ".jsonl"):
            found[name] = [_without_times(json.loads(line)) for line in _documents(path)]
        else:
            found[name] = path.read_bytes()
    return found


def differences(expected: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """In which files two runs differ, those left over included."""
    names = sorted(expected.keys() | found.keys())
    words = {(True, False): "is missing", (False, True): "is left over", (True, True): "differs"}
    return [
        f"{name} {words[name in expected, name in found]}" for name in names if expected.get(name) != found.get(name)
    ]


def _documents(path: Path) -> list[str]:
    text = path.read_text()
    return text.splitlines() if path.suffix == ".jsonl" else [text]


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_times(entry) for key, entry in value.items() if key not in (*TIMES, "command")}
    return [_without_times(entry) for entry in value] if isinstance(value, list) else value


def _command(data: Path, out: Path) -> list[str]:
    settings = [word for setting in SETTINGS for word in ("--set", setting)]
    running = ["--threads", "1", "--checkpoint-seconds", "0"]
    return ["train", "text-csv", *settings, "--data", str(data), "--out", str(out), *running]


def _write_data(place: Path) -> Path:
    place.mkdir(parents=True, exist_ok=True)
    rows = [f"{label} words {number % 5},{label}" for number in range(12) for label in ("music", "weather", "food")]
    data = place / "texts.csv"
    data.write_text("\n".join(["text,label", *rows]) + "\n")
    return data
