"""`Attachment`: connects a pretrained model, its last linear layer and the head during training.

The layer stays where it is and becomes the head's predictor, so that tied weights, `generate`, evaluation and plain
checkpoints know nothing of the head. Only a call in training mode with labels is different:

1. the labels are taken out of the model's call, so that the model computes no loss of its own;
2. the layer reads no rows, so that no logits are computed there: the head reads the hidden state and the labels, and
   the rest of the model sees a placeholder in the shape of the logits;
3. the head's loss, and its logits where it has them, are put into the model's output.

The placeholder holds at each row 1 + its position in the sequence. So it shows which positions a model picks that
classifies by its last token, and whether a model changes its logits behind the layer, where the head cannot follow.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.utils import ModelOutput

from labelemb.heads import Head, HeadOutput
from labelemb.integrations.transformers.adapters import linear_layers
from labelemb.integrations.transformers.example_losses import RowLosses, row_losses
from labelemb.integrations.transformers.logits_bias import BiasedLayer, predictor_of
from labelemb.integrations.transformers.model_output import EvalModeWarning, other_losses, picked_rows
from labelemb.integrations.transformers.targets import (
    LabelCount,
    check_kind,
    decoder_inputs,
    divisor,
    entries_counted,
    next_labels,
    next_weights,
)
from labelemb.losses.terms import LossTerms
from labelemb.support.tensors import times_changed

CALL_OPTIONS = ("sample_weight", "progress", "num_items")


@dataclass
class Call:
    """One call of the model with labels, in training mode."""

    targets: Tensor
    options: dict[str, Any]
    as_tuple: bool
    count: LabelCount | None = None
    """What the Trainer has counted; None where nobody says."""
    hidden: Tensor | None = None
    """What the layer was given."""
    output: HeadOutput | None = None
    placeholder: Tensor | None = None
    times_changed: int = 0
    """How often the placeholder was changed in place before the model got it."""
    index: Tensor | None = None
    """Which examples these are, where their losses are recorded."""


class Attachment(nn.Module):
    """The head of a pretrained model, its submodule `label_embedding`; `attach_to_pretrained` makes it.

    Attributes:
        head: the head. Its predictor is the model's own layer and is not in the head's `state_dict`.
        layer_name: the layer's name inside the model.
        language_model: whether the labels are tokens.
        shifts: whether row t of a sequence predicts label t + 1.
        terms: the five terms of the latest training call, detached.
        tokenizer: names the labels of a language model in files; set by the callback.
        progress: progress of the training, from 0 to 1, for calls without progress=; set during an update of the
            Trainer.
        index_name: the model's input with the indices of its examples, which the model does not get; set by the
            callback.
        row_losses: indices and losses of the examples of the latest training call, if it has indices.
    """

    head: Head

    def __init__(
        self, model: PreTrainedModel, layer_name: str, head: Head, *, language_model: bool, shifts: bool
    ) -> None:
        super().__init__()
        self.layer_name, self.language_model, self.shifts = layer_name, language_model, shifts
        self.head = head
        self.terms: LossTerms | None = None
        self.progress: float | None = None
        self._lent_total_steps = False
        self._eval_mode = EvalModeWarning()
        self.index_name: str | None = None
        self.row_losses: RowLosses | None = None
        self.parts_missing = False
        self.tokenizer: Any = None
        self.__dict__["model"] = model  # not as a submodule: it contains this one
        self._call: Call | None = None
        self._copies_logits: bool | None = None  # whether the model copies its logits; None before it was seen
        parameters = inspect.signature(type(model).forward).parameters
        self._arguments: Sequence[str] = list(parameters)[1:]
        takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
        self._model_takes_num_items: bool = getattr(model, "accepts_loss_kwargs", takes_any)
        layer = model.get_submodule(layer_name)
        assert isinstance(layer, nn.Linear)
        del head.predictor
        self._predict_with(layer)
        model.register_forward_pre_hook(self._before_model, with_kwargs=True)
        layer.register_forward_pre_hook(self._before_layer)
        layer.register_forward_hook(self._after_layer)
        model.register_forward_hook(self._after_model, always_call=True)
        head.register_load_state_dict_pre_hook(self._notice_missing_parts)

    def __deepcopy__(self, memo: dict[int, Any]) -> Attachment:
        """A copy of the layer alone, as PEFT makes one to train, stays with this attachment by its hooks."""
        if id(self.__dict__["model"]) not in memo:
            return self
        copied = type(self).__new__(type(self))
        memo[id(self)] = copied
        copied.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return copied

    def named_modules(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, nn.Module]]:
        """Keep the head trainable where PEFT has frozen every parameter that it does not know.

        Optimisers ask a model for its parameters, and so ask here, after PEFT has wrapped the model.
        """
        if hasattr(self.__dict__["model"], "peft_config"):
            for _, module in super().named_modules():
                for parameter in module._parameters.values():
                    if parameter is not None:
                        parameter.requires_grad = True
        return super().named_modules(*args, **kwargs)

    def follow_layer(self) -> None:
        """Use the layer that the model calls now as predictor: PEFT may have replaced it by a copy."""
        for layer in linear_layers(self.__dict__["model"]).values():
            if any(getattr(hook, "__self__", None) is self for hook in layer._forward_pre_hooks.values()):
                self._predict_with(layer)

    def begin_update(self, step: int, total_steps: int) -> None:
        """Set the progress of the training for the calls of one update.

        It is step / total_steps; for a head made with total_steps=, step divided by the head's number.
        """
        if self.head.clock.has_schedule and self.head.total_steps is None:
            self.head.total_steps, self._lent_total_steps = total_steps, True
        self.progress = min(1.0, step / (self.head.total_steps or total_steps))

    def end_update(self) -> None:
        """Undo `begin_update`."""
        self.progress = None
        if self._lent_total_steps:
            self.head.total_steps, self._lent_total_steps = None, False

    def _predict_with(self, layer: nn.Linear) -> None:
        # registered in its own place alone
        self.head.__dict__["predictor"] = predictor_of(self.__dict__["model"], layer)

    def _before_model(
        self, model: PreTrainedModel, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        self._call, kwargs = None, dict(kwargs)
        options = {name: kwargs.pop(name) for name in CALL_OPTIONS if name in kwargs}
        index = None if self.index_name is None else kwargs.pop(self.index_name, None)
        if model.training:
            named = dict(zip(self._arguments, args, strict=False))
            args, kwargs = args[len(named) :], named | kwargs
            if kwargs.get("labels") is not None:
                self._call = self._begin(model, kwargs, options)
                self._call.index = index
        if not self._model_takes_num_items:
            kwargs.pop("num_items_in_batch", None)
        return args, kwargs

    def _begin(self, model: PreTrainedModel, kwargs: dict[str, Any], options: dict[str, Any]) -> Call:
        """Take the labels and all that belongs to them out of the model's arguments."""
        if self.parts_missing:
            raise ValueError(
                "the model was loaded from a checkpoint without the head's training parts: resume with "
                "LabelEmbeddingCallback in the Trainer, or call load_training_parts(model, folder)"
            )
        labels, shifted = kwargs.pop("labels"), kwargs.pop("shift_labels", None)
        targets: Tensor = labels if shifted is None else shifted
        check_kind(targets, self.head.num_labels)
        in_update = kwargs.pop("num_items_in_batch", None)
        entries = entries_counted(model, targets, shifted is not None)
        count = None if in_update is None else LabelCount(in_update, entries)
        if self.shifts and shifted is None:
            targets = next_labels(targets)
            options = options | {"sample_weight": next_weights(options.get("sample_weight"))}
        options = {"progress": self.progress} | options
        if self.language_model and model.config.is_encoder_decoder:
            kwargs |= decoder_inputs(model, kwargs, labels)
        if "use_cache" in self._arguments:
            kwargs.setdefault("use_cache", False)
        as_tuple = not (model.config.return_dict if kwargs.get("return_dict") is None else kwargs["return_dict"])
        if as_tuple:
            kwargs["return_dict"] = True
        return Call(targets, options, as_tuple, count)

    def _before_layer(self, layer: nn.Linear, args: tuple[Any, ...]) -> tuple[Tensor] | None:
        if self._call is None:
            return None
        if self._call.hidden is not None:
            raise ValueError(f"the model calls its layer {self.layer_name!r} twice for one answer: no head fits there")
        if len(layer.weight) != self.head.num_labels:
            raise ValueError(_REPLACED.format(self.layer_name))
        if self.head.predictor.weight is not layer.weight:
            self._predict_with(layer)
        self._call.hidden = args[0]
        return (args[0].new_empty(0, layer.in_features),)

    def _after_layer(self, layer: nn.Linear, args: tuple[Any, ...], logits: Tensor) -> Tensor | None:
        call = self._call
        if call is None:
            return None
        assert call.hidden is not None
        rows = call.hidden.shape[:-1]
        if not self._picks_positions(call):
            call.output = self._train(call, call.hidden)
        device = torch.device("meta") if self._copies_logits else call.hidden.device
        if isinstance(self.head.predictor, BiasedLayer):
            self.head.predictor.hide_bias(device)
        if self._copies_logits:
            return call.hidden.new_empty(*rows, layer.out_features, device=device)
        positions = torch.arange(1, rows[-1] + 1, dtype=torch.float32, device=call.hidden.device)
        call.placeholder = positions.unsqueeze(-1).expand(*rows, layer.out_features)
        call.times_changed = times_changed(call.placeholder)
        return call.placeholder

    def _after_model(self, model: PreTrainedModel, args: tuple[Any, ...], output: Any) -> Any:
        call, self._call = self._call, None
        if isinstance(self.head.predictor, BiasedLayer):
            self.head.predictor.restore_bias()
        if output is None:  # an error inside the model, which is on its way
            return None
        if call is None:
            if not model.training:
                self._eval_mode.watch(output)
            return None
        if not isinstance(output, ModelOutput) or output.get("logits") is None:
            raise ValueError(f"{type(model).__name__} gives no logits by name, so no head can be attached to it")
        if call.hidden is None:
            raise ValueError(_REPLACED.format(self.layer_name))
        given: Tensor = output["logits"]
        if call.placeholder is not None and (
            times_changed(call.placeholder) != call.times_changed
            or given.requires_grad  # a parameter was added, perhaps one that is zero still
        ):
            raise ValueError(_CHANGED.format(type(model).__name__, self.layer_name))
        if call.output is None and call.placeholder is not None and given.shape != call.placeholder.shape:
            call.output = self._train(call, picked_rows(call.hidden, given, self.layer_name))
        elif self._copies_logits is None:
            assert call.placeholder is not None
            if given is not call.placeholder and not torch.equal(given, call.placeholder):
                raise ValueError(_CHANGED.format(type(model).__name__, self.layer_name))
            if torch.is_grad_enabled():  # else nothing would tell of a parameter that is zero
                self._copies_logits = given is not call.placeholder
        if call.output is None:  # sequences of one position, of which the model has picked none
            call.output = self._train(call, call.hidden)
        loss = call.output.loss + other_losses(model, output)
        output = type(output)(**{**output, "loss": loss, "logits": call.output.logits})
        return output.to_tuple() if call.as_tuple else output

    def _picks_positions(self, call: Call) -> bool:
        """Whether there is one label a sequence where the layer reads every position: the model will pick one.

        Sequences of one position have one label in either case: there the model's answer tells, unless that of an
        earlier call has.
        """
        assert call.hidden is not None
        rows, targets = call.hidden.shape[:-1], call.targets
        labels = (targets.shape[:-1] if targets.is_floating_point() else targets.shape).numel()
        one_a_sequence = not self.language_model and len(rows) == 2 and labels == rows[0]
        if one_a_sequence and labels != rows.numel():
            return True
        if labels != rows.numel():
            raise ValueError(
                f"the labels have shape {tuple(targets.shape)}, but layer {self.layer_name!r} reads rows of shape "
                f"{tuple(rows)}: there must be one label a row"
            )
        return one_a_sequence and self._copies_logits is None

    def _train(self, call: Call, hidden: Tensor) -> HeadOutput:
        """The head's output for `hidden`, with the labels in the shape of its rows."""
        distributions = call.targets.shape[-1:] if call.targets.is_floating_point() else ()
        targets = call.targets.reshape(*hidden.shape[:-1], *distributions).to(hidden.device)
        options = call.options
        if call.count is not None and options.get("num_items") is None:
            weights = options.get("sample_weight")
            options = options | {"num_items": divisor(self.head, hidden, targets, weights, call.count)}
        active, self._call = self._call, None  # the head may call the layer itself, as its predictor
        output: HeadOutput = self.head(hidden, targets, **options)
        if call.index is not None:
            self.row_losses = row_losses(self.head, hidden, output.logits, targets, call.index)
        self._call = active
        # copies: compiled graphs cannot keep views of what they return
        self.terms = LossTerms(*(term.detach().clone() for term in output.terms))
        return output

    def _notice_missing_parts(self, head: nn.Module, state_dict: dict[str, Any], prefix: str, *unused: object) -> None:
        """A plain checkpoint brings the predictor alone, and what was learned beside other weights does not fit it."""
        self.parts_missing = not any(key.startswith(prefix) for key in state_dict)


_CHANGED = (
    "{} changes its logits behind layer {!r} (scales or caps them, or adds others): the head would train other logits "
    "than the model gives, so it cannot be attached"
)
_REPLACED = (
    "the model's layer {!r} was replaced or resized after the head was attached (by resize_token_embeddings, say): "
    "attach last"
)


def attachment_of(model: nn.Module) -> Attachment:
    """The attachment of a model that `attach_to_pretrained` was called on."""
    found = getattr(model, "label_embedding", None)
    if not isinstance(found, Attachment):
        raise ValueError(f"no head is attached to this {type(model).__name__}: call attach_to_pretrained first")
    return found
