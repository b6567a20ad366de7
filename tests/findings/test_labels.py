"""Findings about labels: pairs that overlap, what to do with them, labels without right predictions or examples."""

from __future__ import annotations

import numpy as np
import pytest

from labelemb.findings import audit
from labelemb.labelspace import LabelSpace
from tests.helpers.noisy_labels import noisy_labels

NAMES = ["apple", "pear", "car", "truck"]
WELL_KNOWN = ((9, "car", "car"), (9, "truck", "truck"))


def rows_of(*groups: tuple[int, str, str]) -> tuple[np.ndarray, list[str]]:
    """Probabilities and given labels of `count` rows each that carry `given` and are predicted as `predicted`."""
    probabilities, given = [], []
    for count, label, predicted in groups:
        row = np.full(4, 0.05)
        row[NAMES.index(predicted)] = 0.85
        probabilities += [row] * count
        given += [label] * count
    return np.array(probabilities), given


def test_labels_that_nobody_can_tell_apart_are_to_be_merged() -> None:
    fruit = ((6, "apple", "apple"), (4, "apple", "pear"), (5, "pear", "pear"), (5, "pear", "apple"))
    found = audit(*rows_of(*fruit, (20, "car", "car"), (1, "truck", "car"), (19, "truck", "truck")), NAMES)
    [pair] = found.pairs  # a single confusion of car and truck is no pair
    assert (pair.label, pair.other, pair.label_as_other, pair.other_as_label) == ("pear", "apple", 5, 4)
    assert pair.suggestion == "merge"
    assert pair.label_examples == (15, 16, 17)
    assert pair.other_examples == (6, 7, 8)
    assert pair.error_before == pytest.approx(10 / 60)
    assert pair.error_merged == pytest.approx(1 / 60)
    assert "only 50% of 'pear' and 60% of 'apple' are right" in pair.reason
    assert (pair.likeness, pair.other_likeness) == (None, None)


def test_a_label_that_loses_a_part_in_one_direction_is_to_be_split() -> None:
    fruit = ((14, "apple", "apple"), (6, "apple", "pear"), (20, "pear", "pear"))
    [pair] = audit(*rows_of(*fruit, *WELL_KNOWN), NAMES).pairs
    assert (pair.label, pair.other, pair.suggestion) == ("apple", "pear", "split")
    assert pair.reason.startswith("6 of 20 examples of 'apple' look like 'pear', which loses 0 to it")


def test_a_label_that_loses_nearly_all_its_examples_in_one_direction_is_to_be_merged() -> None:
    fruit = ((2, "apple", "apple"), (18, "apple", "pear"), (20, "pear", "pear"))
    [pair] = audit(*rows_of(*fruit, *WELL_KNOWN), NAMES).pairs
    assert (pair.label, pair.other, pair.suggestion) == ("apple", "pear", "merge")
    assert pair.reason == "18 of 20 examples of 'apple' look like 'pear': nearly all"


def test_labels_that_are_told_apart_but_for_a_few_confident_examples_are_to_be_relabelled() -> None:
    fruit = ((40, "apple", "apple"), (3, "apple", "pear"), (40, "pear", "pear"))
    [pair] = audit(*rows_of(*fruit, *WELL_KNOWN), NAMES).pairs
    assert pair.suggestion == "relabel"
    assert "3 of the 3 confused examples are confidently the other label" in pair.reason


def test_confused_examples_that_reach_no_threshold_are_no_reason_to_change_labels() -> None:
    probabilities, given = rows_of((40, "apple", "apple"), (40, "pear", "pear"), *WELL_KNOWN)
    probabilities[:3] = [0.40, 0.45, 0.10, 0.05]
    [pair] = audit(probabilities, given, NAMES).pairs
    assert (pair.label_as_other, pair.suggestion) == (3, "keep")


def test_the_error_after_merging_is_that_of_summed_columns() -> None:
    """Against the whole matrix, also where the merged label takes a row from a third one."""
    noisy = noisy_labels(rows=2000, labels=8, flips=0.2, seed=4)
    probabilities = noisy.probabilities**0.5
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    found = audit(probabilities, noisy.given, top_k=8)
    assert len(found.pairs) > 10
    for pair in found.pairs:
        a, b = int(pair.label), int(pair.other)
        merged = probabilities.copy()
        merged[:, a] += merged[:, b]
        merged[:, b] = 0
        given = np.where(noisy.given == b, a, noisy.given)
        assert pair.error_merged == pytest.approx((merged.argmax(axis=1) != given).mean())
        assert pair.error_before == pytest.approx((probabilities.argmax(axis=1) != noisy.given).mean())
        assert pair.label_as_other == ((probabilities.argmax(axis=1) == b) & (noisy.given == a)).sum()


def test_likeness_of_a_label_space_stands_beside_the_confusion() -> None:
    space = LabelSpace.from_matrix(
        [[0.2, 0.1, 0.6, 0.1], [0.1, 0.7, 0.1, 0.1], [0.5, 0.1, 0.3, 0.1], [0.1, 0.1, 0.1, 0.7]],
        ["pear", "car", "apple", "truck"],
    )
    fruit = ((5, "apple", "apple"), (5, "apple", "pear"), (9, "pear", "pear"))
    [pair] = audit(*rows_of(*fruit, *WELL_KNOWN), NAMES, space=space).pairs
    assert pair.likeness == pytest.approx(space.similarity("apple", "pear")) == pytest.approx(0.5, abs=1e-4)
    assert pair.other_likeness == pytest.approx(0.6, abs=1e-4)


def test_names_come_from_the_space_where_none_are_given() -> None:
    space = LabelSpace.from_matrix(np.eye(4) * 0.6 + 0.1, NAMES)
    probabilities, given = rows_of((9, "apple", "apple"), (9, "pear", "pear"), *WELL_KNOWN)
    assert [score.label for score in audit(probabilities, given, space=space).label_scores] == NAMES


def test_labels_that_nobody_gets_right_and_labels_with_few_examples_are_named() -> None:
    found = audit(*rows_of((9, "apple", "apple"), (7, "pear", "apple"), (3, "car", "car")), NAMES)
    assert [(label.label, label.problem, label.examples) for label in found.labels] == [
        ("pear", "never right", 7),
        ("car", "too few examples", 3),
        ("truck", "too few examples", 0),
    ]
    assert found.labels[0].reason == "none of its 7 examples is predicted right"
