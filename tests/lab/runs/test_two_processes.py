"""torchrun: two processes give the result of one."""

import json
from functools import partial
from pathlib import Path

import pytest

from labelemb.lab.cli import main
from labelemb.lab.recipes.recipe import load_recipe
from labelemb.lab.runs.state import Run
from tests.helpers.forked import run_as_torchrun
from tests.helpers.quick_runs import assert_same_run, quick_run, read_records

# 500 examples: the last of seven updates has two rows, so that one process is left without any
DIGITS = ["train.epochs=3", "body.hidden=[16]", "train.lr=0.01", "train.batch_size=83", "train.clip_norm=1"]
# pairs of different length: the processes have different numbers of words
NUMBERS = ["train.epochs=2", "data.max_pairs=300", "data.dev_size=20", "data.test_size=20", "body.hidden_size=16"]
NUMBERS += ["body.embedding_size=8", "body.dropout=0", "decode.beam=2", "train.batch_size=31", "head.rank=4"]
# the running embedding learns with each part of a batch, so that only without parts it is the same
RUNS = {
    "label-embedding": ("digits", [*DIGITS, "train.accumulate=2"]),
    "label-embedding@rising-floor": ("digits", DIGITS),
    "online-smoothing": ("digits", [*DIGITS, "train.accumulate=2"]),
    "label-embedding@soft_start=3": ("numbers-en-vi", NUMBERS),
    "label-embedding@soft_start=99": ("digits", [*DIGITS, "train.epochs=1"]),  # a soft term that never starts
}
# what is drawn by each process for itself
DROPOUT = ["body.dropout=0.3"]


def arguments(method: str, out: Path, *more: str) -> list[str]:
    recipe, overrides = RUNS[method]
    settings = [word for override in (*overrides, *more) for word in ("--set", override)]
    return ["train", recipe, "--method", method, "--out", str(out), *settings]


class Stopped(BaseException):
    """Ends a run in the middle."""


def train_all(runs: list[list[str]]) -> None:
    """In each process: several runs, of which one is stopped after two epochs and begun again."""
    save = Run.save

    def stop_after_two_epochs(run: Run) -> None:
        save(run)
        if run.epoch == 2:
            raise Stopped

    for words in runs:
        if any(word.endswith("stopped") for word in words):
            Run.save = stop_after_two_epochs  # type: ignore[method-assign]
            with pytest.raises(Stopped):
                main(words)
            Run.save = save  # type: ignore[method-assign]
        assert main(words) == 0


def test_two_processes_give_the_result_of_one(tmp_path: Path) -> None:
    two_processes, one_process = tmp_path / "two", tmp_path / "one"
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    runs = [arguments(method, two_processes / method) for method in RUNS]
    runs += [arguments("label-embedding", out, *DROPOUT) for out in (whole, stopped)]
    done = run_as_torchrun(2, partial(train_all, runs))
    assert done.codes == [0, 0], done.stderr
    assert done.stdout.count("the run is in") == len(runs), "one process speaks for all"
    assert done.stderr.count("the soft term never starts") == 1, "one process warns for all"
    assert "GLOBAL_RANK" not in done.stderr, "the engine does not tell what the user asked for"
    for method, (recipe, overrides) in RUNS.items():
        quick_run(one_process / method, load_recipe(recipe, overrides), method)
        assert_close(two_processes / method, one_process / method)
    without_out(whole, stopped)
    assert_same_run(whole, stopped)


def without_out(*runs: Path) -> None:
    """Forget the command, in which the folders of two runs differ."""
    for run in runs:
        file = run / "result.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | {"command": ""}))


def assert_close(one: Path, other: Path) -> None:
    for record, expected in zip(read_records(one), read_records(other), strict=True):
        for name in ("loss", "dev_nll", "test_nll", "train_error"):
            assert record[name] == pytest.approx(expected[name], rel=1e-3), (one, name)
        assert record["terms"] == pytest.approx(expected["terms"], rel=1e-3), one
    results = [json.loads((run / "result.json").read_text()) for run in (one, other)]
    assert results[0]["best_step"] == results[1]["best_step"]
    assert [result["processes"] for result in results] == [2, 1]
