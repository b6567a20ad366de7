"""What a fold keeps: predictions of what it held out, in few numbers, and losses averaged over the epochs."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from labelemb.lab.data import Fold, load_data
from labelemb.lab.data.dataset import HeldOut
from labelemb.lab.runs import held_out as module
from labelemb.lab.runs.held_out import ExampleLosses, FoldPredictions, join_folds, predict_held_out, read_predictions
from labelemb.support.errors import UserError
from labelemb.support.interrupts import Interrupted
from tests.helpers.quick_runs import StopAt, every_update_saved, quick_recipe, quick_run

FOLD = Fold(0, 3)
SIZE = 1797, 10
"""Rows and labels of the digits."""


@pytest.fixture(scope="module")
def fold_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("fold")
    quick_run(out, fold=FOLD)
    return out


def test_the_run_reports_the_error_of_what_it_held_out(fold_run: Path) -> None:
    found = read_predictions(fold_run, *SIZE)
    data = load_data(quick_recipe(), None, 0, FOLD)
    assert data.held_out is not None
    assert found.rows.equal(data.held_out.rows)
    wrong = (found.labels[:, 0] != data.held_out.examples.targets).float().mean()
    assert 100 * float(wrong) == pytest.approx(quick_run(fold_run, fold=FOLD).test_error)


def test_losses_are_of_the_training_examples_and_averaged_over_the_epochs(fold_run: Path) -> None:
    found = read_predictions(fold_run, *SIZE)
    assert len(found.losses) == len(found.train_rows)
    assert bool((found.losses > 0).all())
    losses = ExampleLosses(3, torch.device("cpu"))
    losses.add(torch.tensor([0, 2]), torch.tensor([1.0, 5.0]))
    losses.add(torch.tensor([2]), torch.tensor([2.0]))
    assert losses.means().tolist() == [1.0, 0.0, 3.5]


def test_a_fold_stopped_on_the_way_ends_with_the_same_losses_and_predictions(fold_run: Path, tmp_path: Path) -> None:
    stop = StopAt(13)
    with pytest.raises(Interrupted):
        quick_run(tmp_path, fold=FOLD, options=every_update_saved(), report=stop.hear, stop=stop)
    quick_run(tmp_path, fold=FOLD)
    assert (tmp_path / "held_out.safetensors").read_bytes() == (fold_run / "held_out.safetensors").read_bytes()


def test_another_fold_in_the_folder_is_refused(fold_run: Path) -> None:
    with pytest.raises(UserError, match="holds a run of fold 1 of 3 of train, drawn with seed 0, not fold 2 of 3"):
        quick_run(fold_run, fold=Fold(1, 3))
    with pytest.raises(UserError, match="not a whole training"):
        quick_run(fold_run)


def test_predictions_are_made_in_blocks_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    data = load_data(quick_recipe(), None, 0, FOLD)
    assert data.held_out is not None
    sizes = []

    def predict(examples: object) -> torch.Tensor:
        sizes.append(len(examples))  # type: ignore[arg-type]
        return torch.randn(len(examples), 10)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "BLOCK_NUMBERS", 500)
    monkeypatch.setattr(module, "TOP_K", 4)
    held_out: HeldOut = data.held_out
    found = predict_held_out(held_out, predict, 1.0, ExampleLosses(1, torch.device("cpu")))
    assert max(sizes) == 50
    assert sum(sizes) == len(held_out.rows)
    assert found.labels.shape == found.values.shape == (len(held_out.rows), 4)


def test_the_given_label_is_kept_even_where_it_is_not_among_the_most_probable() -> None:
    fold = FoldPredictions(
        rows=torch.tensor([1]),
        self_confidence=torch.tensor([0.01]),
        labels=torch.tensor([[4, 2]], dtype=torch.int32),
        values=torch.tensor([[0.7, 0.2]]),
        train_rows=torch.tensor([0]),
        losses=torch.tensor([1.5]),
    )
    joined = join_folds([fold], np.array([3, 3]))
    assert joined.labels.tolist() == [[-1, -1], [4, 3]]
    assert joined.values[1].tolist() == pytest.approx([0.7, 0.01])
    assert joined.losses[0] == 1.5
    assert np.isnan(joined.losses[1])


def test_a_damaged_file_is_one_line(fold_run: Path, tmp_path: Path) -> None:
    (tmp_path / "held_out.safetensors").write_bytes(b"nothing")
    with pytest.raises(UserError, match="is damaged"):
        read_predictions(tmp_path, *SIZE)


def test_predictions_that_are_not_as_the_fold_wrote_them_are_refused(fold_run: Path, tmp_path: Path) -> None:
    run = shutil.copytree(fold_run, tmp_path / "fold")
    content = bytearray((run / "held_out.safetensors").read_bytes())
    content[-100] ^= 1
    (run / "held_out.safetensors").write_bytes(content)
    with pytest.raises(UserError, match=r"held_out.safetensors is damaged \(SHA-256 mismatch"):
        read_predictions(run, *SIZE)


def test_rows_and_labels_that_the_data_does_not_have_are_refused(fold_run: Path) -> None:
    with pytest.raises(UserError, match="rows are not those of a fold of this data"):
        read_predictions(fold_run, 1000, 10)
    with pytest.raises(UserError, match="labels are not those of a fold of this data"):
        read_predictions(fold_run, 1797, 9)
