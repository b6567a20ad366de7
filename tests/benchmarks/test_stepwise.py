"""The benchmark's step-by-step model is the lab's: what is compared must give the same."""

import pytest
import torch

from labelemb.lab.tasks.beam import SearchOptions, search
from tests.helpers.text_models import SYMBOLS, make_examples, make_model

stepwise = pytest.importorskip("benchmarks.stepwise")


def test_loss_and_best_texts_are_the_same() -> None:
    body, head = make_model(seed=2)
    examples = make_examples([3, 5, 2], [4, 2, 6])
    inputs, targets = examples.batch(torch.arange(3))
    expected = head(body(*inputs), targets).loss
    assert torch.allclose(stepwise.stepwise_loss(body, head, inputs, targets), expected, atol=1e-6)
    options = SearchOptions(4, max_length=6)
    found = search(body, head, inputs[0], inputs[1], SYMBOLS, options)
    for row, length in enumerate(inputs[1].tolist()):
        source, lengths = inputs[0][row : row + 1, :length], inputs[1][row : row + 1]
        assert stepwise.sentence_beam(body, head, source, lengths, SYMBOLS, options) == found[row][0].words
