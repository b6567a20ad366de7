"""Batches: the same examples whatever way they are asked for."""

import torch

from labelemb.lab.data import ImageExamples, TextExamples


def texts() -> TextExamples:
    # four texts of 2, 0, 3 and 1 features
    return TextExamples(torch.tensor([5, 6, 1, 2, 3, 9]), torch.tensor([0, 2, 2, 5, 6]), torch.tensor([0, 1, 0, 1]))


def test_a_text_batch_holds_the_features_of_its_texts_in_order() -> None:
    (features, starts), targets = texts().batch(torch.tensor([3, 1, 2, 3]))
    assert features.tolist() == [9, 1, 2, 3, 9]
    assert starts.tolist() == [0, 1, 1, 4]
    assert targets.tolist() == [1, 1, 0, 1]


def test_selected_texts_give_the_batches_of_the_whole() -> None:
    part = texts().select(torch.tensor([2, 0, 1]))
    (features, starts), targets = part.batch(torch.tensor([1, 0]))
    assert (features.tolist(), starts.tolist(), targets.tolist()) == ([5, 6, 1, 2, 3], [0, 2], [0, 0])


def test_selected_images_give_the_batches_of_the_whole() -> None:
    pixels = torch.randint(0, 256, (6, 2, 3, 3), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    whole = ImageExamples(pixels, torch.arange(6), mean=[0.1, 0.2], std=[0.5, 0.3])
    part = whole.select(torch.tensor([4, 2]))
    (expected,), _ = whole.batch(torch.tensor([2]))
    (found,), targets = part.batch(torch.tensor([1]))
    assert torch.equal(expected, found)
    assert targets.tolist() == [2]


def test_an_epoch_covers_every_example_once_and_follows_the_generator() -> None:
    examples = texts()
    assert [index.tolist() for index in examples.batches(3, None)] == [[0, 1, 2], [3]]
    first, again = (examples.batches(3, torch.Generator().manual_seed(5)) for _ in range(2))
    assert torch.equal(torch.cat(first), torch.cat(again))
    assert sorted(torch.cat(first).tolist()) == [0, 1, 2, 3]
    generator = torch.Generator().manual_seed(5)
    epochs = [torch.cat(examples.batches(3, generator)).tolist() for _ in range(6)]
    assert len({tuple(epoch) for epoch in epochs}) > 1
