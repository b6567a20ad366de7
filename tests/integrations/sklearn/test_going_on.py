"""Training that goes on: `partial_fit`, `warm_start`, and what a later fit forgets."""

from __future__ import annotations

import io
from typing import Any

import joblib
import numpy as np
import pytest

from labelemb import Objective
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
