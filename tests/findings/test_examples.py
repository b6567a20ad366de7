"""Examples are ranked by the probability of the given label against the best other one, and errors are counted."""

from __future__ import annotations

import numpy as np
import pytest

from labelemb.findings import audit
from tests.helpers.noisy_labels import NoisyLabels, noisy_labels


@pytest.fixture(scope="module")
def noisy() -> NoisyLabels:
    return noisy_labels(rows=3000, labels=12, flips=0.1)


def test_flipped_labels_come_first(noisy: NoisyLabels) -> None:
    found = audit(noisy.probabilities, noisy.given)
    flips = int(noisy.flipped.sum())
    first = [example.index for example in found.examples[:flips]]
    assert noisy.flipped[first].mean() > 0.9


def test_as_many_errors_are_expected_as_labels_were_flipped(noisy: NoisyLabels) -> None:
    found = audit(noisy.probabilities, noisy.given)
    assert found.summary.expected_errors == pytest.approx(noisy.flipped.sum(), rel=0.2)
    assert found.examples.num_issues <= found.summary.expected_errors
    assert [issue.is_label_issue for issue in found.examples.issues()] == [True] * found.examples.num_issues
    assert found.examples.is_label_issue.sum() == found.examples.num_issues


def test_clean_labels_are_not_flagged() -> None:
    clean = noisy_labels(rows=3000, labels=12, flips=0.0)
    found = audit(clean.probabilities, clean.given)
    wrong = (clean.probabilities.argmax(1) != clean.given).sum()
    assert found.summary.disagreeing == wrong > 0
    assert found.summary.expected_errors < wrong


def test_an_example_names_labels_probabilities_and_the_reason() -> None:
    probabilities = np.array([[0.9, 0.1, 0.0], [0.1, 0.8, 0.1], [0.0, 0.1, 0.9], [0.05, 0.15, 0.8], [0.9, 0.0, 0.1]])
    found = audit(probabilities, ["cat", "dog", "car", "cat", "cat"], ["cat", "dog", "car"])
    worst = found.examples[0]
    assert (worst.index, worst.given_label, worst.suggested_label) == (3, "cat", "car")
    assert worst.suggested_probability == pytest.approx(0.8)
    assert worst.self_confidence == pytest.approx(0.05)
    assert worst.label_quality == pytest.approx(0.05 / 0.85)
    assert worst.reason == "'car' is more probable (its own examples get 0.9 on average): 0.8 against 0.05"
    assert found.examples[-1].reason == "'cat' is the most probable label: 0.9 against 0.1"


def test_the_threshold_of_a_label_is_its_mean_self_confidence(noisy: NoisyLabels) -> None:
    found = audit(noisy.probabilities, noisy.given)
    for label, score in enumerate(found.label_scores):
        own = noisy.probabilities[noisy.given == label, label]
        assert score.self_confidence == pytest.approx(own.mean(), rel=1e-5)
        assert score.accuracy == pytest.approx((noisy.probabilities.argmax(1) == label)[noisy.given == label].mean())
    assert sum(score.expected_errors for score in found.label_scores) == pytest.approx(
        found.summary.expected_errors, abs=0.5
    )


def test_expected_errors_follow_the_confident_joint_of_the_whole_matrix(noisy: NoisyLabels) -> None:
    """Top-k entries give what confident learning computes from all (rows, labels) probabilities."""
    probabilities, given = noisy.probabilities, noisy.given
    thresholds = np.array([probabilities[given == label, label].mean() for label in range(12)])
    confident = np.where(probabilities >= thresholds, probabilities, -1)
    counted = confident.max(axis=1) >= 0
    joint = np.zeros((12, 12))
    np.add.at(joint, (given[counted], confident[counted].argmax(axis=1)), 1)
    share = 1 - np.diag(joint) / joint.sum(axis=1)
    expected = (share * np.bincount(given, minlength=12)).sum()
    assert audit(probabilities, given).summary.expected_errors == round(expected)


def test_the_order_does_not_depend_on_the_order_of_labels(noisy: NoisyLabels) -> None:
    names = [f"label {index}" for index in range(12)]
    permutation = np.random.default_rng(3).permutation(12)
    texts = np.array(names)[noisy.given]
    one = audit(noisy.probabilities, texts, names)
    other = audit(noisy.probabilities[:, permutation], texts, [names[place] for place in permutation])
    assert [example.index for example in one.examples] == [example.index for example in other.examples]
    assert one.examples[0] == other.examples[0]
    assert one.summary == other.summary


def test_losses_decide_between_equals_and_are_shown() -> None:
    probabilities = np.array([[0.9, 0.1]] * 4 + [[0.1, 0.9]] * 4)
    losses = [0.1, 0.5, 0.3, 0.2, 2.0, 0.1, 0.2, 0.2]
    found = audit(probabilities, [1, 0, 1, 0, 1, 1, 1, 0], losses=losses)
    assert [example.index for example in found.examples[:3]] == [2, 7, 0]
    assert found.examples[0].loss == 0.3


def test_rows_of_nan_are_not_judged(noisy: NoisyLabels) -> None:
    probabilities = noisy.probabilities.copy()
    probabilities[:7] = np.nan
    found = audit(probabilities, noisy.given)
    assert found.summary.rows_without_prediction == 7
    assert {example.index for example in found.examples[-7:]} == set(range(7))
    assert found.examples[-1].suggested_label is None
    assert found.examples[-1].reason == "no prediction for this row"
    rest = audit(noisy.probabilities[7:], noisy.given[7:])
    assert rest.summary.expected_errors == found.summary.expected_errors


@pytest.mark.parametrize("filler", [0.0, np.nan])
def test_examples_of_a_label_absent_from_its_fold_are_not_flagged(noisy: NoisyLabels, filler: float) -> None:
    probabilities = noisy.probabilities.copy()
    fold = noisy.given == 4  # all examples of label 4 were held out together: that model has no such column
    probabilities[fold, 4] = 0
    probabilities[fold] /= probabilities[fold].sum(axis=1, keepdims=True)
    probabilities[fold, 4] = filler
    found = audit(probabilities, noisy.given)
    assert found.summary.rows_of_absent_labels == fold.sum()
    assert not found.examples.is_label_issue[fold].any()
    assert [(label.label, label.problem) for label in found.labels] == [("4", "absent from training")]
    assert "absent from the training part" in found.examples[-1].reason


def test_a_forest_that_gives_many_exact_zeros_can_be_audited(noisy: NoisyLabels) -> None:
    probabilities = np.where(noisy.probabilities < 0.08, 0, noisy.probabilities)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    found = audit(probabilities, noisy.given)
    flips = int(noisy.flipped.sum())
    assert noisy.flipped[[example.index for example in found.examples[:flips]]].mean() > 0.8
