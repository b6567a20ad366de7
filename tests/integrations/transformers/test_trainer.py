"""The unchanged Trainer and Seq2SeqTrainer train an attached model."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import transformers as hf
from safetensors.torch import load_file

from labelemb import LossTerms, Objective
from labelemb.integrations.transformers import LabelEmbeddingCallback, attach_to_pretrained, parameter_groups
from tests.helpers import tiny_models, two_process_run
from tests.helpers.forked import run_as_torchrun
from tests.helpers.small_runs import (
    Rows,
    arguments,
    counting_rows,
    first_token_rows,
    image_rows,
    losses,
    repeating_rows,
    trainer_of,
)

RISING = {"objective": Objective.rising_floor()}
TASKS: dict[str, tuple[Callable[[], hf.PreTrainedModel], Rows, dict[str, Any]]] = {
    "bert": (tiny_models.bert, first_token_rows(), {}),
    "vit": (
        tiny_models.vit,
        image_rows(),
        {"embedding": "running", "objective": Objective.rising_floor(), "rows_per_epoch": 32},
    ),
    "gpt2 classifier": (tiny_models.gpt2_classifier, first_token_rows(), {"objective": Objective.paper()}),
    "gpt2": (tiny_models.gpt2, counting_rows(), {"embedding": "compressed", "rank": 4}),
    "t5": (
        tiny_models.t5,
        repeating_rows(),
        {"embedding": "compressed", "rank": 4, "objective": Objective.rising_floor()},
    ),
}


@pytest.mark.parametrize("task", list(TASKS))
def test_the_loss_goes_down_and_the_predictor_learns(task: str, tmp_path: Path) -> None:
    make, rows, options = TASKS[task]
    torch.manual_seed(0)
    model = attach_to_pretrained(make(), **options)
    kind = hf.Seq2SeqTrainingArguments if task == "t5" else hf.TrainingArguments
    trainer = trainer_of(model, rows, arguments(tmp_path, kind, max_steps=60, learning_rate=0.02))
    trainer.train()
    assert losses(trainer)[-1] < 0.8 * losses(trainer)[0]
    hard = losses(trainer, "terms/hard")
    assert hard[-1] < 0.5 * hard[0]
    assert trainer.evaluate(rows)["eval_loss"] < 0.5 * hard[0]
    assert model.label_embedding.head.counts.sum() > 0


def test_a_trained_language_model_generates_by_its_predictor(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = attach_to_pretrained(tiny_models.gpt2(), embedding="compressed", rank=4)
    optimizer = torch.optim.AdamW(parameter_groups(model, lr=0.02, embedding_lr=0.05))
    rows = [{"input_ids": row["input_ids"], "labels": row["input_ids"]} for row in counting_rows(30)]
    args = arguments(tmp_path, max_steps=120)
    trainer_of(model, rows, args, optimizers=(optimizer, None)).train()
    start = torch.tensor([[10, 11]])
    generated = model.eval().generate(start, attention_mask=torch.ones_like(start), max_new_tokens=4, do_sample=False)
    assert generated.tolist() == [[10, 11, 12, 13, 14, 15]]


def test_a_seq2seq_trainer_evaluates_by_generating(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, rows = attach_to_pretrained(tiny_models.t5()), repeating_rows(8)
    args = arguments(
        tmp_path, hf.Seq2SeqTrainingArguments, max_steps=2, predict_with_generate=True, generation_max_length=5
    )
    trainer = trainer_of(model, rows, args)
    trainer.train()
    found = trainer.predict(rows, metric_key_prefix="test")
    inputs = torch.stack([row["input_ids"] for row in rows])
    expected = model.eval().generate(inputs, max_length=5)
    assert found.predictions[:, : expected.shape[1]].tolist() == expected.tolist()
    logits = model(input_ids=inputs, labels=torch.stack([row["labels"] for row in rows])).logits
    plain = F.cross_entropy(logits.flatten(0, 1), torch.cat([row["labels"] for row in rows]))
    assert found.metrics["test_loss"] == pytest.approx(plain.item(), rel=1e-4)


def test_evaluation_is_the_predictors_cross_entropy(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, rows = attach_to_pretrained(tiny_models.bert()), first_token_rows(16)
    trainer = trainer_of(model, rows, arguments(tmp_path, max_steps=2, per_device_eval_batch_size=16))
    trainer.train()
    before = model.label_embedding.head.counts.clone()
    found = trainer.predict(rows)
    labels = torch.stack([row["labels"] for row in rows])
    assert found.metrics["test_loss"] == pytest.approx(
        F.cross_entropy(torch.tensor(found.predictions), labels).item(), rel=1e-5
    )
    assert torch.equal(model.label_embedding.head.counts, before)


@pytest.mark.parametrize("task", ["bert", "gpt2", "t5"])
def test_gradient_accumulation_is_one_large_batch(task: str, tmp_path: Path) -> None:
    """Also where the parts of a batch have unequal numbers of labels."""
    make, rows, _ = TASKS[task]
    trained = []
    for size in (8, 2):
        torch.manual_seed(0)
        model = attach_to_pretrained(make())
        args = arguments(
            tmp_path,
            max_steps=3,
            optim="sgd",
            per_device_train_batch_size=size,
            gradient_accumulation_steps=8 // size,
            logging_steps=1,
        )
        trainer = trainer_of(model, rows, args)
        trainer.train()
        trained.append((model, trainer))
    (whole, one), (parts, other) = trained
    for (name, expected), found in zip(whole.named_parameters(), parts.parameters(), strict=True):
        torch.testing.assert_close(found, expected, msg=lambda text, name=name: f"{name}: {text}")
    for key in ("loss", "terms/hard", "terms/observer", "terms/embedding"):
        assert losses(other, key) == pytest.approx(losses(one, key), rel=1e-4)


def test_the_logged_terms_add_up_to_the_logged_loss(tmp_path: Path) -> None:
    objective = Objective(cap_weight=2.0, alpha=0.1)
    model = attach_to_pretrained(tiny_models.gpt2(), objective=objective)
    args = arguments(tmp_path, max_steps=6, logging_steps=3, gradient_accumulation_steps=2)
    trainer = trainer_of(model, counting_rows(), args)
    trainer.train()
    weights = {"hard": 0.5, "soft": 0.5, "observer": 1.0, "cap": 2.0, "embedding": 1.0}
    assert list(weights) == list(LossTerms._fields)
    entries = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert len(entries) == 2
    for entry in entries:
        total = sum(weight * entry[f"terms/{name}"] for name, weight in weights.items())
        assert total == pytest.approx(float(entry["loss"]), rel=1e-3)


def test_the_head_is_told_the_trainers_progress(tmp_path: Path) -> None:
    model = attach_to_pretrained(tiny_models.bert(), embedding="running", objective=Objective.rising_floor())
    seen: list[float] = []
    model.label_embedding.head.register_forward_pre_hook(
        lambda _, args, kwargs: seen.append(kwargs["progress"]), with_kwargs=True
    )
    args = arguments(tmp_path, max_steps=4, gradient_accumulation_steps=2)
    trainer_of(model, first_token_rows(), args).train()
    assert seen == [step / 4 for step in (0, 0, 1, 1, 2, 2, 3, 3)]
    assert model.label_embedding.progress is None  # it ends with the training


def test_a_head_with_total_steps_keeps_it(tmp_path: Path) -> None:
    """In updates, also where an update has several calls."""
    model = attach_to_pretrained(tiny_models.bert(), objective=Objective.rising_floor(), total_steps=2)
    seen: list[float] = []
    model.label_embedding.head.register_forward_pre_hook(
        lambda _, args, kwargs: seen.append(kwargs["progress"]), with_kwargs=True
    )
    trainer_of(model, first_token_rows(), arguments(tmp_path, max_steps=4, gradient_accumulation_steps=2)).train()
    assert seen == [0, 0, 0.5, 0.5, 1, 1, 1, 1]
    assert model.label_embedding.head.total_steps == 2


@pytest.mark.parametrize("where", ["between updates", "in an update"])
def test_what_the_trainer_said_ends_with_an_interruption(where: str, tmp_path: Path) -> None:
    class Interrupted(hf.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if where == "between updates":
                raise KeyboardInterrupt

        def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if where == "in an update":
                raise KeyboardInterrupt

    rows = first_token_rows(16)
    model = attach_to_pretrained(tiny_models.bert(), objective=Objective.rising_floor())
    args = arguments(tmp_path, max_steps=4, gradient_accumulation_steps=2)
    with pytest.raises(KeyboardInterrupt):
        trainer_of(model, rows, args, callbacks=[LabelEmbeddingCallback(), Interrupted()]).train()
    batch = {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model(**batch).loss.backward()
    optimizer.step()
    assert model.label_embedding.progress is None
    assert model.label_embedding.head.total_steps is None


def test_soft_start_counts_the_trainers_updates(tmp_path: Path) -> None:
    model = attach_to_pretrained(tiny_models.bert(), objective=Objective(soft_start=2))
    args = arguments(tmp_path, max_steps=4, gradient_accumulation_steps=2, logging_steps=1)
    trainer = trainer_of(model, first_token_rows(), args)
    trainer.train()
    assert [soft > 0 for soft in losses(trainer, "terms/soft")] == [False, False, True, True]


def test_a_share_of_the_training_without_the_callback_says_what_to_do(tmp_path: Path) -> None:
    model = attach_to_pretrained(tiny_models.bert(), objective=Objective(soft_start=0.5))
    trainer = trainer_of(model, first_token_rows(), arguments(tmp_path, max_steps=1), callbacks=[])
    with pytest.raises(ValueError, match=r"soft_start=0\.5 is a share of the training: pass progress="):
        trainer.train()


def test_reporters_that_stand_behind_the_callback_see_the_terms(tmp_path: Path) -> None:
    reported: list[dict[str, float]] = []

    class Reporter(hf.TrainerCallback):
        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
            reported.append(dict(logs))

    model = attach_to_pretrained(tiny_models.bert())
    args = arguments(tmp_path, max_steps=1, logging_steps=1)
    trainer_of(model, first_token_rows(), args, callbacks=[LabelEmbeddingCallback(), Reporter()]).train()
    assert {f"terms/{name}" for name in LossTerms._fields} <= reported[0].keys()
    assert not any("terms" in key for key in reported[-1])  # the summary of the training


def test_a_loss_of_the_trainers_own_is_refused(tmp_path: Path) -> None:
    model, rows = attach_to_pretrained(tiny_models.bert()), first_token_rows()
    with pytest.raises(ValueError, match=r"label_smoothing_factor is 0\.1, but .* set it to 0"):
        trainer_of(model, rows, arguments(tmp_path, max_steps=1, label_smoothing_factor=0.1)).train()

    def own_loss(outputs: Any, labels: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        return F.cross_entropy(outputs.logits, labels)

    with pytest.raises(ValueError, match="the head saw no labels in this update"):
        trainer_of(model, rows, arguments(tmp_path, max_steps=1), compute_loss_func=own_loss).train()


def test_a_frozen_observer_is_refused_before_training(tmp_path: Path) -> None:
    model = attach_to_pretrained(tiny_models.bert()).requires_grad_(False)
    model.classifier.requires_grad_(True)
    trainer = trainer_of(model, first_token_rows(), arguments(tmp_path, max_steps=1))
    with pytest.raises(ValueError, match=r"observer is frozen.*freeze parameters before attach_to_pretrained"):
        trainer.train()
    assert trainer.state.global_step == 0
    model.label_embedding.requires_grad_(True)
    trainer.train()


def test_a_model_without_a_head_is_refused_before_training(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no head is attached to this BertForSequenceClassification"):
        trainer_of(tiny_models.bert(), first_token_rows(), arguments(tmp_path, max_steps=1)).train()


def test_two_processes_train_what_one_does(tmp_path: Path) -> None:
    """Parameters, running table, counts, the logged loss and its terms."""
    one, two = tmp_path / "one", tmp_path / "two"
    two_process_run.run(one)
    done = run_as_torchrun(2, partial(two_process_run.run, two))
    assert done.codes == [0, 0], done.stderr
    found = load_file(two / "state.safetensors")
    for name, expected in load_file(one / "state.safetensors").items():
        torch.testing.assert_close(found[name], expected, msg=lambda text, name=name: f"{name}: {text}")
    logs = [json.loads((folder / "log.json").read_text(encoding="utf-8")) for folder in (one, two)]
    for expected, entry in zip(*logs, strict=True):
        for key in expected.keys() & {"loss", *(f"terms/{name}" for name in LossTerms._fields)}:
            assert entry[key] == pytest.approx(expected[key], rel=1e-4), key
