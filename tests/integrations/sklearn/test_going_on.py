"""Training that goes on: `partial_fit`, `warm_start`, and what a later fit forgets."""

from __future__ import annotations

import copy
import io
from typing import Any

import joblib
import numpy as np
import pytest
import torch
from torch import Tensor

from labelemb import Objective
from labelemb.integrations.sklearn import classifier as classifier_module
from tests.helpers.classifiers import NAMES, quick, same_network

Data = tuple[np.ndarray, np.ndarray]


def test_partial_fit_learns_from_parts_and_goes_on_after_pickling(blobs: Data) -> None:
    X, y = blobs
    straight, pickled = quick(), quick()
    for start in (0, 150, 300, 0, 150, 300):
        part = slice(start, start + 150)
        straight.partial_fit(X[part], y[part], classes=NAMES)
        file = io.BytesIO()
        joblib.dump(pickled.partial_fit(X[part], y[part], classes=NAMES), file)
        file.seek(0)
        pickled = joblib.load(file)
    same_network(straight, pickled)
    assert straight.n_iter_ == 6
    for _ in range(30):
        straight.partial_fit(X, y)
    assert straight.score(X, y) > 0.9


def test_warm_start_goes_on(blobs: Data) -> None:
    classifier = quick(warm_start=True).fit(*blobs)
    first = list(classifier.loss_curve_)
    assert classifier.temperature_ != 1
    classifier.set_params(learning_rate_init=0.01, calibrate=False).fit(*blobs)
    assert classifier.temperature_ == 1
    assert classifier.n_iter_ == 16
    assert classifier.loss_curve_[:8] == first
    assert classifier.loss_curve_[8] < first[1]


@pytest.mark.parametrize(
    "change",
    [
        {"method": "plain"},
        {"hidden_layer_sizes": (9,)},
        {"objective": Objective()},
        {"embedding": "running"},
    ],
)
def test_warm_start_refuses_another_network(change: dict[str, Any], blobs: Data) -> None:
    classifier = quick(warm_start=True, max_iter=1).fit(*blobs)
    with pytest.raises(ValueError, match=f"cannot go on .* {next(iter(change))} was .* and is now"):
        classifier.set_params(**change).fit(*blobs)


@pytest.mark.parametrize(
    ("value", "other"),
    [
        (torch.tensor([1.0, 2.0, 3.0, 1.0]), torch.tensor([1.0, 2.0, 3.0, 4.0])),
        (torch.tensor([1.0, 2.0, 3.0, 1.0]), None),
    ],
)
def test_warm_start_compares_tensors_among_the_options_by_value(
    value: Tensor, other: Tensor | None, blobs: Data
) -> None:
    classifier = quick(warm_start=True, max_iter=1, method_options={"weight": value}).fit(*blobs)
    classifier.set_params(method_options={"weight": value.clone()}).fit(*blobs)
    assert classifier.n_iter_ == 2
    with pytest.raises(ValueError, match=r"cannot go on .* method_options was .* and is now"):
        classifier.set_params(method_options={"weight": other}).fit(*blobs)


@pytest.fixture
def progress(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, float]]:
    """Where each pass began and ended in the schedule."""
    seen: list[tuple[float, float]] = []

    def noted(*arguments: Any) -> float:
        seen.append(arguments[-1])
        return original(*arguments)

    original = classifier_module.train_pass
    monkeypatch.setattr(classifier_module, "train_pass", noted)
    return seen


def test_partial_fit_after_a_fit_stays_at_the_end_of_its_schedule(
    progress: list[tuple[float, float]], blobs: Data
) -> None:
    classifier = quick(max_iter=None, batch_size=8).fit(*blobs)
    assert classifier.n_iter_ == 36  # 2,000 updates
    classifier.partial_fit(*blobs).set_params(max_iter=500).partial_fit(*blobs)
    assert progress[-3:] == [(35 / 36, 1), (1, 1), (1, 1)]


def test_partial_fit_goes_on_in_the_schedule_of_a_fit_that_stopped_early(
    progress: list[tuple[float, float]], blobs: Data
) -> None:
    classifier = quick(early_stopping=True, n_iter_no_change=2, max_iter=50).fit(*blobs)
    assert classifier.n_iter_ < 50
    classifier.set_params(early_stopping=False, max_iter=None).partial_fit(*blobs)
    assert progress[-1] == ((classifier.n_iter_ - 1) / 50, classifier.n_iter_ / 50)


def test_partial_fit_alone_counts_its_calls(progress: list[tuple[float, float]], blobs: Data) -> None:
    classifier = quick(max_iter=2)
    for _ in range(3):
        classifier.partial_fit(*blobs, classes=NAMES)
    assert progress == [(0, 0.5), (0.5, 1), (1, 1)]
    quick(max_iter=None).partial_fit(*blobs, classes=NAMES)
    assert progress[-1] == (0, 1 / 200)


@pytest.mark.parametrize(
    ("change", "group", "setting"),
    [
        ({"learning_rate_init": 0.3}, 0, "lr"),
        ({"embedding_learning_rate": 0.3}, 1, "lr"),
        ({"alpha": 0.3}, 0, "weight_decay"),
    ],
)
def test_rates_and_penalty_can_change_between_calls_of_partial_fit(
    change: dict[str, float], group: int, setting: str, blobs: Data
) -> None:
    changed, same = (quick(embedding="dense").partial_fit(*blobs, classes=NAMES) for _ in range(2))
    expected = copy.deepcopy(same._optimizer.param_groups)
    changed.set_params(**change).partial_fit(*blobs)
    same.partial_fit(*blobs)
    with pytest.raises(AssertionError):
        same_network(changed, same)
    for number, found in enumerate(changed._optimizer.param_groups):
        for name in ("lr", "weight_decay"):
            asked = (number, name) == (group, setting)
            assert found[name] == (0.3 if asked else expected[number][name])
    steps = {int(state["step"]) for state in changed._optimizer.state.values()}
    assert steps == {6}  # Adam went on: two calls of three batches


def test_a_vanishing_rate_stops_a_stream(blobs: Data) -> None:
    classifier = quick().partial_fit(*blobs, classes=NAMES)
    before = classifier.predict_proba(blobs[0])
    classifier.set_params(learning_rate_init=1e-12, embedding_learning_rate=1e-12).partial_fit(*blobs)
    np.testing.assert_allclose(classifier.predict_proba(blobs[0]), before, atol=1e-9)


@pytest.mark.parametrize("warm_start", [False, True])
def test_a_fit_without_early_stopping_has_no_validation_scores(warm_start: bool, blobs: Data) -> None:
    classifier = quick(early_stopping=True, warm_start=warm_start).fit(*blobs)
    assert classifier.best_validation_score_ == max(classifier.validation_scores_)
    classifier.set_params(early_stopping=False).fit(*blobs)
    assert classifier.validation_scores_ is classifier.best_validation_score_ is None
    assert quick().partial_fit(*blobs, classes=NAMES).validation_scores_ is None
