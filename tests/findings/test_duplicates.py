"""Inputs that occur more than once with different labels, or on both sides of a split."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from labelemb.findings import DuplicateFinding, audit
from labelemb.findings.duplicates import find_duplicates
from labelemb.findings.signatures import text_similarity

NAMES = ["ant", "bee"]


def duplicates(
    inputs: Sequence[Any], given: list[int], splits: list[str] | None = None
) -> tuple[DuplicateFinding, ...]:
    probabilities = np.full((len(given), 2), 0.5)
    found = audit(probabilities, given, NAMES, inputs=inputs, splits=splits).duplicates
    assert found is not None
    return found


def test_the_same_text_with_different_labels_is_found() -> None:
    texts = ["Pay my  bill!", "send money", "pay my bill", "PAY MY BILL.", "send money"]
    [found] = duplicates(texts, [0, 0, 1, 0, 0])
    assert (found.kind, found.rows, found.labels) == ("exact", (0, 2, 3), ("ant", "bee", "ant"))
    assert (found.different_labels, found.crosses_splits, found.splits) == (True, False, None)
    assert found.reason == "the same input labelled 'ant' 2x, 'bee'"


def test_the_same_text_in_train_and_test_is_found() -> None:
    [found] = duplicates(["a b c", "d", "a b c"], [0, 1, 0], ["train", "train", "test"])
    assert (found.rows, found.splits) == ((0, 2), ("train", "test"))
    assert (found.different_labels, found.crosses_splits) == (False, True)
    assert found.reason == "the same input in 'train', 'test'"


def test_duplicates_with_different_labels_come_before_those_across_splits() -> None:
    texts = ["a b c", "a b c", "d e f", "d e f"]
    crossing, different = duplicates(texts, [0, 0, 0, 1], ["train", "test", "train", "test"])[::-1]
    assert (different.rows, different.different_labels) == ((2, 3), True)
    assert (crossing.rows, crossing.different_labels) == ((0, 1), False)


def test_nearly_the_same_text_with_different_labels_is_found() -> None:
    request = "please tell me the balance of my savings account"
    texts = [f"{request} now", "something else altogether, with other words", f"{request}s now", request]
    [first, second] = duplicates(texts, [0, 0, 1, 0])
    assert (first.kind, first.rows) == ("near", (0, 2))
    assert first.similarity == text_similarity(texts[0], texts[2]) > second.similarity > 0.8
    assert second.rows == (2, 3)
    assert first.reason == f"nearly the same input ({first.similarity:.2f}) labelled 'ant', 'bee'"


def test_nearly_the_same_text_with_one_label_in_one_split_is_fine() -> None:
    texts = ["please tell me the balance of my account", "please tell me the balance of my accounts"]
    assert duplicates(texts, [0, 0]) == ()
    assert len(duplicates(texts, [0, 0], ["train", "dev"])) == 1


def test_near_duplicates_are_found_in_scripts_without_spaces() -> None:
    texts = ["今天北京的天气怎么样我想知道", "今天北京的天气怎么样我想知道吗", "明天我要坐飞机去上海开会"]
    [found] = duplicates(texts, [0, 1, 1])
    assert found.rows == (0, 1)


@pytest.mark.parametrize("text", ["", " ", "!", "a", "\ud800", "a\0b", "é"])
def test_short_and_odd_texts_are_compared(text: str) -> None:
    [found] = duplicates([text, "some other text", text], [0, 0, 1])
    assert (found.kind, found.rows) == ("exact", (0, 2))


def test_most_near_duplicates_among_many_texts_are_found() -> None:
    """Every text has one copy with a word replaced; a second label marks the copies."""
    generator = np.random.default_rng(0)
    words = ["".join(generator.choice(list("abcdefghijklmnopqrstuvwxyz"), 6)) for _ in range(500)]
    texts = [" ".join(generator.choice(words, 20)) for _ in range(1500)]
    copies = [f"{text[:40]}x{text[41:]}" for text in texts]
    found = find_duplicates(texts + copies, np.repeat([0, 1], 1500), NAMES, None)
    assert {finding.rows for finding in found} <= {(row, row + 1500) for row in range(1500)}
    assert len(found) > 1450


def test_thousands_of_texts_from_one_template_stay_cheap() -> None:
    texts = [f"remind me to call customer number {number} about the invoice tomorrow" for number in range(4000)]
    start = time.process_time()
    found = find_duplicates(texts, np.arange(4000) % 2, NAMES, None)
    assert found
    assert time.process_time() - start < 20


def image(seed: int, size: tuple[int, ...] = (24, 20, 3)) -> np.ndarray:
    generator = np.random.default_rng(seed)
    coarse = generator.random((6, 5, *size[2:]))
    return (coarse.repeat(size[0] // 6, axis=0).repeat(size[1] // 5, axis=1) * 255).astype(np.uint8)


def test_the_same_image_with_different_labels_is_found() -> None:
    images = np.stack([image(0), image(1), image(0), image(2)])
    [found] = duplicates(images, [0, 0, 1, 1])
    assert (found.kind, found.rows) == ("exact", (0, 2))


@pytest.mark.parametrize("layout", ["array", "list", "channels first", "grey"])
def test_a_noisy_and_brighter_copy_of_an_image_is_a_near_duplicate(layout: str) -> None:
    noise = np.random.default_rng(9).integers(-4, 5, (24, 20, 3))
    copy = np.clip(image(0) * 0.8 + 40 + noise, 0, 255).astype(np.uint8)
    images: Any = np.stack([image(0), image(1), copy, image(2)])
    images = {
        "array": images,
        "list": list(images),
        "channels first": images.transpose(0, 3, 1, 2),
        "grey": images[..., 0],
    }[layout]
    [found] = duplicates(images, [0, 0, 1, 1])
    assert (found.kind, found.rows) == ("near", (0, 2))
    assert found.similarity > 0.98


def test_images_of_one_colour_and_of_few_pixels_are_compared() -> None:
    assert duplicates(np.zeros((3, 8, 8), np.uint8) + np.arange(3, dtype=np.uint8)[:, None, None], [0, 1, 0]) == ()
    [found] = duplicates([np.ones((1, 1)), np.zeros((2, 3)), np.ones((1, 1))], [0, 0, 1])
    assert found.kind == "exact"


def test_image_files_are_read_and_a_file_that_is_no_image_is_named(tmp_path: Path) -> None:
    pillow = pytest.importorskip("PIL.Image")
    paths = [tmp_path / name for name in ("a.png", "b.png", "small.png", "c.png")]
    pillow.fromarray(image(0)).save(paths[0])
    pillow.fromarray(image(1)).save(paths[1])
    pillow.fromarray(image(0)).resize((40, 48)).save(paths[2])
    pillow.fromarray(image(0)).save(paths[3])
    exact, near = duplicates(paths, [0, 0, 1, 1])
    assert (exact.kind, exact.rows, near.kind, near.rows) == ("exact", (0, 3), "near", (0, 2, 3))
    paths[1].write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"input 1: .*b\.png is not an image that Pillow reads"):
        duplicates(paths, [0, 0, 1, 1])
    paths[1].unlink()
    with pytest.raises(ValueError, match=r"input 1: cannot read .*b\.png: No such file"):
        duplicates(paths, [0, 0, 1, 1])


def test_bytes_and_vectors_of_features_are_compared_exactly() -> None:
    assert duplicates([b"a", b"b", b"a"], [0, 0, 1])[0].rows == (0, 2)
    assert duplicates(np.array([[0.5, 1.0], [0.5, 1.1], [0.5, 1.0]]), [0, 0, 1])[0].rows == (0, 2)


def test_without_inputs_duplicates_were_not_looked_for() -> None:
    assert audit(np.full((4, 2), 0.5), [0, 1, 0, 1], NAMES).duplicates is None
