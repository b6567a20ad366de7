"""Probabilities and labels in every form that users have them in, in memory of rows x top-k."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from labelemb.findings import Audit, audit
from labelemb.findings.predictions import largest
from tests.helpers.noisy_labels import NoisyLabels, noisy_labels


@pytest.fixture(scope="module")
def noisy() -> NoisyLabels:
    return noisy_labels(rows=1000, labels=40, flips=0.1)


@pytest.fixture(scope="module")
def whole(noisy: NoisyLabels) -> Audit:
    return audit(noisy.probabilities, noisy.given)


def same(one: Audit, other: Audit) -> bool:
    return (
        one.summary == other.summary
        and list(one.examples) == list(other.examples)
        and one.pairs == other.pairs
        and one.labels == other.labels
    )


@pytest.mark.parametrize("rows", [1, 7, 999, 1000])
def test_blocks_of_rows_give_what_the_whole_array_gives(noisy: NoisyLabels, whole: Audit, rows: int) -> None:
    blocks = (noisy.probabilities[start : start + rows] for start in range(0, 1000, rows))
    assert same(audit(blocks, noisy.given), whole)


def test_a_list_of_blocks_and_a_nested_list_are_told_apart(noisy: NoisyLabels, whole: Audit) -> None:
    assert same(audit([noisy.probabilities[:300], noisy.probabilities[300:]], noisy.given), whole)
    assert same(audit(noisy.probabilities.tolist(), noisy.given.tolist()), whole)


def pairs_of(probabilities: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    indices = np.argsort(-probabilities, axis=1)[:, :k]
    return indices, np.take_along_axis(probabilities, indices, axis=1)


def test_top_k_pairs_give_what_the_whole_array_gives(noisy: NoisyLabels, whole: Audit) -> None:
    names = [str(label) for label in range(40)]
    indices, values = pairs_of(noisy.probabilities, 40)
    assert same(audit((indices, values), noisy.given, names), whole)
    blocks = [(indices[start : start + 400], values[start : start + 400]) for start in range(0, 1000, 400)]
    assert same(audit(iter(blocks), noisy.given, names), whole)


def test_labels_that_top_k_pairs_do_not_list_have_no_probability(noisy: NoisyLabels) -> None:
    names = [str(label) for label in range(40)]
    indices, values = pairs_of(noisy.probabilities, 3)
    indices[0], values[0] = [5, -1, -1], [0.9, 0, 0]
    given = noisy.given.copy()
    given[0] = 6
    found = audit((indices, values), given, names).examples.of_row(0)
    assert (found.self_confidence, found.suggested_label) == (0, "5")
    assert found.suggested_probability == pytest.approx(0.9)


def test_tensors_and_half_precision_are_taken(noisy: NoisyLabels, whole: Audit) -> None:
    assert same(audit(torch.from_numpy(noisy.probabilities), torch.from_numpy(noisy.given)), whole)
    half = audit(noisy.probabilities.astype(np.float16), noisy.given)
    assert half.summary.expected_errors == pytest.approx(whole.summary.expected_errors, abs=3)


def test_data_frames_are_taken(noisy: NoisyLabels, whole: Audit) -> None:
    pandas = pytest.importorskip("pandas")
    assert same(audit(pandas.DataFrame(noisy.probabilities), pandas.Series(noisy.given)), whole)


def test_labels_may_be_names_indices_or_sorted_classes() -> None:
    probabilities = [[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8], [0.7, 0.2, 0.1]]
    by_index = audit(probabilities, [0, 1, 2, 0], ["ant", "bee", "cat"])
    assert by_index.examples.of_row(2).given_label == "cat"
    assert same(audit(probabilities, ["ant", "bee", "cat", "ant"]), by_index)
    assert same(audit(probabilities, np.array(["ant", "bee", "cat", "ant"]), np.array(["ant", "bee", "cat"])), by_index)
    by_class = audit(probabilities, [3, 5, 9, 3])
    assert [score.label for score in by_class.label_scores] == ["3", "5", "9"]
    assert same(audit(probabilities, [3, 5, 9, 3], [3, 5, 9]), by_class)


def test_a_small_top_k_keeps_the_order_of_examples(noisy: NoisyLabels, whole: Audit) -> None:
    found = audit(noisy.probabilities, noisy.given, top_k=2)
    assert [example.index for example in found.examples] == [example.index for example in whole.examples]


@pytest.mark.parametrize("columns", [2, 5, 11, 100, 1003])
def test_the_largest_entries_are_those_of_a_sort(columns: int) -> None:
    generator = np.random.default_rng(columns)
    block = generator.random((50, columns)).astype(np.float32) ** 3
    block[:10] = np.round(block[:10], 1)  # equal entries
    k = min(10, columns)
    labels, values = largest(block, k)
    order = np.argsort(-block, axis=1, kind="stable")[:, :k]
    expected = np.take_along_axis(block, order, axis=1)
    assert (values == expected).all()
    assert (labels == np.where(expected > 0, order, -1)).all()


def peak_of_an_audit(rows: int, labels: int, block_rows: int) -> tuple[int, Audit]:
    """Bytes at the peak of an audit of blocks that are all the same array, and the audit."""
    generator = np.random.default_rng(0)
    block = generator.random((block_rows, labels), dtype=np.float32) ** 20 + 1e-6
    block[np.arange(block_rows), np.arange(block_rows) % labels] += labels / 20
    block /= block.sum(axis=1, keepdims=True)
    given = np.tile(np.arange(block_rows) % labels, rows // block_rows)
    given[::100] = (given[::100] + generator.integers(1, labels, size=len(given[::100]))) % labels

    def blocks() -> Iterator[np.ndarray]:
        for _ in range(rows // block_rows):
            yield block

    tracemalloc.start()
    try:
        found = audit(blocks(), given)
        return tracemalloc.get_traced_memory()[1], found
    finally:
        tracemalloc.stop()


def test_memory_grows_with_rows_and_top_k_not_with_labels() -> None:
    """40,000 x 1,000 float32 would be 160 MB."""
    peak, found = peak_of_an_audit(40_000, 1_000, 2_000)
    assert {example.index for example in found.examples[:400]} == set(range(0, 40_000, 100))
    assert peak < 40_000 * 10 * 60 + 15e6


@pytest.mark.slow  # reads a thousand million numbers
def test_200000_rows_of_5000_labels_take_little_memory() -> None:
    """The array would take 4 GB in float32."""
    peak, found = peak_of_an_audit(200_000, 5_000, 2_000)
    assert {example.index for example in found.examples[:2_000]} == set(range(0, 200_000, 100))
    assert peak < 150e6
