"""Observing some rows: which are drawn, and that the terms stay unbiased."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from labelemb import LabelEmbeddingHead, Objective, PlainHead, RunningEmbedding
from labelemb.losses.sampling import first_by_hash

DRAWS = 4000


def inclusions(rows: int, count: int, valid: torch.Tensor | None = None) -> torch.Tensor:
    """(draws, rows): 1 where a row was drawn."""
    found = torch.zeros(DRAWS, rows)
    valid = torch.ones(rows, dtype=torch.bool) if valid is None else valid
    for draw in range(DRAWS):
        found[draw, first_by_hash(valid, count, torch.tensor(draw))] = 1
    return found


def test_every_row_and_every_pair_of_rows_is_drawn_equally_often() -> None:
    rows, count = 40, 10
    drawn = inclusions(rows, count)
    assert (drawn.sum(1) == count).all()
    share = count / rows
    assert (drawn.mean(0) - share).abs().max() < 5 * (share * (1 - share) / DRAWS) ** 0.5
    together = (drawn.T @ drawn / DRAWS)[~torch.eye(rows, dtype=torch.bool)]
    expected = count * (count - 1) / (rows * (rows - 1))
    assert (together - expected).abs().max() < 5.5 * (expected / DRAWS) ** 0.5


def test_one_draw_says_nothing_about_the_next() -> None:
    drawn = inclusions(40, 10)
    again = (drawn[1:] * drawn[:-1]).mean(0)
    assert (again - 1 / 16).abs().max() < 5 * (1 / 16 / DRAWS) ** 0.5


def test_rows_that_are_not_valid_come_last() -> None:
    valid = torch.arange(12) % 3 == 0
    assert set(first_by_hash(valid, 4, torch.tensor(5)).tolist()) == {0, 3, 6, 9}
    assert {0, 3, 6, 9} < set(first_by_hash(valid, 6, torch.tensor(5)).tolist())


def some_head(observe_rows: int | None, embedding: str = "dense") -> LabelEmbeddingHead:
    torch.manual_seed(0)
    objective = Objective(correct_only=False)
    return LabelEmbeddingHead(3, 5, embedding=embedding, observe_rows=observe_rows, objective=objective).double()


def test_terms_and_gradients_over_some_rows_are_those_of_all_rows_in_expectation() -> None:
    head, whole = some_head(observe_rows=4), some_head(observe_rows=None)
    hidden, targets = torch.randn(12, 3).double(), torch.randint(5, (12,))
    targets[3] = -100
    weights = torch.rand(12).double() + 0.5
    expected = whole(hidden, targets, sample_weight=weights)
    expected.loss.backward()
    sums = torch.zeros(3, dtype=torch.float64)
    head.zero_grad()
    draws = 3000
    for _ in range(draws):
        out = head(hidden, targets, sample_weight=weights)
        assert int(out.observer_rows) == 4
        torch.testing.assert_close(out.terms[:2], expected.terms[:2])  # the predictor sees every row
        sums += torch.stack(out.terms[2:]).detach()
        out.loss.backward()
    torch.testing.assert_close(sums / draws, torch.stack(expected.terms[2:]).detach(), rtol=0.03, atol=1e-3)
    for (name, parameter), reference in zip(head.named_parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(
            parameter.grad / draws, reference.grad, rtol=0.1, atol=3e-3, msg=lambda m, n=name: f"{n}: {m}"
        )


@pytest.mark.parametrize("rows", [1, 7, 8])
def test_a_batch_of_at_most_observe_rows_loses_nothing(rows: int) -> None:
    hidden, targets = torch.randn(rows, 3).double(), torch.randint(5, (rows,))
    some, whole = some_head(8)(hidden, targets), some_head(None)(hidden, targets)
    assert torch.equal(some.loss, whole.loss)
    assert int(some.observer_rows) == rows


def test_soft_targets_and_losses_per_row_observe_all_rows() -> None:
    head = some_head(2)
    hidden, targets = torch.randn(6, 3).double(), torch.randint(5, (6,))
    assert int(head(hidden, targets, reduction="none").observer_rows) == 6
    assert int(head(hidden, torch.eye(5)[targets]).observer_rows) == 6


def test_each_training_call_draws_other_rows_and_evaluation_draws_the_same_again() -> None:
    head = some_head(2)
    hidden, targets = torch.randn(30, 3).double(), torch.randint(5, (30,))
    losses = [float(head(hidden, targets).terms.observer.detach()) for _ in range(6)]
    assert all(a != b for a, b in pairwise(losses))
    head.eval()
    assert torch.equal(head(hidden, targets).loss, head(hidden, targets).loss)


def test_a_saved_head_goes_on_with_the_same_draws() -> None:
    head = some_head(2, "running")
    hidden, targets = torch.randn(30, 3).double(), torch.randint(5, (30,))
    for _ in range(3):
        head(hidden, targets)
    other = some_head(2, "running")
    other.load_state_dict(head.state_dict())
    assert torch.equal(head(hidden, targets).loss, other(hidden, targets).loss)
    assert torch.equal(head.embedding.table, other.embedding.table)


@pytest.mark.parametrize(("before", "after"), [(None, 4), (4, None)])
def test_weights_load_into_a_head_that_observes_other_rows(before: int | None, after: int | None) -> None:
    trained, head = some_head(before), some_head(after)
    trained(torch.randn(9, 3).double(), torch.randint(5, (9,)))
    head.load_state_dict(trained.state_dict())
    assert torch.equal(head.counts, trained.counts)
    assert head.draws is None or int(head.draws) == 0


def test_counts_are_the_plain_number_of_right_observations() -> None:
    head = some_head(4, "running")
    hidden, targets = torch.randn(12, 3).double(), torch.randint(5, (12,))
    right = sum(int(head(hidden, targets).observer_correct) for _ in range(5))
    assert int(head.counts.sum()) == right


def test_the_default_observes_all_rows_of_few_labels_and_some_of_many() -> None:
    assert LabelEmbeddingHead(2, 4095).observe_rows is None
    assert LabelEmbeddingHead(2, 4096).observe_rows == 256
    assert LabelEmbeddingHead(2, 4096, observe_rows=None).draws is None


@pytest.mark.parametrize(("options", "words"), [({"observe_rows": 0}, "1 or more"), ({"observe_rows": -3}, "is -3")])
def test_a_number_of_rows_that_cannot_be_is_refused(options: dict[str, int], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        LabelEmbeddingHead(2, 5, **options)


def test_a_fixed_embedding_refuses_a_number_that_it_would_ignore() -> None:
    space = some_head(None).label_space()
    with pytest.raises(ValueError, match="would be ignored"):
        LabelEmbeddingHead(3, 5, embedding=space, observe_rows=3)


@pytest.mark.parametrize("top_k", [None, 3])
def test_a_running_table_gains_the_mass_of_the_rows_that_were_not_observed(top_k: int | None) -> None:
    embedding = RunningEmbedding(5, rows_per_epoch=10**9, top_k=top_k)
    head = LabelEmbeddingHead(
        3, 5, embedding=embedding, objective=Objective(correct_only=False), observe_rows=4, impl="chunked"
    )
    head(torch.randn(12, 3), torch.arange(12) % 5)
    assert float(head.embedding.mass.sum()) == pytest.approx(12, rel=1e-5)


@pytest.mark.parametrize(("smoothing", "floor"), [(0.0, 0.0), (0.2, 0.0), (0.9, 0.6)])
@pytest.mark.parametrize("chunk_rows", [None, 3])
def test_the_plain_head_in_chunks_is_the_plain_head(smoothing: float, floor: float, chunk_rows: int | None) -> None:
    torch.manual_seed(0)
    hidden, targets = torch.randn(2, 5, 3).double(), torch.randint(6, (2, 5))
    targets[0, 1] = -100
    weight = None if smoothing else torch.rand(6) + 0.5
    found = {}
    for impl in ("autograd", "chunked"):
        torch.manual_seed(1)
        head = PlainHead(
            3,
            6,
            label_smoothing=smoothing,
            mass_floor=floor,
            weight=weight,
            impl=impl,
            chunk_rows=chunk_rows if impl == "chunked" else None,
        ).double()
        inputs = hidden.clone().requires_grad_()
        out = head(inputs, targets, sample_weight=torch.rand(2, 5).double(), progress=0.4 if floor else None)
        out.loss.backward()
        found[impl] = [out.loss, *out.terms, out.correct, inputs.grad, *(p.grad for p in head.parameters())]
        assert (out.logits is None) == (impl == "chunked")
    torch.testing.assert_close(found["chunked"], found["autograd"])


def test_the_plain_head_takes_chunks_for_many_logits_alone() -> None:
    hidden = torch.randn(600, 2)
    assert PlainHead(2, 2000)(hidden, torch.zeros(600).long()).logits is None
    assert PlainHead(2, 1500)(hidden, torch.zeros(600).long()).logits is not None
    smoothed = PlainHead(2, 2000, label_smoothing=0.1, weight=torch.ones(2000))
    assert smoothed(hidden, torch.zeros(600).long()).logits is not None
    with pytest.raises(ValueError, match="label weights with label smoothing"):
        PlainHead(2, 5, label_smoothing=0.1, weight=torch.ones(5), impl="chunked")
