"""A plain checkpoint for everybody, and the training parts beside it for those who go on."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from safetensors.torch import load_file, save_file
from torch import Tensor

from labelemb import LabelSpace, LabelSpaceError, Objective, PlainHead
from labelemb.integrations.transformers import (
    LabelEmbeddingCallback,
    attach_to_pretrained,
    label_space,
    load_training_parts,
)
from tests.helpers import tiny_models
from tests.helpers.small_runs import arguments, first_token_rows, trainer_of, word_tokenizer
from tests.helpers.tiny_models import ALL, ANIMALS

PARTS = "label_embedding.safetensors"


def trained(kind: str, **options: Any) -> tuple[hf.PreTrainedModel, dict[str, Tensor]]:
    """A model after one update, and a batch."""
    torch.manual_seed(0)
    make, make_batch, _ = ALL[kind]
    model, batch = attach_to_pretrained(make().train(), **options), make_batch()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    model(**batch).loss.backward()
    optimizer.step()
    model.zero_grad()
    return model, batch


@pytest.mark.parametrize("kind", ["bert", "roberta", "vit", "gpt2", "llama", "t5", "bart", "bert masked"])
def test_a_saved_model_loads_in_plain_transformers_and_answers_the_same(kind: str, tmp_path: Path) -> None:
    ALL[kind][0]().save_pretrained(tmp_path / "plain")
    model, batch = trained(kind)
    model.save_pretrained(tmp_path)
    assert load_file(tmp_path / "model.safetensors").keys() == load_file(tmp_path / "plain/model.safetensors").keys()
    loaded, info = type(model).from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info.values()), info
    assert not hasattr(loaded, "label_embedding")
    assert torch.equal(loaded(**batch).logits, model.eval()(**batch).logits)
    assert loaded.config.architectures == [type(model).__name__]


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("bert", {}),
        ("vit", {"embedding": "running"}),
        ("gpt2", {"embedding": "compressed", "rank": 3}),
        ("t5", {"embedding": "compressed", "rank": 3, "objective": Objective.paper(soft_start=1)}),
    ],
)
def test_training_goes_on_from_a_checkpoint_with_its_parts(kind: str, options: dict[str, Any], tmp_path: Path) -> None:
    if options.get("embedding") == "running":
        options = {"objective": Objective(mass_floor=0.5), "total_steps": 4}
    model, batch = trained(kind, **options)
    model.save_pretrained(tmp_path)
    loaded = attach_to_pretrained(type(model).from_pretrained(tmp_path), **options)
    load_training_parts(loaded, tmp_path)
    expected, found = model.train()(**batch), loaded.train()(**batch)
    assert torch.equal(found.loss, expected.loss)
    expected.loss.backward()
    found.loss.backward()
    for one, other in zip(model.parameters(), loaded.parameters(), strict=True):
        assert torch.equal(one.grad, other.grad)
    assert torch.equal(loaded.label_embedding.head.counts, model.label_embedding.head.counts)


def test_without_the_training_parts_the_folder_is_that_of_a_plain_model(tmp_path: Path) -> None:
    model, _ = trained("bert")
    tiny_models.bert().save_pretrained(tmp_path / "plain")
    model.save_pretrained(tmp_path / "ours")
    assert (tmp_path / "ours" / PARTS).exists()
    model.save_pretrained(tmp_path / "ours", training_parts=False)
    names = [{path.name for path in (tmp_path / folder).iterdir()} for folder in ("plain", "ours")]
    assert names[0] == names[1]


def test_a_copy_saves_its_own_weights(tmp_path: Path) -> None:
    model, _ = trained("bert")
    other = copy.deepcopy(model)
    torch.nn.init.zeros_(other.classifier.weight)
    other.save_pretrained(tmp_path)
    assert load_file(tmp_path / "model.safetensors")["classifier.weight"].abs().sum() == 0


def test_parts_that_do_not_fit_are_refused_in_one_line(tmp_path: Path) -> None:
    model, _ = trained("bert", embedding="compressed", rank=3)
    model.save_pretrained(tmp_path)
    other = attach_to_pretrained(tiny_models.bert(), embedding="compressed", rank=2)
    with pytest.raises(ValueError, match=r"has \(5, 3\) for embedding\.A, but the head \(5, 2\): attach it with"):
        load_training_parts(other, tmp_path)
    dense = attach_to_pretrained(tiny_models.bert())
    with pytest.raises(ValueError, match=r"for embedding\.A, but the head nothing"):
        load_training_parts(dense, tmp_path)
    same = attach_to_pretrained(tiny_models.bert(), embedding="compressed", rank=3)
    with pytest.raises(ValueError, match="was saved with other weights than those of the model"):
        load_training_parts(same, tmp_path, same_weights=True)
    with pytest.raises(ValueError, match=f"has no {PARTS}: it holds a model without the training parts"):
        load_training_parts(same, tmp_path / "nowhere")
    save_file({"x": torch.ones(1)}, tmp_path / PARTS)
    with pytest.raises(ValueError, match=f"{PARTS}: not a file of training parts"):
        load_training_parts(same, tmp_path)
    (tmp_path / PARTS).write_bytes(b"not safetensors at all")
    with pytest.raises(ValueError, match=f"{PARTS}: cannot be read"):
        load_training_parts(same, tmp_path)
    with pytest.raises(ValueError, match="no head is attached"):
        load_training_parts(tiny_models.bert(), tmp_path)


def run(folder: Path, *, stop_at: int | None = None, resume: Any = None, **options: Any) -> hf.PreTrainedModel:
    """Six updates with checkpoints, perhaps stopped or resumed."""

    class Stop(hf.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == stop_at:
                control.should_save = control.should_training_stop = True

    torch.manual_seed(0)
    model = attach_to_pretrained(tiny_models.bert(), embedding="running", objective=Objective.rising_floor())
    args = arguments(folder, max_steps=6, save_strategy="steps", save_steps=options.pop("save_steps", 100))
    callbacks = options.pop("callbacks", [LabelEmbeddingCallback()])
    trainer = trainer_of(model, first_token_rows(), args, callbacks=[*callbacks, Stop()], **options)
    trainer.train(resume_from_checkpoint=resume)
    return model


def test_a_resumed_training_ends_where_an_uninterrupted_one_does(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole")
    run(tmp_path / "parts", stop_at=3)
    resumed = run(tmp_path / "parts", resume=True)
    found = resumed.state_dict()
    for name, expected in whole.state_dict().items():
        assert torch.equal(found[name], expected), name
    spaces = [(tmp_path / folder / "label_space.safetensors").read_bytes() for folder in ("whole", "parts")]
    assert spaces[0] == spaces[1]


def test_resuming_from_elsewhere_asks_for_the_folder(tmp_path: Path) -> None:
    run(tmp_path / "first", stop_at=3)
    checkpoint = tmp_path / "first" / "checkpoint-3"
    with pytest.raises(ValueError, match=r"checkpoint-3 has no .*LabelEmbeddingCallback\(resume_from=folder\)"):
        run(tmp_path / "second", resume=str(checkpoint))
    run(tmp_path / "second", resume=str(checkpoint), callbacks=[LabelEmbeddingCallback(resume_from=checkpoint)])


def test_parts_of_another_training_are_not_taken_for_ones_own(tmp_path: Path) -> None:
    run(tmp_path / "first", stop_at=3)
    moved = tmp_path / "moved"
    (tmp_path / "first" / "checkpoint-3").rename(moved)
    torch.manual_seed(1)
    model = attach_to_pretrained(tiny_models.bert(), embedding="running", objective=Objective.rising_floor())
    model.save_pretrained(tmp_path / "first" / "checkpoint-3")
    with pytest.raises(ValueError, match="was saved with other weights"):
        run(tmp_path / "first", resume=str(moved))


@pytest.mark.parametrize("options", [{"observe_rows": 2}, {"objective": Objective(mass_floor=0.5)}])
def test_a_plain_checkpoint_is_noticed_by_heads_that_count_their_calls(options: dict[str, Any]) -> None:
    model = attach_to_pretrained(tiny_models.bert(), **options)
    model.load_state_dict(tiny_models.bert().state_dict(), strict=False)
    assert model.label_embedding.parts_missing


def test_resuming_without_the_callback_is_an_error_and_no_silent_restart(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, rows = attach_to_pretrained(tiny_models.bert()), first_token_rows()
    args = arguments(tmp_path, max_steps=2, save_strategy="steps", save_steps=1)
    trainer_of(model, rows, args, callbacks=[]).train()
    again = trainer_of(attach_to_pretrained(tiny_models.bert()), rows, args, callbacks=[])
    with pytest.raises(ValueError, match="without the head's training parts: resume with LabelEmbeddingCallback"):
        again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-1"))


def test_the_best_model_brings_its_own_parts(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, rows = attach_to_pretrained(tiny_models.bert()), first_token_rows(16)
    args = arguments(
        tmp_path,
        max_steps=4,
        learning_rate=1.0,  # so that the best is not the last
        save_strategy="steps",
        save_steps=1,
        eval_strategy="steps",
        eval_steps=1,
        load_best_model_at_end=True,
    )
    trainer = trainer_of(model, rows, args, eval_dataset=rows)
    trainer.train()
    best = Path(str(trainer.state.best_model_checkpoint))
    assert best.name != "checkpoint-4"
    parts = load_file(best / PARTS)
    for name, tensor in model.label_embedding.head.state_dict().items():
        assert torch.equal(tensor, parts[name]), name
    model.train()(**{name: torch.stack([row[name] for row in rows]) for name in rows[0]})  # and trains on


def test_the_label_space_has_the_models_names(tmp_path: Path) -> None:
    model = attach_to_pretrained(tiny_models.bert(), embedding="dense")
    trainer_of(model, first_token_rows(), arguments(tmp_path, max_steps=2)).train()
    space = LabelSpace.load(tmp_path / "label_space.safetensors")
    assert list(space.names) == ANIMALS
    torch.testing.assert_close(space.matrix(kind="logit"), model.label_embedding.head.embedding.weight.detach())


@pytest.mark.parametrize("given_to", ["callback", "trainer"])
def test_the_labels_of_a_language_model_are_the_tokenizers_tokens(given_to: str, tmp_path: Path) -> None:
    tokenizer = word_tokenizer(tiny_models.VOCABULARY - 2)  # the layer is larger than the vocabulary
    model = attach_to_pretrained(tiny_models.gpt2(), embedding="compressed", rank=2)
    callback = LabelEmbeddingCallback(tokenizer if given_to == "callback" else None)
    options = {"processing_class": tokenizer} if given_to == "trainer" else {}
    rows = [{"input_ids": row["input_ids"], "labels": row["input_ids"]} for row in first_token_rows(8)]
    args = arguments(tmp_path, max_steps=1)
    collate = hf.default_data_collator
    trainer_of(model, rows, args, callbacks=[callback], data_collator=collate, **options).train()
    space = LabelSpace.load(tmp_path / "label_space.safetensors")
    assert space.names[:5] == ("<pad>", "<unk>", "<s>", "</s>", "word4")
    assert space.names[-3:] == ("word37", "<label 38>", "<label 39>")
    assert set(space.specials) == {"<pad>", "<unk>", "<s>", "</s>"}


def test_save_model_of_the_trainer_writes_the_label_space(tmp_path: Path) -> None:
    tokenizer = word_tokenizer()
    model = attach_to_pretrained(tiny_models.gpt2(), embedding="compressed", rank=2)
    rows = [{"input_ids": row["input_ids"], "labels": row["input_ids"]} for row in first_token_rows(8)]
    args = arguments(tmp_path / "out", max_steps=1)
    trainer = trainer_of(model, rows, args, data_collator=hf.default_data_collator, processing_class=tokenizer)
    trainer.train()
    trainer.save_model(str(tmp_path / "saved"))
    files = [tmp_path / folder / "label_space.safetensors" for folder in ("out", "saved")]
    assert files[0].read_bytes() == files[1].read_bytes()
    assert LabelSpace.load(files[1]).names[4] == "word4"


def test_models_of_model_init_are_saved_with_names_and_parts_and_resume(tmp_path: Path) -> None:
    rows = [{"input_ids": row["input_ids"], "labels": row["input_ids"]} for row in first_token_rows(8)]
    ends = []
    for folder, steps in (("whole", 4), ("parts", 2), ("parts", 4)):
        trainer = hf.Trainer(
            None,
            arguments(tmp_path / folder, max_steps=steps, save_strategy="steps", save_steps=2),
            train_dataset=rows,
            model_init=lambda: attach_to_pretrained(tiny_models.gpt2()),
            callbacks=[LabelEmbeddingCallback()],
            processing_class=word_tokenizer(),
            data_collator=hf.default_data_collator,
        )
        trainer.train(resume_from_checkpoint=folder == "parts" and steps == 4)
        checkpoint = tmp_path / folder / f"checkpoint-{steps}"
        assert LabelSpace.load(checkpoint / "label_space.safetensors").names[4] == "word4"
        ends.append(load_file(checkpoint / "model.safetensors") | load_file(checkpoint / PARTS))
    for name, expected in ends[0].items():
        assert torch.equal(ends[2][name], expected), name


def test_without_a_tokenizer_tokens_are_numbers() -> None:
    model, _ = trained("gpt2")
    space = label_space(model)
    assert space is not None
    assert space.names[:2] == ("0", "1")


def test_a_head_that_learns_nothing_about_labels_has_no_space(tmp_path: Path) -> None:
    model = attach_to_pretrained(tiny_models.bert(), head=PlainHead(16, 5, label_smoothing=0.1))
    assert label_space(model) is None
    trainer_of(model, first_token_rows(), arguments(tmp_path, max_steps=1)).train()
    assert not (tmp_path / "label_space.safetensors").exists()


def test_a_label_space_of_an_earlier_training_does_not_stay_beside_other_weights(tmp_path: Path) -> None:
    for options in ({}, {"head": PlainHead(16, 5)}):
        model = attach_to_pretrained(tiny_models.bert(), **options)
        trainer = trainer_of(model, first_token_rows(), arguments(tmp_path, max_steps=1))
        trainer.train()
        trainer.save_model(str(tmp_path / "saved"))
        spaces = [(tmp_path / folder / "label_space.safetensors").exists() for folder in ("", "saved")]
        assert spaces == [not options] * 2


def test_names_that_repeat_are_refused_before_training(tmp_path: Path) -> None:
    model = attach_to_pretrained(tiny_models.bert(id2label=dict.fromkeys(range(5), "same")))
    trainer = trainer_of(model, first_token_rows(), arguments(tmp_path, max_steps=1))
    with pytest.raises(LabelSpaceError, match="names must be unique"):
        trainer.train()
    assert trainer.state.global_step == 0


def test_the_configuration_is_that_of_a_plain_model(tmp_path: Path) -> None:
    torch.manual_seed(0)
    tiny_models.bert().save_pretrained(tmp_path / "plain")
    trained("bert")[0].save_pretrained(tmp_path / "ours")
    plain, ours = (json.loads((tmp_path / folder / "config.json").read_text()) for folder in ("plain", "ours"))
    ours.pop("problem_type", None)
    plain.pop("problem_type", None)
    assert ours == plain
