"""Runs each command uninterrupted, then again and again with kills, and compares every file byte by byte."""

import json
import random
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.kills.commands import VERBS, words, write_data

MOST_KILLS = 12
"""Of one command, before it is let run to its end."""
NOT_COMPARED = ("study.journal",)
"""Optuna's journal has times and the names of processes; what it says of the trials is in choice.json."""


@dataclass
class Outcome:
    """How a campaign went."""

    kills: Counter[str] = field(default_factory=Counter)
    """By verb and who was killed."""
    finished: Counter[str] = field(default_factory=Counter)
    """Commands that came to their end after kills, by verb."""
    late: int = 0
    """Kills that were aimed at the last files."""
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class End:
    """How a command ended."""

    status: int
    operations: int
    killed: bool
    strays: int
    """Workers that were still there long after."""


@dataclass(frozen=True)
class Victim:
    """A command, and what comes of it when nobody kills it."""

    verb: str
    command: list[str]
    folder: Path
    operations: int
    last: int
    """Of the operations, how many come after the last training."""
    expected: dict[str, Any]


class Executioner:
    """The process that forks the commands."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "benchmarks.kills.victim"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, arguments: list[str], operation: int | str | None = None, who: str = "all") -> End:
        """Run a command of which `who` is killed at an operation."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        order = {"arguments": arguments, "operation": operation, "who": who}
        print(json.dumps(order), file=self.process.stdin, flush=True)
        return End(**json.loads(self.process.stdout.readline()))

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def run_campaign(kills: int, seed: int, place: Path, verbs: Sequence[str] = tuple(VERBS)) -> Iterator[Outcome]:
    """Kill commands until there were so many kills; yields the outcome so far after each command."""
    data = write_data(place)
    executioner = Executioner()
    rng, outcome = random.Random(seed), Outcome()
    try:
        victims = [_prepare(executioner, verb, data, place) for verb in verbs]
        while outcome.kills.total() < kills:
            victim = rng.choice(victims)
            shutil.rmtree(victim.folder, ignore_errors=True)
            _run_with_kills(executioner, victim, rng, kills, outcome)
            for problem in differences(victim.expected, contents(victim.folder)):
                outcome.problems.append(f"{victim.verb}, after kill {outcome.kills.total()} (seed {seed}): {problem}")
            outcome.finished[victim.verb] += 1
            yield outcome
    finally:
        executioner.close()


def _prepare(executioner: Executioner, verb: str, data: Path, place: Path) -> Victim:
    """Run a command without kills. All runs of it have one folder, for its name stands in their files."""
    folder = place / verb
    command = words(verb, data, folder)
    executioner.run(command, "warm up")
    shutil.rmtree(folder)
    whole = executioner.run(command)
    if whole.status != 0:
        raise RuntimeError(f"{verb} fails by itself")
    expected = contents(folder)
    if verb == "train":
        command = [*command, "--keep-checkpoints"]
        shutil.rmtree(folder)
        executioner.run(command)
        (folder / "result.json").unlink()
    last = executioner.run(command).operations
    return Victim(verb, words(verb, data, folder), folder, whole.operations, last, expected)


def _run_with_kills(executioner: Executioner, victim: Victim, rng: random.Random, kills: int, outcome: Outcome) -> None:
    """One command, killed several times on its way and at last let run to its end."""

    def note(problem: str) -> None:
        outcome.problems.append(f"{victim.verb}, after kill {outcome.kills.total()}: {problem}")

    for _ in range(MOST_KILLS):
        if outcome.kills.total() >= kills:
            break
        late = rng.random() < 0.35
        operation = victim.operations - rng.randint(1, victim.last) if late else rng.randrange(victim.operations)
        who = "all" if victim.verb == "train" else rng.choice(("all", "all", "worker", "command"))
        end = executioner.run(victim.command, operation, who)
        if end.strays:
            note(f"{end.strays} stray workers")
        if not end.killed:  # it came to its end before the operation: a resumed command has fewer
            if end.status != 0:
                note(f"the command failed with {end.status}")
            return
        outcome.kills[f"{victim.verb} ({who})"] += 1
        outcome.late += late
        if who != "worker" and end.status != 9:
            note(f"the command ended with {end.status} in place of a kill")
    if (status := executioner.run(victim.command).status) != 0:
        note(f"the command failed with {status}")


def contents(folder: Path) -> dict[str, Any]:
    """Every file of a folder, with its bytes."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        compared = path.is_file() and path.name not in NOT_COMPARED
        found[str(path.relative_to(folder))] = path.read_bytes() if compared else "there"
    return found


def differences(expected: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """In which files two folders differ, those left over included."""
    names = sorted(expected.keys() | found.keys())
    verbs = {(True, False): "is missing", (False, True): "is left over", (True, True): "differs"}
    return [
        f"{name} {verbs[name in expected, name in found]}" for name in names if expected.get(name) != found.get(name)
    ]
