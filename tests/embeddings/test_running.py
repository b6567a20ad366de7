"""RunningEmbedding: a decayed mean of what the observer sees, whole or as the largest entries of each label."""

from __future__ import annotations

import copy
import math

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from torch import Tensor

from labelemb import LabelEmbeddingHead, Objective, RunningEmbedding
from labelemb.embeddings.running import largest
from tests.helpers.oracle import running_update

RISING_FLOOR = Objective.rising_floor()


def distributions(rows: int, labels: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (3 * torch.randn(rows, labels, generator=generator)).softmax(-1)


def observe_rows(embedding: RunningEmbedding, labels: Tensor, seen: Tensor) -> None:
    """One batch: what the implementations do with the softened rows of the observer."""
    distinct, place = labels.unique(return_inverse=True)
    sums = torch.zeros(len(distinct), embedding.num_labels).index_add(0, place, seen)
    embedding.begin(torch.tensor(len(labels)))
    embedding.learn_from(distinct, sums, torch.bincount(place).float())
    embedding.finish()


def rising_floor_head(
    labels: int, impl: str = "auto", rows_per_epoch: int = 40, **options: object
) -> LabelEmbeddingHead:
    embedding = RunningEmbedding(labels, rows_per_epoch, **options)  # type: ignore[arg-type]
    return LabelEmbeddingHead(4, labels, objective=RISING_FLOOR, embedding=embedding, impl=impl)  # type: ignore[arg-type]


def test_the_table_starts_as_the_identity_that_weighs_one_epoch_of_an_average_label() -> None:
    embedding = RunningEmbedding(5, rows_per_epoch=1000)
    assert torch.equal(embedding.table, torch.eye(5))
    assert embedding.mass.tolist() == [0.0] * 5


def test_without_rows_per_epoch_an_epoch_is_a_hundred_rows_per_label() -> None:
    assert RunningEmbedding(7).rows_per_epoch == 700


def test_one_update_is_the_decayed_mean_worked_out_by_hand() -> None:
    embedding = RunningEmbedding(2, rows_per_epoch=4)
    observe_rows(embedding, torch.tensor([0, 0]), torch.tensor([[0.6, 0.4], [0.2, 0.8]]))
    assert embedding.table[0].tolist() == pytest.approx([0.4, 0.6])  # the first rows are all there is to average
    observe_rows(embedding, torch.tensor([0]), torch.tensor([[1.0, 0.0]]))
    before = 2 * math.exp(-1 / 4)
    assert embedding.mass.tolist() == pytest.approx([before + 1, 0])
    assert embedding.table[0].tolist() == pytest.approx(
        [(0.4 * before + 1) / (before + 1), 0.6 * before / (before + 1)]
    )
    assert embedding.table[1].tolist() == [0.0, 1.0]


def test_what_was_seen_an_epoch_ago_weighs_a_factor_e_less() -> None:
    embedding = RunningEmbedding(3, rows_per_epoch=10)
    embedding.mass.fill_(6.0)
    for _ in range(10):
        embedding.begin(torch.tensor(1))
    assert embedding.mass.tolist() == pytest.approx([6 / math.e] * 3)


@given(rows=st.integers(1, 12), labels=st.integers(2, 6), gated=st.booleans(), seed=st.integers(0, 99))
@pytest.mark.parametrize("impl", ["autograd", "chunked"])
def test_a_training_call_updates_the_table_as_the_equations_say(
    impl: str, rows: int, labels: int, gated: bool, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    objective = RISING_FLOOR.replace(correct_only=gated)
    torch.manual_seed(seed)
    embedding = RunningEmbedding(labels, rows_per_epoch=20)
    head = LabelEmbeddingHead(4, labels, objective=objective, embedding=embedding, impl=impl)  # type: ignore[arg-type]
    assert head.observer is not None
    for call in range(3):
        hidden = torch.randn(rows, 4, generator=generator)
        targets = torch.randint(labels, (rows,), generator=generator)
        targets[0] = -100 if call == 1 else targets[0]
        weights = torch.rand(rows, generator=generator)
        expected, mass = running_update(
            embedding.table,
            embedding.mass,
            head.observer(hidden),
            targets,
            objective,
            rows_per_epoch=20,
            sample_weight=weights,
        )
        head(hidden, targets, progress=0.5, sample_weight=weights)
        torch.testing.assert_close(embedding.table.double(), expected, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(embedding.mass.double(), mass, rtol=1e-5, atol=1e-6)


def test_a_calls_loss_uses_the_table_from_before_the_call() -> None:
    torch.manual_seed(0)
    head = rising_floor_head(3)
    hidden, targets = torch.randn(6, 4), torch.tensor([0, 1, 2, 0, 1, 2])
    first = head(hidden, targets, progress=0.0)
    torch.testing.assert_close(first.terms.soft, first.terms.hard)  # the identity as a soft target is the true label
    second = head(hidden, targets, progress=0.0)
    assert abs((second.terms.soft - second.terms.hard).item()) > 1e-4


@pytest.mark.parametrize("impl", ["autograd", "chunked"])
@pytest.mark.parametrize("top_k", [None, 2])
def test_eval_mode_learns_nothing(impl: str, top_k: int | None) -> None:
    torch.manual_seed(0)
    head = rising_floor_head(5, impl, top_k=top_k).eval()
    before = copy.deepcopy(head.state_dict())
    head(torch.randn(8, 4), torch.randint(5, (8,)), progress=0.5)
    for name, value in head.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_the_table_has_no_parameters_and_receives_no_gradient() -> None:
    head = rising_floor_head(4)
    assert list(head.embedding.parameters()) == []
    out = head(torch.randn(3, 4), torch.tensor([0, 1, 2]), progress=0.5)
    out.loss.backward()
    assert float(out.terms.embedding) == 0.0
    assert all(not buffer.requires_grad for buffer in head.embedding.buffers())


@pytest.mark.parametrize("top_k", [None, 3])
def test_a_saved_state_continues_exactly(top_k: int | None) -> None:
    torch.manual_seed(0)
    batches = [(torch.randn(7, 4), torch.randint(6, (7,))) for _ in range(4)]
    head = rising_floor_head(6, top_k=top_k)
    for hidden, targets in batches[:2]:
        head(hidden, targets, progress=0.5)
    resumed = rising_floor_head(6, top_k=top_k)
    resumed.load_state_dict(head.state_dict())
    for hidden, targets in batches[2:]:
        loss, again = (h(hidden, targets, progress=0.5).loss for h in (head, resumed))
        assert torch.equal(loss, again)
    for name, value in resumed.state_dict().items():
        assert torch.equal(value, head.state_dict()[name]), name


@given(seed=st.integers(0, 99), k=st.integers(3, 7))
def test_top_k_equals_the_dense_table_when_no_more_labels_were_ever_seen(seed: int, k: int) -> None:
    """Each label's distributions live on itself and two others, so that three entries hold everything."""
    generator = torch.Generator().manual_seed(seed)
    dense, sparse = RunningEmbedding(8, 30), RunningEmbedding(8, 30, top_k=k)
    for _ in range(4):
        labels = torch.randint(8, (6,), generator=generator)
        places = torch.stack([labels, (labels + 1) % 8, (labels + 3) % 8], 1)
        seen = torch.zeros(6, 8).scatter(1, places, torch.rand(6, 3, generator=generator) + 0.1)
        seen = seen / seen.sum(1, keepdim=True)
        observe_rows(dense, labels, seen)
        observe_rows(sparse, labels, seen)
    torch.testing.assert_close(sparse.probabilities(torch.arange(8)), dense.table)
    torch.testing.assert_close(sparse.mass, dense.mass)


def test_top_k_keeps_the_largest_entries_and_spreads_what_is_left_evenly() -> None:
    embedding = RunningEmbedding(5, rows_per_epoch=5, top_k=2)
    seen = torch.tensor([[0.5, 0.04, 0.3, 0.1, 0.06]])
    embedding.mass.zero_()  # the identity weighs nothing: the row becomes what was seen
    observe_rows(embedding, torch.tensor([0]), seen)
    assert embedding.top_labels[0].tolist() == [0, 2]
    share = (1 - 0.8) / 3
    expected = torch.tensor([[0.5, share, 0.3, share, share]])
    torch.testing.assert_close(embedding.probabilities(torch.tensor([0])), expected)


def test_top_k_rows_stay_distributions_near_the_dense_ones_over_many_updates() -> None:
    dense, sparse = RunningEmbedding(40, 200), RunningEmbedding(40, 200, top_k=10)
    generator = torch.Generator().manual_seed(0)
    for step in range(20):
        labels = torch.randint(40, (16,), generator=generator)
        logits = torch.eye(40)[labels] * 4 + 2 * torch.eye(40)[(labels + 1) % 40]
        seen = (logits + 0.3 * torch.randn(16, 40, generator=torch.Generator().manual_seed(step))).softmax(1)
        observe_rows(dense, labels, seen)
        observe_rows(sparse, labels, seen)
    rows = sparse.probabilities(torch.arange(40))
    torch.testing.assert_close(rows.sum(1), torch.ones(40))
    distance = (rows - dense.table).abs().sum(1) / 2
    assert float(distance.max()) < 0.1
    own = torch.arange(40)
    torch.testing.assert_close(rows[own, own], dense.table[own, own], rtol=1e-3, atol=1e-3)


def test_the_state_of_top_k_is_labels_times_top_k() -> None:
    embedding = RunningEmbedding(1000, top_k=16)
    assert {tuple(buffer.shape) for buffer in embedding.buffers()} == {(1000,), (1000, 16)}


def test_a_table_that_would_not_fit_keeps_64_entries_per_label_by_default() -> None:
    embedding = RunningEmbedding(20_000)
    assert embedding.top_k == 64
    assert sum(buffer.numel() for buffer in embedding.buffers()) == 20_000 * (2 * 64 + 1)
    assert RunningEmbedding(1000).top_k is None


@pytest.mark.parametrize("top_k", [0, 5, 9])
def test_a_top_k_that_keeps_nothing_or_everything_is_refused(top_k: int) -> None:
    with pytest.raises(ValueError, match=rf"top_k is {top_k}, but must be in \[1, 5\)"):
        RunningEmbedding(5, top_k=top_k)


def test_rows_per_epoch_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="rows_per_epoch is 0"):
        RunningEmbedding(5, rows_per_epoch=0)


@pytest.mark.parametrize("top_k", [None, 3])
def test_the_space_holds_the_table_and_the_counts(top_k: int | None) -> None:
    torch.manual_seed(1)
    head = rising_floor_head(6, top_k=top_k)
    for _ in range(3):
        head(torch.randn(12, 4), torch.randint(6, (12,)), progress=0.5)
    space = head.label_space(list("abcdef"))
    torch.testing.assert_close(space.matrix(), head.embedding.probabilities(torch.arange(6)))
    assert space.form.storage == ("dense" if top_k is None else "top_k")
    assert space.counts is not None
    assert space.counts.tolist() == head.counts.tolist()


def test_a_row_that_is_not_finite_teaches_nothing() -> None:
    head = rising_floor_head(3)
    hidden = torch.randn(2, 4)
    hidden[0] = float("nan")
    head(hidden, torch.tensor([0, 1]), progress=0.5)
    assert head.embedding.probabilities(torch.tensor([0])).tolist() == [[1.0, 0.0, 0.0]]
    assert bool(head.embedding.probabilities(torch.arange(3)).isfinite().all())


@given(rows=st.integers(1, 4), length=st.integers(2, 400), k=st.integers(1, 12), seed=st.integers(0, 99))
def test_largest_finds_what_topk_finds(rows: int, length: int, k: int, seed: int) -> None:
    k = min(k, length)
    values = torch.rand(rows, length, generator=torch.Generator().manual_seed(seed))
    found, places = largest(values, k)
    expected = values.topk(k, dim=1).values
    assert torch.equal(found, expected)
    assert torch.equal(values.gather(1, places), expected)
    assert all(len(set(row)) == k for row in places.tolist())


@pytest.mark.parametrize("top_k", [None, 3])
def test_the_prior_is_applied_on_reading_and_never_stored(top_k: int | None) -> None:
    plain = RunningEmbedding(6, rows_per_epoch=20, top_k=top_k)
    prior = RunningEmbedding(6, rows_per_epoch=20, top_k=top_k, prior_rows=4)
    for seed in range(5):
        labels, seen = torch.tensor([0, 1, 1, 4]), distributions(4, 6, seed)
        observe_rows(plain, labels, seen)
        observe_rows(prior, labels, seen)
        prior.probabilities(labels)
    for name, value in plain.state_dict().items():
        assert torch.equal(prior.state_dict()[name], value), name
    everything = torch.arange(6)
    known = (plain.mass / (plain.mass + 4)).unsqueeze(1)
    expected = known * plain.probabilities(everything) + (1 - known) / 6
    torch.testing.assert_close(prior.probabilities(everything), expected)
    torch.testing.assert_close(prior.probabilities(torch.tensor([5])), torch.full((1, 6), 1 / 6))  # never seen
    counts = torch.zeros(6, dtype=torch.long)
    torch.testing.assert_close(prior.to_space(None, counts, {}).matrix(), plain.to_space(None, counts, {}).matrix())


@pytest.mark.parametrize("top_k", [None, 3])
def test_slots_of_no_mass_change_nothing_whatever_label_they_name(top_k: int | None) -> None:
    """Where nobody may look, unused slots name a label that another slot has."""
    distinct, padded = (RunningEmbedding(6, rows_per_epoch=20, top_k=top_k) for _ in range(2))
    sums, masses = distributions(2, 6, 0), torch.ones(2)
    padded.learn_from(torch.tensor([3, 1, 3, 0]), torch.cat([sums, torch.zeros(2, 6)]), torch.tensor([1.0, 1, 0, 0]))
    distinct.learn_from(torch.tensor([3, 1]), sums, masses)
    everything = torch.arange(6)
    torch.testing.assert_close(padded.probabilities(everything), distinct.probabilities(everything))
    torch.testing.assert_close(padded.mass, distinct.mass)
