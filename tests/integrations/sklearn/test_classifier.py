"""What `LabelEmbeddingClassifier` promises beyond being an estimator."""

from __future__ import annotations

import io
from typing import Any

import joblib
import numpy as np
import pytest
import scipy.sparse
import torch
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from labelemb import CompressedEmbedding, DenseEmbedding, LabelEmbeddingHead, Objective, RunningEmbedding
from labelemb.integrations.sklearn import LabelEmbeddingClassifier
from labelemb.integrations.sklearn.examples import SparseBatch
from tests.helpers.classifiers import NAMES, quick, same_network

METHODS = ["plain", "label-smoothing", "label-embedding", "online-smoothing", "confidence-penalty", "teacher-free"]


@pytest.mark.parametrize("method", METHODS)
def test_every_method_learns(method: str, blobs: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = blobs
    classifier = quick(method=method).fit(X, y)
    assert classifier.score(X, y) > 0.9
    assert classifier.predict(X).dtype == y.dtype
    np.testing.assert_allclose(classifier.predict_proba(X).sum(1), 1)
    assert len(classifier.loss_curve_) == classifier.n_iter_ == 8
    assert classifier.loss_curve_[-1] == classifier.loss_ < classifier.loss_curve_[0]


def test_the_label_space_has_the_names_of_the_classes(blobs: tuple[np.ndarray, np.ndarray]) -> None:
    space = quick().fit(*blobs).label_space_
    assert list(space.names) == list(NAMES)
    assert len(space.nearest("bread", k=2)) == 2
    assert quick(method="plain").fit(*blobs).label_space_ is None
    assert not hasattr(quick(), "label_space_")


def test_a_grid_search_over_a_pipeline_chooses_the_method(blobs: tuple[np.ndarray, np.ndarray]) -> None:
    grid = {"classifier__method": ["plain", "label-embedding"], "classifier__objective": [None]}
    smoothing = {
        "classifier__method": ["label-smoothing"],
        "classifier__method_options": [{"label_smoothing": 0.05}, {"label_smoothing": 0.3}],
    }
    pipeline = make_pipeline(StandardScaler(), quick(max_iter=3))
    pipeline.steps[1] = ("classifier", pipeline.steps[1][1])
    search = GridSearchCV(pipeline, [grid, smoothing], cv=2).fit(*blobs)
    assert len(search.cv_results_["params"]) == 4
    assert search.best_score_ == max(search.cv_results_["mean_test_score"]) > 0.5


@pytest.mark.slow  # each process imports everything anew
def test_scores_are_the_same_in_other_processes(blobs: tuple[np.ndarray, np.ndarray]) -> None:
    scores = cross_val_score(quick(max_iter=2), *blobs, cv=3)
    np.testing.assert_array_equal(cross_val_score(quick(max_iter=2), *blobs, cv=3, n_jobs=2), scores)


def test_scores_are_the_same_in_other_threads(blobs: tuple[np.ndarray, np.ndarray]) -> None:
    scores = cross_val_score(quick(max_iter=2), *blobs, cv=3)
    with joblib.parallel_backend("threading", n_jobs=3):
        np.testing.assert_array_equal(cross_val_score(quick(max_iter=2), *blobs, cv=3), scores)


def test_scikit_learns_calibration_takes_it(blobs: tuple[np.ndarray, np.ndarray]) -> None:
    calibrated = CalibratedClassifierCV(quick(max_iter=3), cv=2).fit(*blobs)
    np.testing.assert_allclose(calibrated.predict_proba(blobs[0]).sum(1), 1)
    assert calibrated.score(*blobs) > 0.8


@pytest.mark.parametrize("sizes", [(12,), (12, 7), ()])
def test_sparse_data_trains_the_same_network_as_dense_data(sizes: tuple[int, ...]) -> None:
    random = np.random.default_rng(0)
    X = random.normal(size=(300, 40)) * (random.random((300, 40)) < 0.1)
    y = random.integers(3, size=300)
    sparse = quick(hidden_layer_sizes=sizes).fit(scipy.sparse.csr_array(X), y)
    dense = quick(hidden_layer_sizes=sizes).fit(X, y)
    same_network(sparse, dense, rtol=1e-7)
    np.testing.assert_allclose(sparse.predict_proba(scipy.sparse.coo_array(X)), dense.predict_proba(X), rtol=1e-6)


def test_text_trains_without_ever_becoming_dense(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a sparse matrix was made dense")

    for name in ("toarray", "todense"):
        monkeypatch.setattr(scipy.sparse.csr_matrix, name, refuse)
        monkeypatch.setattr(scipy.sparse.csr_array, name, refuse)
    monkeypatch.setattr(SparseBatch, "dense", refuse)
    texts = ["pay the bill", "send the money", "book a flight", "find a hotel room"] * 30
    labels = ["bank", "bank", "travel", "travel"] * 30
    pipeline = make_pipeline(TfidfVectorizer(dtype=np.float32), quick()).fit(texts, labels)
    assert list(pipeline.predict(["the bill", "a room"])) == ["bank", "travel"]


def test_rows_of_weight_zero_take_part_in_nothing(blobs: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = blobs
    keep = np.random.default_rng(0).random(len(y)) < 0.7
    weights = np.random.default_rng(1).uniform(0.5, 2, len(y)) * keep
    X = np.where(keep[:, None], X, 1e6)
    same_network(quick().fit(X, y, weights), quick().fit(X[keep], y[keep], weights[keep]))


def test_only_the_proportions_of_weights_matter(blobs: tuple[np.ndarray, np.ndarray]) -> None:
    weights = np.random.default_rng(1).uniform(0.5, 2, len(blobs[1]))
    same_network(quick().fit(*blobs, weights), quick().fit(*blobs, 8 * weights), rtol=1e-9)
    same_network(quick().fit(*blobs, np.full(len(blobs[1]), 3)), quick().fit(*blobs), rtol=1e-9)


def test_class_weights_are_weights_of_rows(blobs: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = blobs[0][:300], np.where(blobs[1][:300] == "apple", "apple", "other")
    share = {name: 150 / (y == name).sum() for name in ("apple", "other")}
    by_rows = quick().fit(X, y, [share[name] for name in y])
    same_network(quick(class_weight="balanced").fit(X, y), by_rows, rtol=1e-9)
    same_network(quick(class_weight=share).fit(X, y), by_rows, rtol=1e-9)


@pytest.mark.parametrize("weight", [1.0, 3.0])
def test_balanced_class_weights_do_not_count_rows_of_weight_zero(
    weight: float, blobs: tuple[np.ndarray, np.ndarray]
) -> None:
    X, y = blobs
    keep = (y != "apple") | (np.arange(len(y)) % 5 == 0)
    found = quick(class_weight="balanced").fit(X, y, weight * keep)
    same_network(found, quick(class_weight="balanced").fit(X[keep], y[keep]), rtol=0 if weight == 1 else 1e-9)
    share = {name: 1 / (y[keep] == name).sum() for name in NAMES}
    same_network(found, quick(class_weight=share).fit(X, y, keep), rtol=1e-9)


def test_a_class_without_rows_that_weigh_something_stays_a_class(blobs: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = blobs
    keep = y != "cheese"
    found = quick(class_weight="balanced").fit(X, y, keep)
    assert list(found.classes_) == list(NAMES)
    share = {name: 1 / max(1, (y[keep] == name).sum()) for name in NAMES}
    same_network(found, quick(class_weight=share).fit(X, y, keep), rtol=1e-9)
    with pytest.raises(ValueError, match=r"(?i)sample weights"):
        quick(class_weight="balanced").fit(X, y, np.zeros(len(y)))


def test_early_stopping_keeps_the_best_state(blobs: tuple[np.ndarray, np.ndarray]) -> None:
    classifier = quick(early_stopping=True, n_iter_no_change=3, max_iter=100).fit(*blobs)
    scores = classifier.validation_scores_
    assert classifier.n_iter_ == len(scores) < 100
    assert classifier.best_validation_score_ == max(scores)
    shorter = quick(early_stopping=True, n_iter_no_change=3, max_iter=100, objective=Objective(), calibrate=False)
    best = shorter.fit(*blobs).n_iter_ - 3
    fresh = quick(early_stopping=True, n_iter_no_change=3, max_iter=best, objective=Objective(), calibrate=False)
    same_network(fresh.fit(*blobs), shorter)


def test_a_stored_classifier_gives_the_same_answers(blobs: tuple[np.ndarray, np.ndarray]) -> None:
    classifier = quick().fit(*blobs)
    file = io.BytesIO()
    joblib.dump(classifier, file)
    file.seek(0)
    again = joblib.load(file)
    np.testing.assert_array_equal(again.predict_proba(blobs[0]), classifier.predict_proba(blobs[0]))
    assert again.temperature_ == classifier.temperature_


def test_the_random_state_decides_everything(blobs: tuple[np.ndarray, np.ndarray]) -> None:
    torch.manual_seed(1)
    first = quick().fit(*blobs)
    state = torch.get_rng_state()
    second = quick().fit(*blobs)
    assert torch.equal(torch.get_rng_state(), state)
    same_network(first, second)
    other = quick(random_state=1).fit(*blobs)
    assert not np.allclose(first.predict_proba(blobs[0]), other.predict_proba(blobs[0]))


def test_the_temperature_improves_probabilities_and_changes_no_prediction() -> None:
    X, y = load_digits(return_X_y=True)
    X, train, test = X / 16, slice(0, 800), slice(800, None)
    options = {"max_iter": 15, "random_state": 0, "learning_rate_init": 0.005}
    raw = LabelEmbeddingClassifier(calibrate=False, **options).fit(X[train], y[train])
    scaled = LabelEmbeddingClassifier(**options).fit(X[train], y[train])
    assert raw.temperature_ == 1 > scaled.temperature_
    np.testing.assert_array_equal(raw.predict(X[test]), scaled.predict(X[test]))
    assert log_loss(y[test], scaled.predict_proba(X[test])) < log_loss(y[test], raw.predict_proba(X[test]))


def test_held_out_rows_that_are_all_right_leave_some_doubt() -> None:
    X = np.repeat(np.eye(3), 60, axis=0)
    classifier = quick(method="plain", early_stopping=True, validation_fraction=0.2).fit(X, X.argmax(1))
    assert classifier.score(X, X.argmax(1)) == 1
    assert 0.8 < classifier.predict_proba(X).max(1).mean() < 0.99  # 36 held-out rows: as if one of 37 were wrong


def test_only_held_out_rows_calibrate_a_method_without_an_observer(blobs: tuple[np.ndarray, np.ndarray]) -> None:
    assert quick(method="plain").fit(*blobs).temperature_ == 1
    assert quick(method="plain", early_stopping=True).fit(*blobs).temperature_ != 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_everything_is_computed_in_the_precision_of_the_data(dtype: type, blobs: tuple[np.ndarray, np.ndarray]) -> None:
    classifier = quick(max_iter=2).fit(blobs[0].astype(dtype), blobs[1])
    assert classifier.predict_proba(blobs[0].astype(np.float64)).dtype == dtype


def test_training_goes_on_in_its_first_precision(blobs: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = blobs
    classifier = quick().partial_fit(X, y, classes=NAMES).partial_fit(X.astype(np.float32), y)
    assert classifier.predict_proba(X).dtype == np.float64


def test_embedding_rank_objective_and_options_reach_the_head(blobs: tuple[np.ndarray, np.ndarray]) -> None:
    def head(**options: Any) -> Any:
        return quick(max_iter=1, **options).fit(*blobs).network_.head

    assert head(objective=Objective.paper()).objective == Objective.paper()
    assert isinstance(head(embedding="dense").embedding, DenseEmbedding)
    assert isinstance(head(embedding="compressed", rank=2).embedding, CompressedEmbedding)
    running = head(embedding="running").embedding
    assert isinstance(running, RunningEmbedding)
    assert running.rows_per_epoch == 450
    assert head(method="confidence-penalty", method_options={"penalty": 0.3}).penalty == 0.3
    assert head(method="label-smoothing").label_smoothing == 0.1


def test_the_default_is_that_of_the_library(blobs: tuple[np.ndarray, np.ndarray]) -> None:
    found, expected = quick(max_iter=1).fit(*blobs).network_.head, LabelEmbeddingHead(12, 4)
    assert type(found) is type(expected)
    assert type(found.embedding) is type(expected.embedding)
    assert found.objective == expected.objective


def test_an_embedding_module_among_the_options_is_not_trained_itself(blobs: tuple[np.ndarray, np.ndarray]) -> None:
    embedding = DenseEmbedding(4)
    before = embedding.weight.detach().clone()
    classifier = quick(method_options={"embedding": embedding})
    expected = classifier.fit(*blobs).predict_proba(blobs[0])
    assert torch.equal(embedding.weight, before)
    np.testing.assert_array_equal(classifier.fit(*blobs).predict_proba(blobs[0]), expected)


def test_n_jobs_is_the_number_of_threads_for_a_while(
    blobs: tuple[np.ndarray, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", asked.append)
    quick(max_iter=1).fit(*blobs).predict(blobs[0])
    assert asked == []
    quick(max_iter=1, n_jobs=3).fit(*blobs)
    assert asked == [3, torch.get_num_threads()]


def test_verbose_prints_a_line_a_pass(blobs: tuple[np.ndarray, np.ndarray], capsys: pytest.CaptureFixture[str]) -> None:
    quick(max_iter=2, verbose=True).fit(*blobs)
    assert [line.split(":")[0] for line in capsys.readouterr().out.splitlines()] == ["pass 1", "pass 2"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "magic"}, "method is 'magic', but must be one of plain, "),
        ({"activation": "sine"}, "activation is 'sine', but must be one of relu, "),
        ({"max_iter": 0}, "max_iter is 0, but must be a whole number of at least 1"),
        ({"max_iter": 2.5}, "max_iter is 2.5, but must be a whole number"),
        ({"batch_size": -1}, "batch_size is -1, but must be"),
        ({"hidden_layer_sizes": (10, 0)}, r"hidden_layer_sizes is \(10, 0\), but must be"),
        ({"hidden_layer_sizes": "ten"}, "hidden_layer_sizes is 'ten', but must be"),
        ({"learning_rate_init": 0}, "learning_rate_init is 0, but must be a number above 0"),
        ({"alpha": float("nan")}, "alpha is nan, but must be a number of at least 0"),
        ({"early_stopping": True, "validation_fraction": 1.0}, "validation_fraction is 1.0, but must be below 1"),
        ({"embedding": "sparse"}, "embedding is 'sparse', but must be one of running, dense, compressed"),
        ({"embedding": "compressed", "rank": 0}, "rank is 0, but must be 1 or more"),
        ({"rank": 5}, 'rank=5 is an option of embedding="compressed"'),
        ({"embedding": "dense", "method": "plain"}, "embedding is 'dense', but only method='label-embedding' has one"),
        (
            {"rank": 5, "method": "plain"},
            "rank is 5, but only method='label-embedding' has one",
        ),
        ({"learning_rate_init": 1e300}, "the loss is nan in pass 1: scale the features, or lower learning_rate_init"),
    ],
)
def test_a_parameter_that_cannot_be_is_an_error_at_fit(
    options: dict[str, Any], message: str, blobs: tuple[np.ndarray, np.ndarray]
) -> None:
    classifier = quick(**options)
    with pytest.raises(ValueError, match=message):
        classifier.fit(*blobs)


@pytest.mark.parametrize("options", [{"objective": "paper"}, {"method_options": 3}])
def test_a_parameter_of_another_type_is_an_error_at_fit(
    options: dict[str, Any], blobs: tuple[np.ndarray, np.ndarray]
) -> None:
    with pytest.raises(TypeError, match=f"{next(iter(options))} is .*, but must be"):
        quick(**options).fit(*blobs)


def test_data_that_cannot_be_is_an_error(blobs: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = blobs
    with pytest.raises(ValueError, match=r"2 classes or more, but there is 1 class: .*apple"):
        quick().fit(X[:5], ["apple"] * 5)
    with pytest.raises(ValueError, match="the first call of partial_fit needs all classes"):
        quick().partial_fit(X, y)
    with pytest.raises(ValueError, match=r"y has the class .*dates.*, which is not among the classes"):
        quick().partial_fit(X, y, classes=NAMES[:3])
    with pytest.raises(ValueError, match="earlier calls had"):
        quick().partial_fit(X, y, classes=NAMES).partial_fit(X, y, classes=NAMES[:3])
    with pytest.raises(ValueError, match="class_weight='balanced' needs all data"):
        quick(class_weight="balanced").partial_fit(X, y, classes=NAMES)
    with pytest.raises(ValueError, match="early_stopping is True"):
        quick(early_stopping=True).partial_fit(X, y, classes=NAMES)
    with pytest.raises(ValueError, match="warm_start goes on with the classes"):
        quick(warm_start=True, max_iter=1).fit(X, y).fit(X, np.char.upper(y))
