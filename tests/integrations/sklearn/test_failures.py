"""A fit that fails: one clear error, and whatever was learned before is still there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from labelemb.integrations.sklearn import LabelEmbeddingClassifier
from labelemb.integrations.sklearn import classifier as classifier_module
from tests.helpers.classifiers import NAMES, quick, same_network

Data = tuple[np.ndarray, np.ndarray]


def answers(fitted: LabelEmbeddingClassifier, X: np.ndarray) -> dict[str, Any]:
    """All that an earlier fit left, the attributes as copies."""
    attributes = {name: value for name, value in vars(fitted).items() if name.endswith("_") and name != "network_"}
    return attributes | {
        "probabilities": fitted.predict_proba(X),
        "loss_curve_": list(fitted.loss_curve_),
        "temperature_": fitted.temperature_,
        "counts": fitted.network_.head.counts.tolist(),
    }


@pytest.mark.parametrize("warm_start", [False, True])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rank": 3}, "rank"),
        ({"n_jobs": 0}, "n_jobs is 0, but must be a whole number other than 0, or None"),
        ({"n_jobs": "two"}, "n_jobs is 'two', but must be a whole number"),
        (
            {"learning_rate_init": 1e300},
            r"the loss is nan in pass \d+: scale the features, or lower learning_rate_init",
        ),
        ({"learning_rate_init": 1e300, "early_stopping": True}, "the loss is nan in pass"),
        ({"class_weight": {"eggs": 1}}, "not in class_weight"),
    ],
)
def test_a_fit_that_fails_leaves_an_earlier_one_as_it_was(
    options: dict[str, Any], message: str, warm_start: bool, blobs: Data
) -> None:
    fitted = quick(warm_start=warm_start, early_stopping=True).fit(*blobs)
    expected = answers(fitted, blobs[0])
    before = fitted.get_params()
    with pytest.raises(ValueError, match=message):
        fitted.set_params(**options).fit(*blobs)
    np.testing.assert_equal(answers(fitted.set_params(**before), blobs[0]), expected)


def test_a_failed_fit_on_other_data_leaves_classes_and_features(blobs: Data) -> None:
    X, y = blobs
    table = pytest.importorskip("pandas").DataFrame(X, columns=list("abcde"))
    fitted = quick().fit(table, y)
    expected = fitted.predict_proba(table)
    with pytest.raises(ValueError, match="2 classes or more"):
        fitted.fit(np.hstack([X, X]), np.zeros(len(y)))
    with pytest.raises(ValueError, match="the loss is nan"):
        fitted.set_params(learning_rate_init=1e300).fit(np.hstack([X, X]), np.arange(len(y)) % 5)
    assert list(fitted.classes_) == list(NAMES)
    assert list(fitted.feature_names_in_) == list("abcde")
    np.testing.assert_array_equal(fitted.predict_proba(table), expected)


def test_a_first_fit_that_fails_leaves_nothing_fitted(blobs: Data) -> None:
    unfitted = quick(learning_rate_init=1e300)
    with pytest.raises(ValueError, match="the loss is nan"):
        unfitted.fit(*blobs)
    with pytest.raises(NotFittedError):
        unfitted.predict(blobs[0])
    assert not hasattr(unfitted, "n_features_in_")
    same_network(unfitted.set_params(learning_rate_init=0.02).fit(*blobs), quick().fit(*blobs))


@pytest.mark.parametrize("method", ["label-embedding", "online-smoothing"])
@pytest.mark.parametrize(("rate", "rows"), [(1e300, 450), (1e300, 100), (1e200, 100)])
def test_a_partial_fit_that_overflows_changes_nothing_and_the_next_goes_on(
    rate: float, rows: int, method: str, blobs: Data
) -> None:
    X, y = blobs
    stream = quick(method=method).partial_fit(X, y, classes=NAMES)
    expected = answers(stream, X)
    with pytest.raises(ValueError, match=r"in pass 2: scale the features, or lower learning_rate_init \(1e\+[23]00\)"):
        stream.set_params(learning_rate_init=rate).partial_fit(X[:rows], y[:rows])
    np.testing.assert_equal(answers(stream, X), expected)
    stream.set_params(learning_rate_init=0.02)
    for _ in range(10):
        stream.partial_fit(X, y)
    assert stream.score(X, y) > 0.9


def test_features_that_overflow_are_an_error_in_partial_fit(blobs: Data) -> None:
    X, y = blobs
    stream = quick().partial_fit(X, y, classes=NAMES)
    expected = stream.predict_proba(X)
    with pytest.raises(ValueError, match="in pass 2: scale the features"):
        stream.partial_fit(X * 1e200, y)
    np.testing.assert_array_equal(stream.predict_proba(X), expected)
    assert np.isfinite(stream.partial_fit(X, y).loss_)


def test_a_first_partial_fit_that_overflows_leaves_nothing_fitted(blobs: Data) -> None:
    stream = quick(learning_rate_init=1e200)
    with pytest.raises(ValueError, match="the weights overflow in pass 1"):
        stream.partial_fit(blobs[0][:100], blobs[1][:100], classes=NAMES)
    with pytest.raises(ValueError, match="the first call of partial_fit needs all classes"):
        stream.set_params(learning_rate_init=0.02).partial_fit(*blobs)
    same_network(stream.partial_fit(*blobs, classes=NAMES), quick().partial_fit(*blobs, classes=NAMES))


def test_a_fit_whose_last_update_overflows_is_an_error(blobs: Data) -> None:
    with pytest.raises(ValueError, match="the weights overflow in pass 1"):
        quick(learning_rate_init=1e200, max_iter=1, batch_size=450).fit(*blobs)


def test_a_partial_fit_of_bad_data_leaves_everything_to_the_next(blobs: Data) -> None:
    X, y = blobs
    straight, stream = quick().partial_fit(X, y, classes=NAMES), quick().partial_fit(X, y, classes=NAMES)
    with pytest.raises(ValueError, match="features"):
        stream.partial_fit(np.hstack([X, X]), y)
    with pytest.raises(ValueError, match="which is not among the classes"):
        stream.partial_fit(X, np.full(len(y), "eggs"))
    same_network(stream.partial_fit(X, y), straight.partial_fit(X, y))


def test_an_interrupt_keeps_what_was_trained_so_far(blobs: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    passes: list[float] = []

    def interrupted(*arguments: Any) -> float:
        if len(passes) == 3:
            raise KeyboardInterrupt
        passes.append(original(*arguments))
        return passes[-1]

    original = classifier_module.train_pass
    monkeypatch.setattr(classifier_module, "train_pass", interrupted)
    fitted = quick(calibrate=False)
    with pytest.raises(KeyboardInterrupt):
        fitted.fit(*blobs)
    assert fitted.n_iter_ == 3
    assert fitted.loss_curve_ == passes
    assert fitted.score(*blobs) > 0.5
