"""Every implementation computes the objective: loss, terms and gradients equal the oracle's in float64."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from labelemb import HeadOutput, LabelEmbeddingHead, Objective, RunningEmbedding, label_embedding_loss
from tests.helpers.cases import EMBEDDINGS, Case, cases, objectives
from tests.helpers.comparison import assert_same_terms, check, leaves_of, oracle_call
from tests.helpers.oracle import TERMS, objective_value

IMPLEMENTATIONS = [("autograd", None), ("chunked", None), ("chunked", 1), ("chunked", 2), ("chunked", 50)]


@settings(max_examples=250)
@given(case=cases(impl="autograd", some_observed=True))
def test_autograd_equals_the_oracle_in_every_combination(case: Case) -> None:
    check(case)


@settings(max_examples=300)
@given(case=cases(impl="chunked", soft_targets=False, some_observed=True))
def test_the_chunked_implementation_equals_the_oracle_in_every_combination(case: Case) -> None:
    check(case)


@settings(max_examples=30)
@given(case=cases(impl="auto", some_observed=True))
def test_auto_equals_the_oracle(case: Case) -> None:
    check(case)


@settings(max_examples=40)
@given(case=cases(impl="chunked", soft_targets=True))
def test_the_chunked_implementation_takes_soft_targets(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("preset", ["paper", "authors_vision", "authors_text", "rising_floor", "fading"])
@pytest.mark.parametrize("embedding", EMBEDDINGS)
@pytest.mark.parametrize(("impl", "chunk_rows"), IMPLEMENTATIONS)
def test_every_preset_serves_every_embedding(preset: str, embedding: str, impl: str, chunk_rows: int | None) -> None:
    objective = getattr(Objective, preset)()
    check(
        Case(objective, embedding, impl, chunk_rows, rows=9, num_labels=5, updates=30_000, progress=0.7, ignored=True)
    )


@pytest.mark.parametrize(("impl", "chunk_rows"), IMPLEMENTATIONS)
@pytest.mark.parametrize("zero", [0, 0.0])
def test_weights_of_zero_leave_only_observer_and_embedding_to_train(
    impl: str, chunk_rows: int | None, zero: float
) -> None:
    check(Case(Objective(hard_weight=zero, soft_weight=zero), impl=impl, chunk_rows=chunk_rows))


@pytest.mark.parametrize("impl", ["autograd", "chunked"])
def test_before_the_soft_term_starts_a_head_may_train_nothing_but_its_observer(impl: str) -> None:
    check(Case(Objective(hard_weight=0.0, soft_weight=1.0, soft_start=3), impl=impl, updates=2))


@pytest.mark.parametrize("embedding", ["compressed", "running-top"])
def test_many_labels_give_what_autograd_gives(embedding: str) -> None:
    """Enough labels for every shortcut of the chunked head, in float32 and with labels as uneven as words."""
    found = {}
    for impl in ("autograd", "chunked"):
        case = Case(Objective.paper(correct_only=False), embedding, impl, rows=200, in_features=8, num_labels=5000)
        head = replace(case, chunk_rows=None if impl == "autograd" else 64).head().float()
        hidden = case.inputs()[0].float().requires_grad_()
        targets = (5000 ** torch.rand(200, generator=torch.Generator().manual_seed(2))).long() - 1
        output = head(hidden, targets)
        output.loss.backward()
        found[impl] = {name: parameter.grad for name, parameter in head.named_parameters()}
        found[impl] |= {"hidden": hidden.grad, "loss": output.loss.detach()}
        if isinstance(head.embedding, RunningEmbedding):
            found[impl]["table"] = head.embedding.probabilities(targets.unique())
    for name, value in found["autograd"].items():
        scale = value.abs().max().item()
        torch.testing.assert_close(
            found["chunked"][name], value, rtol=1e-4, atol=1e-5 * scale, msg=lambda m, n=name: f"{n}: {m}"
        )


@pytest.mark.parametrize("embedding", EMBEDDINGS)
@pytest.mark.parametrize(("impl", "chunk_rows"), IMPLEMENTATIONS)
def test_more_labels_than_rows(embedding: str, impl: str, chunk_rows: int | None) -> None:
    """Where a batch shows few of the labels, only those are looked up."""
    check(Case(Objective(correct_only=False), embedding, impl, chunk_rows, rows=5, num_labels=70, ignored=True))


@settings(max_examples=60)
@given(objective=objectives(), seed=st.integers(0, 1000), progress=st.sampled_from([0.0, 0.5, 1.0]))
def test_the_functional_form_equals_the_oracle(objective: Objective, seed: int, progress: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    leaves = [torch.randn(n, 4, generator=generator, dtype=torch.float64).requires_grad_() for n in (6, 6, 4)]
    copies = [leaf.detach().clone().requires_grad_() for leaf in leaves]
    targets = torch.randint(4, (6,), generator=generator)
    z1, z2, table = leaves
    loss, terms = label_embedding_loss(z1, z2, table[targets], targets, objective=objective, progress=progress)
    expected = objective_value(*copies, targets, objective, progress=progress)
    for name in TERMS:
        torch.testing.assert_close(getattr(terms, name), getattr(expected, name), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(loss, expected.loss, rtol=1e-10, atol=1e-12)
    loss.backward()
    expected.loss.backward()
    for leaf, copy in zip(leaves, copies, strict=True):
        wanted = torch.zeros_like(copy) if copy.grad is None else copy.grad
        torch.testing.assert_close(leaf.grad, wanted, rtol=1e-9, atol=1e-12)


@settings(max_examples=40)
@given(case=cases(impl="autograd", num_items=None))
def test_reduction_none_gives_each_rows_weighted_loss_and_terms(case: Case) -> None:
    head = case.head()
    hidden, targets, keywords = case.inputs()
    expected = oracle_call(head, leaves_of(head), hidden, targets, reduction="none", **keywords)
    output = head(hidden, targets, reduction="none", **keywords)
    assert output.loss.shape == (case.rows,)
    assert_same_terms(output, expected)


def training_call(head: LabelEmbeddingHead, case: Case) -> HeadOutput:
    hidden, targets, keywords = case.inputs()
    return head(hidden, targets, **keywords)


def test_a_call_uses_the_running_table_as_it_was_before_the_call() -> None:
    case = Case(Objective.rising_floor(), "running", progress=0.5)
    head = case.head()
    first = training_call(head, case)
    second = training_call(head, case)
    assert first.terms.soft.item() != second.terms.soft.item()
    assert isinstance(head.embedding, RunningEmbedding)


@pytest.mark.parametrize("impl", ["autograd", "chunked"])
def test_predicting_is_the_predictor_alone(impl: str) -> None:
    head = Case(impl=impl).head()
    hidden = torch.randn(2, 5, 3, dtype=torch.float64)
    assert torch.equal(head(hidden), head.predictor(hidden))


def test_a_fixed_embedding_has_no_observer() -> None:
    head = Case(embedding="fixed").head()
    assert head.observer is None
    assert [name for name, _ in head.named_parameters()] == ["predictor.weight", "predictor.bias"]


def test_small_batches_have_terms_with_gradients_and_can_be_differentiated_twice() -> None:
    head = Case(impl="auto").head()
    hidden, targets, _ = Case().inputs()
    hidden.requires_grad_()
    terms = head(hidden, targets).terms
    (gradient,) = torch.autograd.grad(terms.soft, hidden, create_graph=True)
    assert gradient.abs().sum() > 0
    (again,) = torch.autograd.grad(gradient.square().sum(), hidden)
    assert again.abs().sum() > 0


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_smoothed_targets_count_as_right_what_their_top_label_says(reduction: str) -> None:
    torch.manual_seed(0)
    hard, smoothed = (LabelEmbeddingHead(3, 5, impl="autograd") for _ in range(2))
    smoothed.load_state_dict(hard.state_dict())
    hidden, labels = torch.randn(40, 3), torch.randint(5, (40,))
    expected = hard(hidden, labels)
    output = smoothed(hidden, 0.9 * F.one_hot(labels, 5) + 0.02, reduction=reduction)
    assert 0 < int(expected.observer_correct) < 40
    assert int(output.observer_correct) == int(expected.observer_correct)
    assert torch.equal(smoothed.counts, hard.counts)
    assert int(output.observer_rows) == 40


@pytest.mark.parametrize("objective", [Objective(), Objective.authors_vision(), Objective.fading()])
def test_the_functional_form_averages_over_all_leading_dimensions(objective: Objective) -> None:
    torch.manual_seed(0)
    z1, z2, e = (2 * torch.randn(3, 4, 5) for _ in range(3))
    targets = torch.randint(5, (3, 4))
    found = label_embedding_loss(z1, z2, e, targets, objective)
    flat = label_embedding_loss(*(x.reshape(12, 5) for x in (z1, z2, e)), targets.reshape(12), objective)
    torch.testing.assert_close(found, flat)
