"""Runs cases in this process, and finds what was wrong with how they ended."""

import contextlib
import functools
import io
import json
import os
import shutil
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import torch
from lightning_fabric.utilities import registry

from benchmarks.fuzz.cases import Case, make_case
from benchmarks.fuzz.here import training_here
from benchmarks.fuzz.workbench import Workbench
from labelemb.lab.cli import command
from labelemb.support.errors import UserError

SECONDS = 120
"""Of processor time, until a case counts as hanging; ten times as long by the clock, for the machine may be busy."""
SOURCE = "one two\nthree four\n"
"""Standard input of a translation."""


class Hangs(BaseException):
    """A case took too long."""


@dataclass
class Outcome:
    """How a campaign went: the cases by how they ended, and what was wrong."""

    ends: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class End:
    """How a case ended: its exit code or error, and what it printed."""

    code: int
    error: str
    output: str


def run_campaign(bench: Workbench, numbers: range, seed: int, place: Path) -> Iterator[Outcome]:
    """Run cases one after the other; yields the outcome so far after each."""
    torch.set_num_threads(1)
    _keep_what_never_changes()
    outcome = Outcome()
    expected: dict[Path, str] = {}
    for number in numbers:
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        case = make_case(number, seed, bench, place)
        end, problem = _run(case, place)
        outcome.ends[f"{case.kind}: {'one line' if end and end.code == 2 else 'accepted'}"] += 1
        if problem is None and end is not None:
            problem = _wrong(case, end, place, expected)
        if problem is not None:
            outcome.problems.append(f"case {number} of seed {seed} ({case.kind}: {case.about}): {problem}")
        yield outcome


def _run(case: Case, place: Path) -> tuple[End | None, str | None]:
    """Run a case as the command would, but with every error that is not the user's raised."""
    output, errors = io.StringIO(), io.StringIO()
    source = io.TextIOWrapper(io.BytesIO(SOURCE.encode()))
    before, here = [signal.signal(number, _too_long) for number in (signal.SIGPROF, signal.SIGALRM)], Path.cwd()
    os.chdir(place)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    signal.alarm(10 * SECONDS)
    try:
        with (
            training_here(),
            contextlib.redirect_stdout(output),
            contextlib.redirect_stderr(errors),
            _standard_input(source),
        ):
            return End(command.execute(case.arguments), "", output.getvalue()), None
    except UserError as error:
        return End(2, str(error), output.getvalue()), None
    except SystemExit as ended:  # argparse, after --help
        return (End(0, "", output.getvalue()), None) if ended.code in (0, None) else (None, f"exit code {ended.code}")
    except Hangs:
        return None, f"no end after {SECONDS} seconds of processor time: {case.arguments}"
    except BaseException:
        return None, f"{case.arguments}\n{traceback.format_exc()}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
        for number, handler in zip((signal.SIGPROF, signal.SIGALRM), before, strict=True):
            signal.signal(number, handler)
        os.chdir(here)


def _keep_what_never_changes() -> None:
    """Make the parser and the list of installed packages once: they take longer than most cases."""
    command.build_parser = functools.cache(command.build_parser)
    registry.entry_points = functools.cache(registry.entry_points)


def _wrong(case: Case, end: End, place: Path, expected: dict[Path, str]) -> str | None:
    """What is wrong with the end of a case that raised nothing else than our own error."""
    if end.code not in (0, 2):
        return f"exit code {end.code}"
    if end.error and (not end.error.isprintable() or len(end.error) > 4000):
        return f"an error that is not one printable line: {end.error!r}"
    is_safe = all(line.replace("\t", "").isprintable() for line in end.output.split("\n"))
    if not is_safe and "translate" not in case.arguments:  # a translation goes to a file as it is
        return f"output that steers a terminal: {end.output[:300]!r}"
    if left := [str(path.relative_to(place)) for path in place.rglob(".labelemb-*")]:
        return f"left over: {left}"
    if end.code == 2 and (empty := _empty_folders(place)):
        return f"empty folders: {empty}"
    if case.unchanged is not None and end.code == 0 and case.arguments[0] == "evaluate":
        if case.unchanged not in expected:
            intact, _ = _run(Case("intact", ["evaluate", str(case.unchanged), "--json"], ""), place)
            expected[case.unchanged] = intact.output if intact else ""
        if json.loads(end.output) != json.loads(expected[case.unchanged]):
            return "damage was accepted: the scores are others"
    return None


def _empty_folders(place: Path) -> list[str]:
    """Folders that a failed command has made and left empty; those named like files are the damage itself."""
    return [
        str(path.relative_to(place))
        for path in place.rglob("*")
        if path.is_dir() and not path.suffix and not path.is_symlink() and not any(path.iterdir())
        if path.name not in ("checkpoint", "lock")
    ]


@contextlib.contextmanager
def _standard_input(source: io.TextIOWrapper) -> Iterator[None]:
    before, sys.stdin = sys.stdin, source
    try:
        yield
    finally:
        sys.stdin = before


def _too_long(number: int, frame: FrameType | None) -> None:
    raise Hangs
