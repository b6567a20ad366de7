"""Labels of a call, soft ones and weights: the rows that they belong to, and what their loss is divided by."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import transformers as hf
from torch import Tensor

from labelemb import PlainHead
from labelemb.integrations.transformers import attach_to_pretrained
from tests.helpers import tiny_models
from tests.helpers.small_runs import Rows, arguments, counting_rows, first_token_rows, losses, trainer_of
from tests.helpers.tiny_models import BATCH, LABELS, VOCABULARY, make

LABEL_WEIGHTS = torch.arange(1.0, LABELS + 1)


def token_losses(model: hf.PreTrainedModel, batch: dict[str, Tensor]) -> Tensor:
    """(sequences, length - 1) cross entropy of each label behind the first; 0 where it is left out."""
    logits = model(input_ids=batch["input_ids"]).logits[:, :-1]
    return F.cross_entropy(logits.transpose(1, 2), batch["labels"][:, 1:], reduction="none")


def soft_tokens(labels: Tensor) -> Tensor:
    """One-hot labels (..., vocabulary), all zero where a label is left out."""
    return F.one_hot(labels.clamp_min(0), VOCABULARY).float() * (labels >= 0).unsqueeze(-1)


def test_weights_of_a_causal_model_belong_to_their_own_labels() -> None:
    model, batch = make("gpt2")
    attach_to_pretrained(model, head=PlainHead(16, VOCABULARY))
    weights = torch.rand(batch["labels"].shape)
    own = weights[:, 1:] * (batch["labels"][:, 1:] >= 0)
    expected = (token_losses(model, batch) * own).sum() / own.sum()
    torch.testing.assert_close(model(**batch, sample_weight=weights).loss, expected)


def test_weights_beside_labels_that_a_collator_has_shifted_are_taken_as_they_are() -> None:
    model, batch = make("gpt2")
    attach_to_pretrained(model, head=PlainHead(16, VOCABULARY))
    weights = torch.rand(batch["labels"].shape)
    expected = model(**batch, sample_weight=weights).loss
    shifted = {"shift_labels": F.pad(batch["labels"], (0, 1), value=-100)[:, 1:]}
    found = model(**batch, **shifted, sample_weight=F.pad(weights, (0, 1))[:, 1:]).loss
    assert torch.equal(found, expected)


def test_soft_labels_of_a_causal_model_are_shifted_by_one_token() -> None:
    model, batch = make("gpt2")
    expected = attach_to_pretrained(model)(**batch).loss
    torch.testing.assert_close(model(**batch | {"labels": soft_tokens(batch["labels"])}).loss, expected)


def test_soft_labels_of_a_seq2seq_model_need_the_decoders_inputs() -> None:
    model, batch = make("bart")
    expected = attach_to_pretrained(model)(**batch).loss
    soft = batch | {"labels": soft_tokens(batch["labels"])}
    with pytest.raises(ValueError, match="soft labels do not say which tokens the decoder reads: pass"):
        model(**soft)
    inputs = model.prepare_decoder_input_ids_from_labels(labels=batch["labels"])
    torch.testing.assert_close(model(**soft, decoder_input_ids=inputs).loss, expected)


@pytest.mark.parametrize("labels", [torch.zeros(BATCH), torch.zeros(BATCH, LABELS + 1)])
def test_floats_that_are_no_soft_labels_are_named_as_such(labels: Tensor) -> None:
    model, batch = make("bert")
    attach_to_pretrained(model)
    message = f"float32 of shape {tuple(labels.shape)}, but must be integers, or soft labels of shape (..., {LABELS})"
    with pytest.raises(ValueError, match=re.escape(message)):
        model(**batch | {"labels": labels})


@pytest.mark.parametrize("labels", [torch.zeros(BATCH).long(), torch.full((BATCH, VOCABULARY), 1 / VOCABULARY)])
def test_one_label_a_text_is_refused_by_language_models(labels: Tensor) -> None:
    model, batch = make("gpt2")
    attach_to_pretrained(model, shift=False)
    with pytest.raises(ValueError, match="there must be one label a row"):
        model(**batch | {"labels": labels})


def test_a_loop_of_ones_own_may_say_the_divisor() -> None:
    model, batch = make("bert")
    attach_to_pretrained(model)
    weights = torch.tensor([1.0, 2.0, 3.0, 4.0])
    expected = model(**batch, sample_weight=weights).loss
    parts = [
        model(**{name: value[part] for name, value in batch.items()}, sample_weight=weights[part], num_items=10.0).loss
        for part in (slice(0, 1), slice(1, BATCH))
    ]
    torch.testing.assert_close(sum(parts), expected)


def logged(folder: Path, model: hf.PreTrainedModel, rows: Rows, **changes: Any) -> list[float]:
    """The losses that the Trainer logs, in the order of the rows."""
    args = arguments(folder, max_steps=2, logging_steps=1, remove_unused_columns=False, **changes)
    trainer = trainer_of(model, rows, args)
    trainer._get_train_sampler = lambda *_: torch.utils.data.SequentialSampler(rows)
    trainer.train()
    return losses(trainer) + [entry["grad_norm"] for entry in trainer.state.log_history if "grad_norm" in entry]


def with_soft_labels(rows: Rows, left_out: int | None = None) -> Rows:
    soft = [row | {"labels": F.one_hot(row["labels"], LABELS).float()} for row in rows]
    if left_out is not None:
        soft[left_out]["labels"].zero_()
    return soft


@pytest.mark.parametrize("changes", [{}, {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4}])
def test_the_trainer_trains_soft_labels_as_it_does_integers(changes: dict[str, int], tmp_path: Path) -> None:
    rows = first_token_rows(16)
    found = []
    for given in (rows, with_soft_labels(rows)):
        torch.manual_seed(0)
        found.append(logged(tmp_path, attach_to_pretrained(tiny_models.bert()), given, **changes))
    assert found[1] == pytest.approx(found[0], rel=1e-4)


def test_the_trainer_leaves_out_soft_labels_that_are_zero(tmp_path: Path) -> None:
    rows = first_token_rows(16)
    integers = [row | {"labels": torch.tensor(-100)} if number == 3 else row for number, row in enumerate(rows)]
    found = []
    for given in (integers, with_soft_labels(rows, left_out=3)):
        torch.manual_seed(0)
        found.append(logged(tmp_path, attach_to_pretrained(tiny_models.bert()), given))
    assert found[1] == pytest.approx(found[0], rel=1e-4)


@pytest.mark.parametrize("parts", [1, 4])
def test_the_trainer_trains_soft_tokens_as_it_does_integers(parts: int, tmp_path: Path) -> None:
    rows = [{"input_ids": row["input_ids"], "labels": row["input_ids"]} for row in counting_rows(16)]
    found = []
    for given in (rows, [row | {"labels": soft_tokens(row["labels"])} for row in rows]):
        torch.manual_seed(0)
        model = attach_to_pretrained(tiny_models.gpt2())
        sizes = {"per_device_train_batch_size": 8 // parts, "gradient_accumulation_steps": parts}
        found.append(logged(tmp_path, model, given, **sizes))
    assert found[1] == pytest.approx(found[0], rel=1e-4)


def weighted_rows(rows: Rows) -> tuple[Rows, Tensor]:
    weights = torch.linspace(0.5, 3, len(rows))
    return [row | {"sample_weight": weight} for row, weight in zip(rows, weights, strict=True)], weights


@pytest.mark.parametrize("kind", ["label", "sample"])
def test_the_trainer_divides_by_the_weights(kind: str, tmp_path: Path) -> None:
    rows, weights = first_token_rows(8), torch.ones(8)
    if kind == "sample":
        rows, weights = weighted_rows(rows)
    torch.manual_seed(0)
    head = PlainHead(16, LABELS, weight=LABEL_WEIGHTS if kind == "label" else None)
    model = attach_to_pretrained(tiny_models.bert(), head=head)
    inputs, labels = (torch.stack([row[name] for row in rows]) for name in ("input_ids", "labels"))
    each = F.cross_entropy(model.eval()(input_ids=inputs).logits, labels, reduction="none")
    weights = weights * (LABEL_WEIGHTS[labels] if kind == "label" else 1)
    expected = ((each * weights).sum() / weights.sum()).item()
    assert logged(tmp_path, model, rows)[0] == pytest.approx(expected, rel=1e-4)


def test_parts_of_an_update_with_weights_count_by_their_labels(tmp_path: Path) -> None:
    rows, weights = weighted_rows(first_token_rows(8))
    torch.manual_seed(0)
    model = attach_to_pretrained(tiny_models.bert(), head=PlainHead(16, LABELS))
    inputs, labels = (torch.stack([row[name] for row in rows]) for name in ("input_ids", "labels"))
    each = F.cross_entropy(model.eval()(input_ids=inputs).logits, labels, reduction="none") * weights
    halves = [(each[part].sum() / weights[part].sum()).item() for part in (slice(0, 4), slice(4, 8))]
    found = logged(tmp_path, model, rows, per_device_train_batch_size=4, gradient_accumulation_steps=2)
    assert found[0] == pytest.approx(sum(halves) / 2, rel=1e-4)


def test_weights_that_are_all_zero_train_nothing() -> None:
    model, batch = make("bert")
    attach_to_pretrained(model)
    zeros = torch.zeros(BATCH)
    assert model(**batch, sample_weight=zeros, num_items_in_batch=torch.tensor(2 * BATCH)).loss == 0
    left_out = batch | {"labels": torch.full((BATCH,), -100)}
    assert model(**left_out, sample_weight=zeros, num_items_in_batch=torch.tensor(0)).loss == 0
