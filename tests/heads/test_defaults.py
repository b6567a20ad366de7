"""The library's default: one for each number of labels, however the head is made."""

import pytest
from torch import nn

from labelemb import DenseEmbedding, LabelEmbeddingHead, Objective, RunningEmbedding, attach
from labelemb.heads import registry
from labelemb.heads.defaults import MANY_LABELS, MOST_PRIOR_ROWS, prior_rows
from labelemb.lab.methods.method import parse_method
from labelemb.lab.recipes.recipe import load_recipe

WAYS = {
    "constructor": lambda labels: LabelEmbeddingHead(2, labels),
    "from_linear": lambda labels: LabelEmbeddingHead.from_linear(nn.Linear(2, labels)),
    "attach": lambda labels: attach(nn.Sequential(nn.Linear(2, labels)), "0")[0],
    "registry": lambda labels: registry.make("label-embedding", 2, labels, rows_per_epoch=9, total_steps=9),
    "lab": lambda labels: parse_method("label-embedding").make_head(load_recipe("digits"), 2, labels, 9),
}


@pytest.mark.parametrize("way", WAYS)
def test_few_labels_have_a_learned_matrix_and_many_a_running_mean_with_a_prior(way: str) -> None:
    few, many = WAYS[way](MANY_LABELS - 1), WAYS[way](MANY_LABELS)
    assert isinstance(few.embedding, DenseEmbedding)
    assert isinstance(many.embedding, RunningEmbedding)
    assert many.embedding.prior_rows == prior_rows(MANY_LABELS) == 100
    assert few.objective == many.objective == Objective()
    rates = {group["lr"] for group in few.parameter_groups(lr=1e-3)}
    assert rates == {1e-3, 0.05}


def test_a_running_embedding_that_is_asked_for_has_the_prior_that_is_asked_for() -> None:
    assert LabelEmbeddingHead(2, MANY_LABELS, embedding="running").embedding.prior_rows == 0
    assert LabelEmbeddingHead(2, MANY_LABELS, prior_rows=7).embedding.prior_rows == 7


def test_a_prior_has_a_row_for_each_label_where_these_are_not_too_many() -> None:
    assert [prior_rows(labels) for labels in (10, MOST_PRIOR_ROWS, MOST_PRIOR_ROWS + 1, 10**6)] == [10, 1000, 100, 100]
