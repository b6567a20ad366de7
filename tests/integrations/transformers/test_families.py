"""Every causal and seq2seq family of the installed Transformers trains, or is refused in one line."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import nn

from labelemb import PlainHead
from labelemb.integrations.transformers import attach_to_pretrained
from tests.helpers.families import NoTinyModelError, families, tiny_model
from tests.helpers.pages import ROOT

CHANGED, STREAMS = "changes its logits behind layer", "there must be one label a row"
REFUSED = {
    "beam causal": CHANGED,
    "cohere causal": CHANGED,
    "cohere2 causal": CHANGED,
    "cohere2_moe causal": CHANGED,
    "fsmt seq2seq": "has no linear layer behind its body",
    "gemma2 causal": CHANGED,
    "nanochat causal": CHANGED,
    "prophetnet causal": STREAMS,
    "prophetnet seq2seq": STREAMS,
    "recurrent_gemma causal": CHANGED,
    "t5gemma seq2seq": CHANGED,
    "vaultgemma causal": CHANGED,
}
EVERY_RUN = [
    "blenderbot seq2seq",
    "m2m_100 seq2seq",
    "marian seq2seq",
    "mbart seq2seq",
    "pegasus seq2seq",
    "gpt_neox causal",
    "opt causal",
    "qwen3 causal",
]
HEADS: dict[str, dict[str, Any]] = {"default": {}, "compressed": {"embedding": "compressed", "rank": 3}}


def check_training(family: str) -> None:
    """Three calls with cross entropy as a head give the model's own loss; with either embedding they train."""
    model, batch, expected = tiny_model(family)
    layer = model.get_output_embeddings()
    assert isinstance(layer, nn.Linear)
    attach_to_pretrained(model, head=PlainHead(layer.in_features, layer.out_features))
    for _ in range(3):
        torch.testing.assert_close(model(**batch).loss, expected)
    for options in HEADS.values():
        model, batch, _ = tiny_model(family)
        attach_to_pretrained(model, **options)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(3):
            optimizer.zero_grad()
            loss = model(**batch).loss
            loss.backward()
            optimizer.step()
            assert torch.isfinite(loss)
        assert model.get_output_embeddings().weight.grad.abs().sum() > 0


@pytest.mark.parametrize("family", EVERY_RUN)
def test_a_family_trains(family: str) -> None:
    check_training(family)


@pytest.mark.parametrize("family", ["gemma2 causal", "prophetnet seq2seq", "fsmt seq2seq"])
def test_a_family_whose_logits_are_not_those_of_one_layer_is_refused(family: str) -> None:
    check_refusal(family)


def check_refusal(family: str) -> None:
    model, batch, _ = tiny_model(family)
    with pytest.raises(ValueError, match=REFUSED[family]):
        attach_to_pretrained(model)(**batch)


def listed(heading: str) -> set[str]:
    """The families in a row of the table in docs/transformers.md."""
    page = (ROOT / "docs" / "transformers.md").read_text(encoding="utf-8")
    row = re.search(rf"^\| {heading} \|(.*)\|$", page, re.MULTILINE)
    assert row is not None
    causal, _, seq2seq = row.group(1).partition("seq2seq:")
    return {f"{name} causal" for name in re.findall(r"`(\S+)`", causal)} | {
        f"{name} seq2seq" for name in re.findall(r"`(\S+)`", seq2seq)
    }


def test_the_page_lists_the_families_that_are_refused() -> None:
    assert listed("refused") == set(REFUSED)


@pytest.mark.slow
@pytest.mark.parametrize("family", sorted(families().keys() - set(EVERY_RUN)))
def test_every_other_family_trains_or_is_on_a_list(family: str) -> None:
    if family in REFUSED:
        check_refusal(family)
    elif family in listed("not tried"):
        with pytest.raises(NoTinyModelError):
            tiny_model(family)
    else:
        check_training(family)
