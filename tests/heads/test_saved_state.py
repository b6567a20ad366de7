"""Copies and the saved state of heads: everything that training changes."""

from __future__ import annotations

import copy

import pytest
import torch

from labelemb import (
    LabelEmbeddingHead,
    Objective,
)
from tests.helpers.all_heads import PEERS
from tests.helpers.cases import Case

EMBEDDINGS = ["dense", "compressed", "compressed-bias", "running", "fixed"]


def trained(case: Case) -> LabelEmbeddingHead:
    """A head whose counters and running table have moved."""
    head = case.head()
    hidden, targets, keywords = case.inputs()
    for _ in range(2):
        head(hidden, targets, **keywords)
    return head


def state_case(embedding: str) -> Case:
    objective = Objective(soft_start=2, mass_floor=0.5)
    return Case(objective, embedding, weight=True, progress=0.5)


@pytest.mark.parametrize("embedding", EMBEDDINGS)
def test_a_deep_copy_gives_the_same_numbers_and_lives_its_own_life(embedding: str) -> None:
    case = state_case(embedding)
    head = trained(case)
    hidden, targets, keywords = case.inputs()
    other = copy.deepcopy(head)
    before = {name: value.clone() for name, value in head.state_dict().items()}
    assert torch.equal(other.eval()(hidden, targets, **keywords).loss, head.eval()(hidden, targets, **keywords).loss)
    other.train()(hidden, targets, **keywords).loss.backward()
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(1.0)
    for name, value in head.state_dict().items():
        assert torch.equal(value, before[name]), name


@pytest.mark.parametrize("embedding", EMBEDDINGS)
def test_the_state_dict_carries_everything_that_training_changes(embedding: str) -> None:
    case = state_case(embedding)
    head = trained(case)
    hidden, targets, keywords = case.inputs()
    fresh = case.head()
    with torch.no_grad():
        for parameter in fresh.parameters():
            parameter.zero_()
    fresh.load_state_dict(head.state_dict(), strict=True)
    for _ in range(2):
        first, second = head(hidden, targets, **keywords), fresh(hidden, targets, **keywords)
        assert torch.equal(first.loss, second.loss)


@pytest.mark.parametrize("make", PEERS)
def test_the_peers_state_dict_carries_everything_as_well(make: object) -> None:
    torch.manual_seed(0)
    head, fresh = make(), make()  # type: ignore[operator]
    hidden, targets = torch.randn(12, 3), torch.randint(4, (12,))
    head(hidden, targets)
    fresh.load_state_dict(head.state_dict(), strict=True)
    for _ in range(3):
        assert torch.equal(head(hidden, targets).loss, fresh(hidden, targets).loss)
    assert torch.equal(copy.deepcopy(head)(hidden, targets).loss, head(hidden, targets).loss)
