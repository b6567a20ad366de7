"""The promise of resuming: interrupted anywhere, a run ends bit-identical to one that was not."""

import json
import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from labelemb.lab.methods.method import parse_method
from labelemb.lab.recipes.recipe import Recipe, load_recipe
from labelemb.lab.runs.checkpoint.file import CURRENT, FORMAT, PREVIOUS
from labelemb.lab.runs.folder import comparable
from labelemb.lab.runs.loop import train_run
from labelemb.lab.runs.messages import Progress, ignore
from labelemb.lab.tasks.records import to_json
from labelemb.support.errors import UserError
from labelemb.support.interrupts import Interrupted
from tests.helpers.quick_runs import StopAt, assert_same_run, every_update_saved, quick_recipe, quick_run, read_records


def stop_at(step: int, out: Path, recipe: Recipe, method: str, data: Path | None = None) -> None:
    """Train until about that update, where it is interrupted."""
    stop = StopAt(step)
    with pytest.raises(Interrupted):
        train_run(recipe, parse_method(method), 0, data, out, options=every_update_saved(), report=stop.hear, stop=stop)


@pytest.mark.parametrize(
    "method",
    [
        "plain",
        "label-embedding",
        "label-embedding@rising-floor",
        "online-smoothing",
        "label-embedding@rank=4+observe_rows=3",
    ],
)
def test_a_run_stopped_twice_is_the_run_that_was_not(tmp_path: Path, method: str) -> None:
    recipe = quick_recipe("train.schedule=cosine", "body.dropout=0.3", "train.evaluations_per_epoch=3")
    whole = quick_run(tmp_path / "whole", recipe, method)
    stop_at(7, tmp_path / "stopped", recipe, method)
    stop_at(21, tmp_path / "stopped", recipe, method)
    assert quick_run(tmp_path / "stopped", recipe, method).test_nll == whole.test_nll
    assert_same_run(tmp_path / "whole", tmp_path / "stopped")


def test_a_run_whose_epochs_are_single_updates_can_be_stopped(tmp_path: Path) -> None:
    recipe = quick_recipe("train.batch_size=5000", "train.epochs=6")
    quick_run(tmp_path / "whole", recipe)
    stop_at(2, tmp_path / "stopped", recipe, "label-embedding")
    assert len(read_records(tmp_path / "stopped")) < 6
    quick_run(tmp_path / "stopped", recipe)
    assert_same_run(tmp_path / "whole", tmp_path / "stopped")


def test_augmentation_goes_on_where_it_was(tmp_path: Path, tiny_data: Callable[[str], Path | None]) -> None:
    recipe = load_recipe("cifar10-small", ["train.epochs=2", "train.batch_size=20", "body.width=0.03"])
    assert recipe.data.augment == "crop_flip"
    data = tiny_data("cifar10-small")
    method = parse_method("label-embedding")
    train_run(recipe, method, 0, data, tmp_path / "whole")
    stop_at(3, tmp_path / "stopped", recipe, "label-embedding", data)
    train_run(recipe, method, 0, data, tmp_path / "stopped")
    assert_same_run(tmp_path / "whole", tmp_path / "stopped")


class Killed:
    """Ends its own process as `kill -9` does, at a random moment between a given update of this process and the next.

    A timer chooses the moment. On a busy machine it may come late: the report of the next update ends the process then.
    """

    def __init__(self, update: int, moment: float) -> None:
        self.update, self.moment, self.reports, self.reported_at = update, moment, 0, time.monotonic()
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # ends the process at once, nothing of Python runs any more
        self._set_timer_if_due()

    def hear(self, _: Progress) -> None:
        self.reports += 1
        self._set_timer_if_due()
        if self.reports > self.update:
            os.kill(os.getpid(), signal.SIGALRM)

    def _set_timer_if_due(self) -> None:
        now = time.monotonic()
        if self.reports == self.update:
            # an update lasts about as long as the one before; the first comes after the start-up, which is no measure
            lasts = now - self.reported_at if self.reports > 1 else 0.02
            signal.setitimer(signal.ITIMER_REAL, max(self.moment * lasts, 1e-6))
        self.reported_at = now


def train_in_child(out: Path, recipe: Recipe, killed_at: tuple[int, float] | None) -> None:
    torch.set_num_threads(1)
    report = ignore if killed_at is None else Killed(*killed_at).hear
    quick_run(out, recipe, options=every_update_saved(), report=report)


def test_a_process_killed_at_random_moments_ends_bit_identical(tmp_path: Path) -> None:
    recipe = quick_recipe("train.epochs=8", "train.evaluations_per_epoch=2", "body.dropout=0.2")  # 80 updates
    quick_run(tmp_path / "whole", recipe)
    random_numbers = random.Random(3)
    updates = (0, 1, 0, 7, 13, 2, 0, 9, 1, 16)
    moments = [(update, random_numbers.uniform(0, 1)) for update in updates]
    context = multiprocessing.get_context("fork")  # imports once, so that the kills fall into the training
    for killed_at in (*moments, None):
        child = context.Process(target=train_in_child, args=(tmp_path / "killed", recipe, killed_at), daemon=True)
        child.start()
        child.join(120)
        assert not child.is_alive(), f"killed at {killed_at}, the process has not ended"
        assert child.exitcode == (0 if killed_at is None else -signal.SIGALRM)
    assert_same_run(tmp_path / "whole", tmp_path / "killed")


