"""`LabelEmbeddingCallback`: passes the `Trainer`'s progress to the head, and logs the head's statistics."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.hooks import RemovableHandle
from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerBase,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from labelemb.integrations.transformers.attachment import Attachment, attachment_of
from labelemb.integrations.transformers.example_losses import ExampleLosses
from labelemb.integrations.transformers.names import label_names, save_label_space
from labelemb.integrations.transformers.training_parts import load_training_parts, save_with_parts
from labelemb.labelspace.labels import check_names
from labelemb.losses.terms import LossTerms
from labelemb.support.tensors import sum_over_processes


class LabelEmbeddingCallback(TrainerCallback):
    """Trainer callback for a model with a head: logs the five terms, saves the label space, and resumes training.

    >>> trainer = Trainer(model, arguments, train_dataset=..., callbacks=[LabelEmbeddingCallback()])

    - Tells the head how far the training is (a mass floor and `soft_start` need it).
    - Adds "terms/hard", "terms/soft", "terms/observer", "terms/cap" and "terms/embedding" to the Trainer's logs with
      "loss", as means over the updates since the last log.
    - Restores the training parts when the Trainer resumes or loads its best model.
    - Writes `label_space.safetensors` into the output folder at the end; `save_model` writes it into its folder too.

    Arguments:
        tokenizer: names the labels of a language model. None: the Trainer's processing_class.
        resume_from: the checkpoint that the Trainer resumes from. None: it is in the Trainer's own output folder.
        record_losses: the column of the training data with the index of each example. `example_losses()` then returns
            the loss of each example, averaged over the epochs since the last resume, for `labelemb.audit(...,
            losses=)`. It works in one process only, and the Trainer must keep the column:
            `TrainingArguments(remove_unused_columns=False)`. None: no losses are recorded.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase | None = None,
        *,
        resume_from: str | os.PathLike[str] | None = None,
        record_losses: str | None = None,
    ) -> None:
        self.tokenizer, self.resume_from, self.record_losses = tokenizer, resume_from, record_losses
        self._losses = ExampleLosses()
        self._sums: Tensor | None = None  # (5,)
        self._updates = 0
        self._hook: RemovableHandle | None = None

    def example_losses(self) -> np.ndarray:
        """The loss of each training example by its index, averaged over the epochs; NaN if it was never seen."""
        if self.record_losses is None:
            raise ValueError("no losses were recorded: pass LabelEmbeddingCallback(record_losses=COLUMN)")
        return self._losses.means()

    def on_init_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        model = kwargs["model"]
        if hasattr(model, "label_embedding"):  # on_train_begin says it where there is none
            self._prepare(model, kwargs)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        model: PreTrainedModel = kwargs["model"]
        attachment = attachment_of(model)
        self._prepare(model, kwargs)  # model_init may have made another one
        if args.label_smoothing_factor:
            raise ValueError(
                f"label_smoothing_factor is {args.label_smoothing_factor}, but then the Trainer takes a loss of its "
                f"own: set it to 0 (PlainHead(..., label_smoothing=) is the same as a head)"
            )
        _check_observer(attachment)
        check_names(label_names(model, self._tokenizer_of(kwargs)), attachment.head.num_labels)  # not after hours
        if attachment.parts_missing:
            folder = self.resume_from or _output_folder(args) / f"checkpoint-{state.global_step}"
            try:
                load_training_parts(model, folder, same_weights=True)
            except ValueError as error:
                raise ValueError(
                    f"{error}; say where the Trainer resumes from: LabelEmbeddingCallback(resume_from=folder)"
                ) from error
        if self.record_losses is not None and args.world_size > 1:
            raise ValueError(f"record_losses is for one process, not for {args.world_size}")
        attachment.index_name, self._losses = self.record_losses, ExampleLosses()
        attachment.terms, self._sums, self._updates = None, None, 0

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        attachment = attachment_of(kwargs["model"])
        attachment.end_update()
        attachment.begin_update(state.global_step, max(1, state.max_steps))
        self._end_with_next_step(attachment)

    def on_substep_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._collect(kwargs["model"])

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        attachment_of(kwargs["model"]).end_update()
        self._collect(kwargs["model"])
        self._updates += 1

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        logs: dict[str, Any] = kwargs["logs"]
        if "loss" not in logs or self._sums is None:
            return
        sums = sum_over_processes(self._sums)  # each process has divided by the labels of all of them
        processes = 1 if args.average_tokens_across_devices else args.world_size
        means = (sums / (self._updates * processes)).tolist()
        terms = {f"terms/{name}": value for name, value in zip(LossTerms._fields, means, strict=True)}
        logs.update(terms)
        state.log_history[-1].update(terms)
        self._sums, self._updates = None, 0

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        model: PreTrainedModel = kwargs["model"]
        attachment = attachment_of(model)
        if attachment.parts_missing and state.best_model_checkpoint is not None:
            load_training_parts(model, state.best_model_checkpoint, same_weights=True)
        if args.should_save:
            save_label_space(model, _output_folder(args), self._tokenizer_of(kwargs))

    def _prepare(self, model: PreTrainedModel, kwargs: dict[str, Any]) -> None:
        attachment_of(model).tokenizer = self._tokenizer_of(kwargs)
        save_with_parts(model)  # PEFT may have wrapped the model after it was attached to

    def _end_with_next_step(self, attachment: Attachment) -> None:
        """End the update with the next step of any optimiser: a Trainer that is interrupted does not say so."""
        if self._hook is not None:
            self._hook.remove()

        def end_update(*unused: object) -> None:
            attachment.end_update()
            handle.remove()

        self._hook = handle = register_optimizer_step_post_hook(end_update)

    def _collect(self, model: PreTrainedModel) -> None:
        """Add the terms of one call up; the calls of an update have divided by the labels of the whole update."""
        attachment = attachment_of(model)
        if attachment.terms is None:
            raise ValueError(
                "the head saw no labels in this update: the Trainer must give the model its `labels` (no "
                "compute_loss_func, no other label_names)"
            )
        if self.record_losses is not None:
            if attachment.row_losses is None:
                raise ValueError(
                    f"record_losses: the batches have no {self.record_losses!r}: add the column to the training data "
                    "and pass TrainingArguments(remove_unused_columns=False)"
                )
            self._losses.add(attachment.row_losses)
            attachment.row_losses = None
        terms = torch.stack(attachment.terms)
        self._sums = terms if self._sums is None else self._sums + terms
        attachment.terms = None

    def _tokenizer_of(self, kwargs: dict[str, Any]) -> PreTrainedTokenizerBase | None:
        given = self.tokenizer or kwargs.get("processing_class")
        return given if isinstance(given, PreTrainedTokenizerBase) else None


def _check_observer(attachment: Attachment) -> None:
    # asked of the attachment: PEFT freezes the head, and the attachment undoes that
    observer = [p.requires_grad for name, p in attachment.named_parameters() if name.startswith("head.observer.")]
    if observer and not any(observer):
        raise ValueError(
            "the head's observer is frozen, so that its soft labels would never be learned: freeze parameters before "
            "attach_to_pretrained, or unfreeze model.label_embedding.parameters()"
        )


def _output_folder(args: TrainingArguments) -> Path:
    assert args.output_dir is not None  # the Trainer has put its default there
    return Path(args.output_dir)
