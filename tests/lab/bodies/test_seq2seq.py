"""The encoder-decoder: masked attention, whole sequences at once, and padding that takes part in nothing."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from labelemb import Head, LabelEmbeddingHead, Objective, PlainHead
from labelemb.lab.bodies.seq2seq import Seq2Seq
from labelemb.lab.data.pairs.sequences import IGNORED

KINDS = [{}, {"layers": 2}, {"bidirectional": True, "layers": 2}, {"query_tanh": True}]


def make_body(**options: object) -> Seq2Seq:
    torch.manual_seed(0)
    return Seq2Seq(11, 9, embedding_size=5, hidden_size=6, **options)  # type: ignore[arg-type]


def batch() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Three pairs: source, source lengths, shifted targets, targets."""
    generator = torch.Generator().manual_seed(2)
    source = torch.randint(11, (3, 7), generator=generator)
    target = torch.randint(3, 9, (3, 6), generator=generator)
    for row, length in enumerate((6, 4, 2)):
        target[row, length:] = IGNORED
    shifted = torch.cat([torch.ones(3, 1, dtype=torch.long), target[:, :-1].clamp_min(1)], dim=1)
    return source, torch.tensor([7, 3, 5]), shifted, target


@pytest.mark.parametrize("options", KINDS)
def test_a_pairs_hidden_states_do_not_depend_on_its_neighbours(options: dict[str, object]) -> None:
    body = make_body(**options)
    source, lengths, shifted, _ = batch()
    together = body(source, lengths, shifted)
    for row, length in enumerate(lengths.tolist()):
        alone = body(source[row : row + 1, :length], lengths[row : row + 1], shifted[row : row + 1])
        assert torch.allclose(together[row], alone[0], atol=1e-6)


@pytest.mark.parametrize("options", KINDS)
def test_what_stands_behind_a_sources_end_is_not_looked_at(options: dict[str, object]) -> None:
    body = make_body(**options)
    source, lengths, shifted, _ = batch()
    other = source.clone()
    other[1, 3:] = 4
    assert torch.equal(body(source, lengths, shifted), body(other, lengths, shifted))


def test_a_hidden_state_depends_on_earlier_target_words_only() -> None:
    body = make_body(layers=2)
    source, lengths, shifted, _ = batch()
    other = shifted.clone()
    other[:, 4:] = 3
    before, after = body(source, lengths, shifted), body(source, lengths, other)
    assert torch.equal(before[:, :4], after[:, :4])
    assert not torch.allclose(before[:, 4:], after[:, 4:])


def test_the_attention_is_the_one_of_the_paper() -> None:
    body = make_body()
    source, lengths, shifted, _ = batch()
    memory = body.encode(source, lengths)
    states, _ = body.recur(shifted, memory.final)
    hidden, weights = body.attend(states, memory)
    for row, length in enumerate(lengths.tolist()):
        for place in range(shifted.shape[1]):
            keys = memory.states[row, :length]
            attention = (keys @ (body.query.weight @ states[row, place])).softmax(0)
            combined = torch.cat([attention @ keys, states[row, place]])
            expected = torch.tanh(body.combine.weight @ combined + body.combine.bias)
            assert torch.allclose(hidden[row, place], expected, atol=1e-6)
            assert torch.allclose(weights[row, place, :length], attention, atol=1e-6)
            assert bool((weights[row, place, length:] == 0).all())


def loss_and_gradients(body: nn.Module, head: Head, inputs: tuple[Tensor, ...], targets: Tensor) -> list[Tensor]:
    body.zero_grad()
    head.zero_grad()
    out = head(body(*inputs), targets, num_items=12, progress=0.5)
    out.loss.backward()
    gradients = [p.grad.clone() for p in (*body.parameters(), *head.parameters()) if p.grad is not None]
    return [out.loss.detach(), *out.terms, out.correct.float(), *gradients]


@pytest.mark.parametrize("impl", ["autograd", "chunked"])
@pytest.mark.parametrize("method", ["plain", "authors", "rising floor"])
def test_padding_changes_no_term_and_no_gradient(method: str, impl: str) -> None:
    def make_head() -> Head:
        torch.manual_seed(1)
        if method == "plain":
            return PlainHead(6, 9)
        if method == "authors":
            objective = Objective.authors_text().replace(soft_start=0)
            return LabelEmbeddingHead(6, 9, embedding="compressed", rank=3, objective=objective, impl=impl)  # type: ignore[arg-type]
        objective = Objective.rising_floor()
        options: Any = {"embedding": "running", "rows_per_epoch": 50, "impl": impl}
        return LabelEmbeddingHead(6, 9, objective=objective, **options)

    source, lengths, shifted, targets = batch()
    longer = torch.cat([source, torch.full((3, 2), 10)], dim=1)
    padded = torch.cat([shifted, torch.full((3, 3), 8)], dim=1)
    ignored = torch.cat([targets, torch.full((3, 3), IGNORED)], dim=1)
    one = loss_and_gradients(make_body(), make_head(), (source, lengths, shifted), targets)
    other = loss_and_gradients(make_body(), make_head(), (longer, lengths, padded), ignored)
    assert len(one) == len(other)
    for before, after in zip(one, other, strict=True):
        assert torch.allclose(before, after, atol=1e-6)


def test_shared_vectors_are_one_table() -> None:
    body = Seq2Seq(9, 9, embedding_size=5, hidden_size=6, share_vectors=True)
    assert body.source_vectors is body.target_vectors
