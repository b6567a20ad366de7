"""attach_to_pretrained: models, layers, heads and labels that it refuses, and the model kept as it was."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers as hf
from torch import Tensor, nn

from labelemb import Head, PlainHead
from labelemb.integrations.transformers import attach_to_pretrained
from tests.helpers import tiny_models
from tests.helpers.tiny_models import BATCH, LENGTH, VOCABULARY, make


class Capped(hf.GPT2LMHeadModel):
    """Caps its logits, as some models do."""

    def forward(self, input_ids: Tensor, labels: Tensor | None = None, **kwargs: Any) -> Any:
        out = super().forward(input_ids, labels=labels, **kwargs)
        out.logits = 30 * torch.tanh(out.logits / 30)
        return out


def test_a_model_that_changes_its_logits_is_refused_at_the_first_call_and_kept() -> None:
    torch.manual_seed(0)
    model = attach_to_pretrained(Capped(tiny_models.gpt2_config()).train(), shift=True)
    batch = tiny_models.texts()
    for _ in range(2):
        with pytest.raises(ValueError, match="Capped changes its logits behind layer 'lm_head'"):
            model(**batch)
    assert model(input_ids=batch["input_ids"]).logits.shape == (BATCH, LENGTH, VOCABULARY)


@pytest.mark.filterwarnings("ignore:Use of index_put_ on expanded tensors")
def test_a_model_that_masks_a_logit_in_place_is_refused_at_every_call() -> None:
    class Masking(hf.BertForSequenceClassification):
        def forward(self, input_ids: Tensor, labels: Tensor | None = None) -> Any:
            output = super().forward(input_ids=input_ids)
            output.logits[:, torch.tensor([0])] = -9.0
            return output

    model = attach_to_pretrained(Masking(tiny_models.bert().config).train())
    _, batch = make("bert")
    for _ in range(2):
        with pytest.raises(ValueError, match=r"Masking changes its logits behind layer 'classifier'"):
            model(batch["input_ids"], labels=batch["labels"])


@pytest.mark.parametrize("first", [True, False])
def test_a_model_that_adds_a_bias_of_zeros_is_refused_at_every_call(first: bool) -> None:
    sizes = {"vocab_size": VOCABULARY, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = hf.EsmConfig(**sizes, intermediate_size=32, pad_token_id=1, mask_token_id=2)
    model = attach_to_pretrained(hf.EsmForMaskedLM(config).train())
    assert model.lm_head.bias.abs().sum() == 0  # the test would prove nothing without it
    batch = tiny_models.texts()
    if not first:
        with torch.no_grad():  # nothing tells of the bias here
            model(**batch)
    for _ in range(2):
        with pytest.raises(ValueError, match=r"EsmForMaskedLM changes its logits behind layer 'lm_head\.decoder'"):
            model(**batch)


def test_a_layer_that_was_replaced_or_resized_after_attaching_is_noticed() -> None:
    resized, batch = make("gpt2")
    attach_to_pretrained(resized).resize_token_embeddings(VOCABULARY + 3)
    replaced, _ = make("gpt2")
    attach_to_pretrained(replaced).lm_head = nn.Linear(16, VOCABULARY)
    for model in (resized, replaced):
        with pytest.raises(ValueError, match="'lm_head' was replaced or resized after the head was attached"):
            model(**batch)


def test_an_error_inside_the_model_leaves_no_labels_behind() -> None:
    model, batch = make("gpt2")
    attach_to_pretrained(model)
    with pytest.raises((IndexError, RuntimeError)):
        model(input_ids=torch.full((1, 3), VOCABULARY), labels=torch.zeros(1, 3).long())
    with pytest.raises(ValueError, match="a target is 77"):
        model(**batch | {"labels": torch.full((BATCH, LENGTH), 77)})
    assert model(input_ids=batch["input_ids"]).logits.shape == (BATCH, LENGTH, VOCABULARY)
    assert torch.isfinite(model(**batch).loss)


def wider(model: hf.PreTrainedModel) -> hf.PreTrainedModel:
    model.classifier = nn.Linear(16, 9)
    return model


@pytest.mark.parametrize(
    ("model", "layer", "head", "options", "message"),
    [
        (tiny_models.bert, "clasifier", None, {}, r"no layer 'clasifier'; its linear layers: classifier$"),
        (tiny_models.roberta, "classifier", None, {}, r"RobertaClassificationHead, but must be an nn.Linear; linear "),
        (tiny_models.roberta, "classifier", None, {}, r"linear layers: classifier.dense, classifier.out_proj$"),
        (tiny_models.gpt2, "transformer.wte", None, {}, r"'transformer.wte' is a Embedding.*linear layers: lm_head$"),
        (lambda: wider(tiny_models.bert()), None, None, {}, r"'classifier' gives 9 labels, but .* num_labels=5"),
        (tiny_models.bert, "bert.pooler.dense", None, {}, r"gives 16 labels, but .* num_labels=5"),
        (lambda: tiny_models.bert(id2label={0: "x"}, label2id={"x": 0}), None, None, {}, r"regression with 1 labels"),
        (lambda: tiny_models.bert(problem_type="multi_label_classification"), None, None, {}, "one true label"),
        (tiny_models.bert, None, PlainHead(16, 4), {}, r"the head is 16 -> 4, but layer 'classifier' 16 -> 5"),
        (
            tiny_models.bert,
            None,
            PlainHead(16, 5),
            {"rank": 2},
            r"options \['rank'\] go to a new head",
        ),
        (tiny_models.bert, None, None, {"ignore_index": 0}, r"ignore_index is 0, but Transformers leaves out"),
        (lambda: tiny_models.bert().bert, None, None, {}, r"BertModel takes no labels"),
    ],
)
def test_what_does_not_fit_is_refused_and_the_model_kept(
    model: Any, layer: str | None, head: Head | None, options: dict[str, Any], message: str
) -> None:
    made = model()
    before = list(made.state_dict())
    with pytest.raises(ValueError, match=message):
        attach_to_pretrained(made, layer, head, **options)
    assert list(made.state_dict()) == before


def test_other_models_and_second_heads_are_refused() -> None:
    with pytest.raises(TypeError, match="is a Linear, but must be a PreTrainedModel"):
        attach_to_pretrained(nn.Linear(2, 2))  # type: ignore[type-var]
    model = attach_to_pretrained(tiny_models.bert())
    with pytest.raises(ValueError, match="attached to this model already"):
        attach_to_pretrained(model)


def test_labels_that_are_not_one_a_row_are_refused() -> None:
    model, batch = make("bert")
    attach_to_pretrained(model)
    with pytest.raises(ValueError, match=r"labels have shape \(4, 3\), but layer 'classifier' reads rows of shape"):
        model(**batch | {"labels": torch.zeros(BATCH, 3).long()})