def test_a_corrupted_checkpoint_is_replaced_by_the_one_before_and_the_run_ends_the_same(tmp_path: Path) -> None:
    recipe = quick_recipe()
    quick_run(tmp_path / "whole", recipe)
    stop_at(15, tmp_path / "damaged", recipe, "label-embedding")
    current = tmp_path / "damaged" / CURRENT
    assert (tmp_path / "damaged" / PREVIOUS).exists()
    current.write_bytes(current.read_bytes()[:-100])
    warnings: list[str] = []
    quick_run(tmp_path / "damaged", recipe, warn=warnings.append)
    assert "corrupted" in warnings[0]
    assert not (tmp_path / "damaged" / PREVIOUS).exists(), "a finished run keeps its last checkpoint only"
    assert_same_run(tmp_path / "whole", tmp_path / "damaged")


def test_a_damaged_checkpoint_does_not_take_the_place_of_the_one_before(tmp_path: Path) -> None:
    stop_at(15, tmp_path, quick_recipe(), "plain")
    (tmp_path / CURRENT).write_bytes(b"x")
    stop_at(25, tmp_path, quick_recipe(), "plain")
    for name in (CURRENT, PREVIOUS):
        assert (tmp_path / name).read_bytes().startswith(FORMAT)


def test_a_run_that_goes_on_with_other_threads_says_so(tmp_path: Path) -> None:
    stop_at(5, tmp_path, quick_recipe(), "plain")
    file = tmp_path / "run.json"
    begun = json.loads(file.read_text())
    file.write_text(json.dumps(begun | {"threads": begun["threads"] + 1}))
    warnings: list[str] = []
    result = quick_run(tmp_path, method="plain", warn=warnings.append)
    assert len(warnings) == 1
    assert f"started with --threads {begun['threads'] + 1} and resumed with {begun['threads']}" in warnings[0]
    assert result.note == warnings[0]
    assert json.loads(file.read_text())["threads"] == begun["threads"] + 1, "what it was begun with stays"


def test_what_a_killed_process_was_writing_is_cleared_away(tmp_path: Path) -> None:
    stop_at(5, tmp_path, quick_recipe(), "plain")
    for name in (".labelemb-0123.tmp", ".thesis.tmp", "thesis.new"):
        (tmp_path / name).write_bytes(b"half a mod")
    quick_run(tmp_path, method="plain")
    left = {file.name for file in tmp_path.iterdir() if file.suffix in (".tmp", ".new")}
    assert left == {".thesis.tmp", "thesis.new"}


def test_evaluations_after_the_checkpoint_are_forgotten(tmp_path: Path) -> None:
    recipe = quick_recipe()
    stop_at(15, tmp_path, recipe, "plain")
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 20, "epoch": 2.0, "dev_err')  # a line that was being written when the machine stopped
    quick_run(tmp_path, recipe, "plain")
    assert [record["step"] for record in read_records(tmp_path)] == [10, 20, 30]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"recipe": ("train.lr=0.5",)}, "another recipe .train.lr is 0.01 there and 0.5 here"),
        ({"method": "plain"}, "the method label-embedding, not plain"),
        ({"seed": 1}, "seed 0, not 1"),
    ],
)
def test_a_folder_of_another_run_is_refused(tmp_path: Path, changed: dict[str, object], message: str) -> None:
    stop_at(5, tmp_path, quick_recipe(), "label-embedding")
    overrides = changed.pop("recipe", ())
    before = (tmp_path / CURRENT).read_bytes()
    with pytest.raises(UserError, match=message):
        quick_run(tmp_path, quick_recipe(*overrides), **changed)  # type: ignore[arg-type, misc]
    assert (tmp_path / CURRENT).read_bytes() == before


def test_a_folder_of_another_version_is_refused(tmp_path: Path) -> None:
    result = quick_run(tmp_path)
    (tmp_path / "result.json").write_text(json.dumps(to_json(result) | {"version": "0.0.1"}))
    with pytest.raises(UserError, match=r"holds a run of labelemb 0\.0\.1, this is"):
        quick_run(tmp_path)


def test_a_run_of_an_earlier_version_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = quick_run(tmp_path)
    monkeypatch.setattr("labelemb.lab.runs.loop.__version__", "9.0.0")
    assert quick_run(tmp_path) == before


@pytest.mark.parametrize(
    ("version", "here", "expected"),
    [
        ("0.1.0", "0.2.0", True),
        ("0.2.0", "0.10.0", True),
        ("0.0.9", "0.2.0", False),
        ("0.3.0", "0.2.0", False),
        ("None", "0.2.0", False),
        ("0+unknown", "0+unknown", True),
    ],
)
def test_which_versions_make_runs_that_can_be_compared(version: str, here: str, expected: bool) -> None:
    assert comparable(version, here) is expected
