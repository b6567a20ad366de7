"""Tasks that a tiny model learns in a few updates, and Trainers for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers as hf
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch import Tensor

from labelemb.integrations.transformers import LabelEmbeddingCallback
from tests.helpers import tiny_models

Rows = list[dict[str, Tensor]]


def first_token_rows(count: int = 32, seed: int = 0) -> Rows:
    """The label of a text is told by its tokens: all are of the label's own part of the vocabulary."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(tiny_models.LABELS, (count,), generator=generator)
    tokens = 4 + 7 * labels[:, None] + torch.randint(7, (count, tiny_models.LENGTH), generator=generator)
    return [{"input_ids": row, "labels": label} for row, label in zip(tokens, labels, strict=True)]


def image_rows(count: int = 32) -> Rows:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(tiny_models.LABELS, (count,), generator=generator)
    colours = torch.randn(tiny_models.LABELS, 3, 8, 8, generator=generator)
    return [{"pixel_values": colours[label], "labels": label} for label in labels]


def counting_rows(count: int = 32) -> Rows:
    """Texts that count upwards, of unequal lengths: the labels of padding are left out."""
    rows = []
    for number in range(count):
        text = 4 + (number + torch.arange(tiny_models.LENGTH)) % 30
        labels = text.clone()
        labels[3 + number % 5 :] = -100
        rows.append({"input_ids": text, "labels": labels})
    return rows


def repeating_rows(count: int = 32) -> Rows:
    """The translation of a text is its first token three times."""
    return [{"input_ids": row["input_ids"], "labels": row["input_ids"][:1].repeat(3)} for row in counting_rows(count)]


def arguments(folder: Path, kind: type[hf.TrainingArguments] = hf.TrainingArguments, **changes: Any) -> Any:
    """Quiet, on the CPU, by plain Adam; nothing is saved unless a test says so."""
    quiet = {"report_to": "none", "disable_tqdm": True, "logging_steps": 5, "save_strategy": "no", "use_cpu": True}
    training = {"learning_rate": 0.01, "lr_scheduler_type": "constant", "per_device_train_batch_size": 8}
    return kind(output_dir=str(folder), dataloader_pin_memory=False, **quiet | training | changes)


def trainer_of(model: hf.PreTrainedModel, rows: Rows, args: hf.TrainingArguments, **options: Any) -> hf.Trainer:
    kind = hf.Seq2SeqTrainer if isinstance(args, hf.Seq2SeqTrainingArguments) else hf.Trainer
    options.setdefault("callbacks", [LabelEmbeddingCallback()])
    return kind(model, args, train_dataset=rows, **options)


def losses(trainer: hf.Trainer, name: str = "loss") -> list[float]:
    return [entry[name] for entry in trainer.state.log_history if name in entry]


def word_tokenizer(words: int = tiny_models.VOCABULARY) -> hf.PreTrainedTokenizerFast:
    vocabulary = {"<pad>": 0, "<unk>": 1, "<s>": 2, "</s>": 3} | {f"word{n}": n for n in range(4, words)}
    tokens = {"pad_token": "<pad>", "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    return hf.PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel(vocabulary, unk_token="<unk>")), **tokens)
