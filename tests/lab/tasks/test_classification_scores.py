"""Metrics against scikit-learn, SciPy and slow loops."""

import numpy as np
import pytest
import torch
from sklearn.metrics import confusion_matrix, log_loss
from torch import Tensor

from labelemb.lab.tasks.records import ReliabilityBin
from labelemb.lab.tasks.scores.classification import (
    calibration_error,
    confusions,
    error_percent,
    mean_nll,
    reliability,
    score,
    temperature_of,
)


@pytest.fixture
def predictions() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    targets = torch.randint(6, (400,), generator=generator)
    logits = torch.randn(400, 6, generator=generator) + 1.5 * torch.nn.functional.one_hot(targets, 6)
    return logits, targets


def test_error_is_the_share_of_wrong_rows_in_percent() -> None:
    logits = torch.tensor([[2.0, 1.0], [0.0, 1.0], [3.0, 1.0], [0.0, 5.0]])
    assert error_percent(logits, torch.tensor([0, 1, 1, 1])) == 25.0


def test_nll_is_scikit_learns_log_loss(predictions: tuple[Tensor, Tensor]) -> None:
    logits, targets = predictions
    assert mean_nll(logits, targets) == pytest.approx(log_loss(targets, logits.double().softmax(-1)), rel=1e-9)


def test_calibration_error_is_that_of_the_definition(predictions: tuple[Tensor, Tensor]) -> None:
    logits, targets = predictions
    confidence, predicted = logits.double().softmax(-1).max(-1)
    expected = 0.0
    for bin_number in range(15):
        inside = [i for i in range(len(targets)) if bin_number / 15 < confidence[i] <= (bin_number + 1) / 15]
        if inside:
            gap = sum(float(predicted[i] == targets[i]) - float(confidence[i]) for i in inside)
            expected += abs(gap) / len(targets)
    assert calibration_error(logits, targets) == pytest.approx(100 * expected, rel=1e-9)


def test_certain_and_right_is_perfectly_calibrated() -> None:
    logits = 1000 * torch.eye(4)
    assert calibration_error(logits, torch.arange(4)) == 0.0
    assert reliability(logits, torch.arange(4)).to_bins()[-1] == ReliabilityBin(count=4, confidence=1.0, accuracy=1.0)


def test_confusions_are_the_wrong_cells_of_the_matrix(predictions: tuple[Tensor, Tensor]) -> None:
    logits, targets = predictions
    found = np.zeros((6, 6), dtype=int)
    cells = confusions(logits, targets)
    for target, predicted, count in cells:
        found[target, predicted] = count
    expected = confusion_matrix(targets, logits.argmax(-1))
    np.fill_diagonal(expected, 0)
    assert (found == expected).all()
    assert [count for *_, count in cells] == sorted((count for *_, count in cells), reverse=True)


def test_the_fitted_temperature_cannot_be_improved(predictions: tuple[Tensor, Tensor]) -> None:
    logits, targets = predictions
    temperature = temperature_of(logits * 3, targets)
    best = mean_nll(logits * 3 / temperature, targets)
    assert temperature > 1.5
    assert all(best <= mean_nll(logits * 3 / (temperature * factor), targets) for factor in (0.9, 0.99, 1.01, 1.1))


def test_scaling_changes_likelihood_and_calibration_but_not_the_error(predictions: tuple[Tensor, Tensor]) -> None:
    logits, targets = predictions
    scores = score(logits, targets, temperature=2.0)
    assert scores.error == error_percent(logits / 2, targets)
    assert scores.nll_scaled == pytest.approx(mean_nll(logits / 2, targets))
    assert scores.ece_scaled == pytest.approx(calibration_error(logits.double() / 2, targets))


def test_without_a_temperature_there_are_no_scaled_scores(predictions: tuple[Tensor, Tensor]) -> None:
    scores = score(*predictions)
    assert scores.temperature is scores.nll_scaled is scores.ece_scaled is None
