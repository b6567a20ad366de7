"""The training loop: what is shared, what is selected, what is written, and when it stops."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from labelemb import LabelSpace, PlainHead
from labelemb.lab.data import load_data
from labelemb.lab.methods.method import parse_method
from labelemb.lab.runs.checkpoint import load_checkpoint
from labelemb.lab.runs.engine import make_fabric
from labelemb.lab.runs.folder import RunFolder
from labelemb.lab.runs.messages import Progress, RunOptions
from labelemb.lab.runs.state import Run
from labelemb.lab.tasks.model import Classifier
from labelemb.lab.tasks.records import to_json
from labelemb.lab.tasks.task import with_prefix
from labelemb.lab.trained.model import TrainedModel
from labelemb.support.errors import UserError
from labelemb.support.interrupts import Interrupted
from tests.helpers.quick_runs import METHODS_OF_DATA_ALONE, StopAt, quick_recipe, quick_run, read_records, without_times


def make_run(folder: Path, method: str, seed: int = 0) -> Run:
    recipe = quick_recipe()
    data = load_data(recipe, None, seed)
    return Run(make_fabric(recipe.train), recipe, parse_method(method), seed, data, RunFolder(folder), RunOptions())


def test_all_methods_of_a_seed_share_initial_body_predictor_and_batches(tmp_path: Path) -> None:
    first, *others = [make_run(tmp_path, method) for method in METHODS_OF_DATA_ALONE]
    batches = torch.cat(first.shuffled())
    for other in others:
        for one, two in zip(first.classifier.body.parameters(), other.classifier.body.parameters(), strict=True):
            assert torch.equal(one, two)
        assert torch.equal(first.classifier.head.predictor.weight, other.classifier.head.predictor.weight)
        assert torch.equal(batches, torch.cat(other.shuffled()))


def test_seeds_differ_in_body_and_batches(tmp_path: Path) -> None:
    one, other = make_run(tmp_path, "plain", seed=0), make_run(tmp_path, "plain", seed=1)
    assert not torch.equal(next(one.classifier.body.parameters()), next(other.classifier.body.parameters()))
    assert not torch.equal(torch.cat(one.shuffled()), torch.cat(other.shuffled()))


@pytest.mark.parametrize("method", METHODS_OF_DATA_ALONE)
def test_every_method_learns_the_digits(tmp_path: Path, method: str) -> None:
    result = quick_run(tmp_path, method=method)
    records = read_records(tmp_path)
    assert result.test_error < 40
    assert records[-1]["terms"]["hard"] < records[0]["terms"]["hard"]


def test_the_reported_score_is_at_the_best_dev_evaluation_and_of_ties_at_the_latest(tmp_path: Path) -> None:
    recipe = quick_recipe("train.evaluations_per_epoch=5", "train.epochs=8")
    result = quick_run(tmp_path, recipe, method="label-embedding@halves")
    records = read_records(tmp_path)
    lowest = min(record["dev_error"] for record in records)
    best = [record for record in records if record["dev_error"] == lowest][-1]
    assert len([record for record in records if record["dev_error"] == lowest]) > 1, "the data should have a tie"
    assert (result.best_step, result.dev_error) == (best["step"], best["dev_error"])
    assert (result.test_error, result.test_nll) == (best["test_error"], pytest.approx(best["test_nll"]))


def test_test_scores_are_taken_at_epoch_ends_and_new_bests_only(tmp_path: Path) -> None:
    quick_run(tmp_path, quick_recipe("train.evaluations_per_epoch=5"))
    lowest = float("inf")
    for record in read_records(tmp_path):
        is_best = record["dev_error"] <= lowest
        lowest = min(lowest, record["dev_error"])
        assert ("test_error" in record) == (is_best or record["epoch"] == int(record["epoch"]))


def test_without_selection_the_last_epoch_is_reported(tmp_path: Path) -> None:
    result = quick_run(tmp_path, quick_recipe("train.dev=false"))
    last = read_records(tmp_path)[-1]
    assert (result.best_step, result.test_error) == (last["step"], last["test_error"])


def test_without_a_dev_set_there_is_no_temperature(tmp_path: Path) -> None:
    result = quick_run(tmp_path, quick_recipe("train.dev=false", "data.dev_size=0"))
    assert result.temperature is result.test_nll_scaled is None
    assert result.dev_error is None


@pytest.mark.parametrize("method", ["plain", "label-embedding", "online-smoothing"])
def test_splitting_a_batch_to_save_memory_changes_nothing(tmp_path: Path, method: str) -> None:
    quick_run(tmp_path / "whole", method=method)
    quick_run(tmp_path / "parts", quick_recipe("train.accumulate=3"), method=method)
    for one, other in zip(read_records(tmp_path / "whole"), read_records(tmp_path / "parts"), strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-3)
        assert one["test_nll"] == pytest.approx(other["test_nll"], rel=1e-3)


def test_the_schedule_sets_the_learning_rate(tmp_path: Path) -> None:
    quick_run(tmp_path, quick_recipe("train.schedule=linear", "train.lr=0.03"))
    assert [record["lr"] for record in read_records(tmp_path)] == pytest.approx([0.021, 0.011, 0.001])


def test_a_clipped_gradient_moves_the_weights_less(tmp_path: Path) -> None:
    overrides = ("train.optimizer=sgd", "train.epochs=1", "train.lr=0.1")
    quick_run(tmp_path / "free", quick_recipe(*overrides))
    quick_run(tmp_path / "clipped", quick_recipe(*overrides, "train.clip_norm=0.001"))
    free, clipped = (read_records(tmp_path / name)[-1]["loss"] for name in ("free", "clipped"))
    assert free < clipped - 0.01


@pytest.mark.parametrize("overrides", [("train.precision=bf16-mixed",), ("train.precision=64",)])
def test_other_precisions_learn_as_well(tmp_path: Path, overrides: tuple[str, ...]) -> None:
    assert quick_run(tmp_path, quick_recipe(*overrides)).test_error < 40


def test_two_runs_of_a_seed_are_the_same(tmp_path: Path) -> None:
    one, other = (quick_run(tmp_path / name, quick_recipe("body.dropout=0.5")) for name in ("one", "other"))
    assert without_times(to_json(one)) == without_times(to_json(other))


class Recorder(PlainHead):
    """Keeps what the observer would read."""

    observed: Tensor | None = None

    def forward(self, hidden: Tensor, targets: Tensor | None = None, **keywords: Any) -> Any:
        self.observed = keywords.get("observed_hidden")
        return super().forward(hidden, targets, **keywords)


def test_a_clean_observer_reads_a_gradient_free_pass_without_dropout() -> None:
    body = nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.5))
    head = Recorder(6, 3)
    classifier = Classifier(body, head, clean_observer=True)
    inputs = torch.randn(5, 4)
    classifier((inputs,), torch.zeros(5, dtype=torch.long))
    assert head.observed is not None
    assert torch.equal(head.observed, body[0](inputs))
    assert not head.observed.requires_grad
    assert body.training


def test_a_clean_observer_leaves_every_part_in_its_mode_also_after_an_error() -> None:
    body = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6).eval(), nn.Dropout(0.5))
    classifier = Classifier(body, Recorder(6, 3), clean_observer=True)
    targets = torch.zeros(5, dtype=torch.long)
    for training in (True, False):
        body[2].train(training)
        before = [part.training for part in classifier.modules()]
        classifier((torch.randn(5, 4),), targets)
        assert [part.training for part in classifier.modules()] == before
        with pytest.raises(RuntimeError):
            classifier._clean_hidden((torch.randn(5, 3),))
        assert [part.training for part in classifier.modules()] == before


def test_a_body_without_dropout_needs_no_second_pass() -> None:
    head = Recorder(6, 3)
    Classifier(nn.Linear(4, 6), head, clean_observer=True)((torch.randn(5, 4),), torch.zeros(5, dtype=torch.long))
    assert head.observed is None


def test_a_loss_that_is_not_finite_stops_with_update_and_term_and_keeps_the_checkpoint(tmp_path: Path) -> None:
    recipe = quick_recipe("train.optimizer=sgd", "train.lr=1e20", "train.momentum=0.0")
    with pytest.raises(UserError, match=r"not finite at update [23] \(broken: hard") as error:
        quick_run(tmp_path, recipe, options=RunOptions(checkpoint_seconds=0.0))
    assert "\n" not in str(error.value)
    assert "the last checkpoint before it, if there was one, is kept" in str(error.value)
    kept = load_checkpoint(tmp_path, warn=pytest.fail).state
    assert kept is not None
    assert all(value.isfinite().all() for value in kept["model"].values())
    assert not (tmp_path / "result.json").exists()


def test_the_run_folder_holds_what_is_promised(tmp_path: Path) -> None:
    result = quick_run(tmp_path, options=RunOptions(command="labelemb train digits"))
    assert RunFolder(tmp_path).recipe() == quick_recipe()
    assert RunFolder(tmp_path).result() == result
    assert result.command == "labelemb train digits"
    assert result.seed == 0
    assert {"labelemb", "torch", "python"} <= result.versions.keys()
    assert {"cpu", "threads"} <= to_json(result.machine).keys()
    assert result.fingerprint == quick_recipe().fingerprint()
    assert [point.epoch for point in result.curve] == [1, 2, 3]
    assert LabelSpace.load(tmp_path / "labels.safetensors").names == tuple("0123456789")
    confusion = json.loads((tmp_path / "confusion.json").read_text())
    wrong = sum(count for *_, count in confusion["wrong"])
    assert 100 * wrong / sum(confusion["examples"]) == pytest.approx(result.test_error)


def test_a_method_that_learns_no_labels_writes_no_label_space(tmp_path: Path) -> None:
    quick_run(tmp_path, method="plain")
    assert not (tmp_path / "labels.safetensors").exists()


def test_the_kept_model_is_the_reported_one(tmp_path: Path) -> None:
    result = quick_run(tmp_path, quick_recipe("train.epochs=6"))
    scores = TrainedModel(tmp_path).evaluate(None)
    again = with_prefix(scores["test"], "test_", unprefixed=("temperature",))
    assert again == {name: getattr(result, name) for name in again}
    assert scores["dev"].error == result.dev_error


def test_a_finished_run_is_only_read(tmp_path: Path) -> None:
    result = quick_run(tmp_path)
    before = {file.name: file.stat().st_mtime_ns for file in tmp_path.iterdir()}
    assert quick_run(tmp_path) == result
    assert {file.name: file.stat().st_mtime_ns for file in tmp_path.iterdir()} == before


def test_progress_is_reported_up_to_the_end(tmp_path: Path) -> None:
    seen: list[Progress] = []
    quick_run(tmp_path, report=seen.append)
    assert [entry.step for entry in seen] == sorted(entry.step for entry in seen)
    assert seen[-1].step == seen[-1].total_steps == 30
    assert seen[-1].score == read_records(tmp_path)[-1]["dev_error"]
    assert str(seen[-1]).startswith("epoch 3/3, dev error ")
    assert str(seen[0]) == "epoch 1/3"


def test_event_files_are_written_when_asked(tmp_path: Path) -> None:
    event_file = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    quick_run(tmp_path, options=RunOptions(trackers=("tensorboard",)))
    events = event_file.EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    written = [event.value for event in events.Scalars("dev_error")]
    assert written == pytest.approx([record["dev_error"] for record in read_records(tmp_path)])


def test_event_files_of_a_resumed_run_have_every_evaluation_once(tmp_path: Path) -> None:
    event_file = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    options, stop = RunOptions(trackers=("tensorboard",), checkpoint_seconds=0.0), StopAt(20)
    with pytest.raises(Interrupted):
        quick_run(tmp_path, options=options, report=stop.hear, stop=stop)
    quick_run(tmp_path, options=options)
    events = event_file.EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [event.step for event in events.Scalars("dev_error")] == [10, 20, 30]


def test_event_files_that_cannot_be_written_are_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writers = pytest.importorskip("torch.utils.tensorboard")

    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(writers.SummaryWriter, "flush", full)
    with pytest.raises(UserError, match=r"cannot write in .*tensorboard: No space left on device"):
        quick_run(tmp_path, options=RunOptions(trackers=("tensorboard",)))


def test_a_loss_that_depends_on_how_batches_are_split_says_so(tmp_path: Path) -> None:
    warnings: list[str] = []
    recipe = quick_recipe("train.accumulate=2", "train.epochs=1")
    result = quick_run(tmp_path / "vision", recipe, "label-embedding@authors-vision", warn=warnings.append)
    assert len(warnings) == 1
    assert "(train.accumulate = 2), and cap_reduction=sum and embedding_reduction=correct" in warnings[0]
    assert result.note == warnings[0]
    for method in ("label-embedding", "plain"):
        quick_run(tmp_path / method, recipe, method, warn=pytest.fail)
    quick_run(tmp_path / "whole", quick_recipe(), "label-embedding@authors-vision", warn=pytest.fail)


def test_the_fitted_temperature_goes_with_the_model(tmp_path: Path) -> None:
    result = quick_run(tmp_path)
    assert load_file(tmp_path / "model.safetensors")["head.temperature"] == pytest.approx(result.temperature)
