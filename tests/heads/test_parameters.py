"""Parameters of a model in groups: each once, a learned embedding at its own rate and without decay."""

import torch
from torch import nn

from labelemb import LabelEmbeddingHead, PlainHead, parameter_groups
from labelemb.heads.defaults import DEFAULT


def model_with(head: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), head)


def test_every_parameter_is_in_one_group_and_the_embedding_has_its_own_rate_and_no_decay() -> None:
    model = model_with(LabelEmbeddingHead(4, 5))
    groups = parameter_groups(model, lr=0.1, weight_decay=0.2)
    found = [id(parameter) for group in groups for parameter in group["params"]]
    assert sorted(found) == sorted(map(id, model.parameters()))
    rates = {id(parameter): (group["lr"], group["weight_decay"]) for group in groups for parameter in group["params"]}
    embedding = {id(parameter) for parameter in model[1].embedding.parameters()}
    assert embedding
    for parameter, rate in rates.items():
        assert rate == ((DEFAULT.embedding_lr, 0.0) if parameter in embedding else (0.1, 0.2))
    torch.optim.AdamW(groups)


def test_an_embedding_can_have_the_rate_of_the_others_or_any_other() -> None:
    model = model_with(LabelEmbeddingHead(4, 5))
    assert {group["lr"] for group in parameter_groups(model, lr=0.1, embedding_lr=None)} == {0.1}
    assert {group["lr"] for group in parameter_groups(model, lr=0.1, embedding_lr=0.3)} == {0.1, 0.3}


def test_heads_without_a_learned_embedding_and_models_without_a_head_have_one_rate() -> None:
    for model in (
        model_with(PlainHead(4, 5)),
        model_with(LabelEmbeddingHead(4, 5, embedding="running")),
        nn.Linear(2, 2),
    ):
        groups = parameter_groups(model, lr=0.1)
        assert {group["lr"] for group in groups} == {0.1}
        assert sum(len(group["params"]) for group in groups) == len(list(model.parameters()))


def test_a_layer_that_body_and_head_share_is_trained_once() -> None:
    head = LabelEmbeddingHead(4, 5)
    words = nn.Embedding(5, 4)
    words.weight = head.predictor.weight
    model = nn.ModuleList([words, head])
    found = [id(parameter) for group in parameter_groups(model, lr=0.1) for parameter in group["params"]]
    assert len(found) == len(set(found)) == len(list(model.parameters()))


def test_what_two_heads_share_is_trained_once() -> None:
    first = LabelEmbeddingHead(4, 5)
    second = LabelEmbeddingHead(4, 5, embedding=first.embedding)
    third = PlainHead.from_linear(first.predictor)
    model = nn.ModuleList([first, second, third])
    groups = parameter_groups(model, lr=0.1)
    torch.optim.SGD(groups)
    found = [id(parameter) for group in groups for parameter in group["params"]]
    assert sorted(found) == sorted(map(id, model.parameters()))
