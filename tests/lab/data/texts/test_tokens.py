"""Batches of texts as tokens."""

import torch

from labelemb.lab.data.texts.tokens import NO_TOKEN, TokenExamples

LENGTHS = torch.tensor([5, 1, 4, 2, 5, 1])
EXAMPLES = TokenExamples(
    torch.arange(int(LENGTHS.sum())), torch.cat([torch.zeros(1, dtype=int), LENGTHS.cumsum(0)]), LENGTHS
)


def test_batches_of_an_evaluation_hold_texts_of_like_length() -> None:
    batches = EXAMPLES.batches(2, None)
    assert [LENGTHS[index].tolist() for index in batches] == [[1, 1], [2, 4], [5, 5]]
    assert torch.cat(batches).sort().values.tolist() == list(range(6))


def test_batches_of_a_training_are_drawn() -> None:
    drawn = EXAMPLES.batches(2, torch.Generator().manual_seed(0))
    assert torch.equal(torch.cat(drawn), torch.randperm(6, generator=torch.Generator().manual_seed(0)))


def test_short_texts_are_filled_up() -> None:
    (tokens,), targets = EXAMPLES.batch(torch.tensor([1, 3]))
    assert tokens.tolist() == [[5, NO_TOKEN], [10, 11]]
    assert targets.tolist() == [1, 2]
