"""`attach` replaces a model's last linear layer by a head without changes to the model's code.

`predictor_only` undoes it: it gives a copy of the model, or a state dict, that needs nothing of this package.
"""

from __future__ import annotations

import copy
import inspect
import sys
from collections.abc import Mapping
from typing import Any, TypeVar, overload

import torch
from torch import Tensor, nn

from labelemb.heads.base import Head, HeadOutput
from labelemb.heads.label_embedding import LabelEmbeddingHead
from labelemb.support.tensors import times_changed, without_changes
from labelemb.support.wording import closest

Model = TypeVar("Model", bound=nn.Module)

CALL_ARGUMENTS = ("targets", "sample_weight", "num_items", "progress", "reduction")
"""What an attached model's call takes for its head, by keyword."""

HEAD_ARGUMENTS = (*CALL_ARGUMENTS, "observed_hidden")
"""All keywords of a head's own call."""


def attach(model: Model, layer: str | None = None, head: Head | None = None, **options: Any) -> Model:
    """Replace a linear layer of `model` by a head, in place; `model(x, targets=y)` then returns a `HeadOutput`.

    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> model = attach(model, "2")
    >>> model(torch.randn(5, 4)).shape
    torch.Size([5, 3])
    >>> model(torch.randn(5, 4), targets=torch.tensor([0, 1, 2, 0, 1])).loss.backward()

    Without targets the model returns what it returned before. `targets` is keyword-only, so positional arguments stay
    the model's own. `sample_weight=`, `num_items=`, `progress=` and `reduction=` of the head's call can be passed too.

    The output of the layer must be the output of the model. A model that changes it (scales it, adds another layer's
    output, puts it into a tuple) is refused at the first call with targets. So is a call after the layer was replaced.
    In a compiled model torch itself refuses a change in place, in calls with gradients.

    A state dict of the model from before `attach` still loads: the layer's weights go to the predictor, the observer
    starts as a copy of it, and the embedding does not change. `predictor_only` is the inverse.

    Arguments:
        model: any module. Make its optimiser after `attach`, so that it has the head's parameters.
        layer: the layer's name as in `model.named_modules()`: "fc", "classifier.2". If it has several names, any of
            them.
        head: the head to use, with its own weights (`PlainHead.from_linear(model.fc)` has those of the layer). It is
            moved to the layer's device and keeps its precision. None: `LabelEmbeddingHead.from_linear(layer,
            **options)`.
        options: options of the default head (embedding=, objective=, ...).
    """
    if _is_from_transformers(model):
        raise TypeError(
            f"{type(model).__name__} is a Hugging Face model, which takes labels of its own: use "
            f"labelemb.integrations.transformers.attach_to_pretrained(model)"
        )
    if not isinstance(layer, str | None):
        raise TypeError(f"layer is {layer!r}, but must be a name as in model.named_modules(), a str")
    taken = [name for name in CALL_ARGUMENTS if name in inspect.signature(model.forward).parameters]
    if taken:
        raise ValueError(
            f"{type(model).__name__}.forward has the argument {taken[0]!r} itself, which `attach` takes for the head"
        )
    for earlier in _attachments(model):
        if earlier.is_in_place(model):
            raise ValueError(f"layer {earlier.layer!r} is a head already, and a model has one")
        earlier.remove()
    old = _find_linear(model, layer)
    assert layer is not None
    head = head_for_layer(layer, old, head, options).train(old.training)
    for place in [name for name, module in _named_modules(model).items() if module is old]:  # it may have several
        parent, _, name = place.rpartition(".")
        setattr(model.get_submodule(parent), name, head)
    _Attachment(model, layer, head)
    return model


def head_for_layer(name: str, layer: nn.Linear, head: Head | None, options: dict[str, Any]) -> Head:
    """The given head if its sizes fit the layer, else a new one with `options`; on the layer's device."""
    if head is None:
        return LabelEmbeddingHead.from_linear(layer, **options)
    if options:
        raise ValueError(f"options {sorted(options)} go to a new head, but head= was given")
    if (head.in_features, head.num_labels) != (layer.in_features, layer.out_features):
        sizes = f"{head.in_features} -> {head.num_labels}"
        raise ValueError(f"the head is {sizes}, but layer {name!r} {layer.in_features} -> {layer.out_features}")
    return head.to(layer.weight.device)


@overload
def predictor_only(model: nn.Module, *, fold_temperature: bool = ...) -> nn.Module: ...
@overload
def predictor_only(model: Mapping[str, Tensor], *, fold_temperature: bool = ...) -> dict[str, Tensor]: ...
def predictor_only(
    model: nn.Module | Mapping[str, Tensor], *, fold_temperature: bool = False
) -> nn.Module | dict[str, Tensor]:
    """A copy of a model in which every head is its predicting `nn.Linear`, for `torch.export`, serving and sharing.

    >>> plain = predictor_only(attach(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)), "2"))
    >>> plain
    Sequential(
      (0): Linear(in_features=4, out_features=8, bias=True)
      (1): ReLU()
      (2): Linear(in_features=8, out_features=3, bias=True)
    )

    The copy gives the same outputs. Observer, embedding and counts are not copied; the model itself keeps them. Weights
    that the model shares with its predictor stay shared in the copy.

    From a state dict it makes a state dict: `plain.load_state_dict(predictor_only(attached.state_dict()))`.

    Arguments:
        model: a model that `attach` was used on, one that calls heads of its own without targets, or the state dict of
            either.
        fold_temperature: divide the logits by the temperature found by `calibrate`. The layer then no longer shares
            weights.
    """
    if not isinstance(model, nn.Module):
        return _predictor_state(model, fold_temperature)
    copied: dict[int, Any] = {}
    for name, module in model.named_modules():
        if not isinstance(module, Head):
            continue
        if "predictor" not in module._modules:
            raise ValueError(
                f"{name!r} is the head of a Hugging Face model, which keeps its own layer: save_pretrained writes the "
                "model without the head's parts"
            )
        # deepcopy takes the entry of an object it meets again, so the heads themselves are not copied
        copied[id(module)] = (
            module.export_predictor(fold_temperature=True)
            if fold_temperature
            else copy.deepcopy(module.predictor, copied)
        )
    plain: nn.Module = copy.deepcopy(model, copied)
    for module in plain.modules():
        for attachment in _attachments(module):
            attachment.remove()
    return plain


def _predictor_state(state: Mapping[str, Tensor], fold_temperature: bool) -> dict[str, Tensor]:
    """A state dict in which every head has the two entries of its predictor, under the names of a linear layer."""
    marks = ("predictor.weight", "temperature")
    prefixes = [key.removesuffix(marks[0]) for key in state if key.endswith(marks[0])]
    heads = [prefix for prefix in prefixes if prefix + marks[1] in state]
    plain: dict[str, Tensor] = {}
    for key, value in state.items():
        prefix = next((prefix for prefix in heads if key.startswith(prefix)), None)
        if prefix is None:
            plain[key] = value
        elif key.startswith(f"{prefix}predictor."):
            temperature = state[f"{prefix}temperature"]
            plain[prefix + key.removeprefix(f"{prefix}predictor.")] = value / temperature if fold_temperature else value
    return plain


class _Attachment:
    """Connects the call of a model with that of its head, by hooks. Copied with the model, so that copies stay apart.

    Attributes:
        layer: the head's name inside the model.
        head: the head.
    """

    def __init__(self, model: nn.Module, layer: str, head: Head) -> None:
        self.layer, self.head = layer, head
        self._call: dict[str, Any] | None = None  # arguments for the head in the running call of the model
        self._output: HeadOutput | None = None
        self._handed_on: Tensor | None = None  # what the model got from the head in place of `_output`
        self._times_changed = 0  # in place, when it was handed on
        parameters = inspect.signature(model.forward).parameters
        kinds = [parameter.kind for parameter in parameters.values()]
        by_position = [kind for kind in kinds if kind.name in ("POSITIONAL_ONLY", "POSITIONAL_OR_KEYWORD")]
        self._most_positional = sys.maxsize if inspect.Parameter.VAR_POSITIONAL in kinds else len(by_position)
        takes_any = inspect.Parameter.VAR_KEYWORD in kinds
        self._not_the_models = [name for name in HEAD_ARGUMENTS if not takes_any and name not in parameters]
        self._handles = [
            head.register_load_state_dict_pre_hook(load_plain_layer),
            head.register_forward_pre_hook(self._before_head, with_kwargs=True),
            head.register_forward_hook(self._after_head),
            model.register_forward_pre_hook(self._before_model, with_kwargs=True),
            model.register_forward_hook(self._after_model, always_call=True),
        ]

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()

    def is_in_place(self, model: nn.Module) -> bool:
        """Whether the head is still where it was attached, or inside a wrapper there (FSDP, say)."""
        try:
            found = model.get_submodule(self.layer)
        except AttributeError:
            return False
        return found is self.head or any(module is self.head for module in found.modules())

    def _before_model(
        self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        self._call = self._output = self._handed_on = None
        if not self.is_in_place(model):
            raise ValueError(
                f"layer {self.layer!r} was replaced after `attach` (by reset_classifier, say): call `attach` again for "
                f"the new layer"
            )
        self._check_arguments(model, args, kwargs)
        if "targets" not in kwargs:
            return args, kwargs
        own = {name: value for name, value in kwargs.items() if name not in CALL_ARGUMENTS}
        if kwargs["targets"] is not None:
            self._call = {name: value for name, value in kwargs.items() if name in CALL_ARGUMENTS}
        return args, own

    def _check_arguments(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Refuse arguments that the model would refuse, and say how the head gets them."""
        if len(args) > self._most_positional:
            raise TypeError(
                f"{type(model).__name__} takes {self._most_positional} positional arguments, but {len(args)} were "
                f"given: pass targets by keyword, model(x, targets=y)"
            )
        for name in self._not_the_models:
            if name == "observed_hidden" and name in kwargs:
                raise TypeError(
                    "observed_hidden= is for a head that you call yourself: behind `attach` the observer reads what "
                    "the predictor reads"
                )
            if name in kwargs and "targets" not in kwargs:
                raise TypeError(f"{name}= is an argument of the head's loss: pass targets= beside it")

    def _before_head(
        self, head: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if self._call is None:
            return args, kwargs
        if self._output is not None:
            raise ValueError(f"the model calls layer {self.layer!r} twice for one output, so no head fits there")
        return args, kwargs | self._call

    def _after_head(self, head: Head, args: tuple[Any, ...], output: Any) -> Tensor | None:
        """Keep the head's output and give the model logits, as the layer would."""
        if self._call is None or not isinstance(output, HeadOutput):
            return None
        self._output, self._handed_on = output, output.logits
        if self._handed_on is None:  # the head never had all logits: the right shape, without memory
            hidden: Tensor = args[0]
            self._handed_on = hidden.new_zeros(()).expand(*hidden.shape[:-1], head.num_labels)
        self._handed_on = without_changes(self._handed_on)
        self._times_changed = times_changed(self._handed_on)
        return self._handed_on

    def _after_model(self, model: nn.Module, args: tuple[Any, ...], output: Any) -> HeadOutput | None:
        called, result, handed_on = self._call is not None, self._output, self._handed_on
        self._call = self._output = self._handed_on = None
        if not called or output is None:  # None: the model has raised an error
            return None
        given = None
        if result is None or output is not handed_on:
            given = "another tensor" if isinstance(output, Tensor) else f"a {type(output).__name__}"
        elif handed_on is not None and times_changed(handed_on) != self._times_changed:
            given = "it changed in place"
        if given is not None:
            raise ValueError(
                f"{type(model).__name__} must return the output of layer {self.layer!r} unchanged, but returned "
                f"{given}: the head would train other logits than the model gives (something scales or reshapes them, "
                f"or another layer adds to them)"
            )
        return result


def load_plain_layer(
    head: nn.Module, state_dict: dict[str, Any], prefix: str, local_metadata: dict[str, Any], *unused: object
) -> None:
    """Load the state of the linear layer that a head has replaced, as `LabelEmbeddingHead.from_linear` would.

    The layer becomes the predictor, the observer starts as its copy, the temperature is 1; all else stays as it is.
    """
    if f"{prefix}predictor.weight" in state_dict or f"{prefix}weight" not in state_dict:
        return
    layer = {name: state_dict.pop(prefix + name) for name in ("weight", "bias") if prefix + name in state_dict}
    for key, value in head.state_dict().items():
        part, _, name = key.partition(".")
        if part in ("predictor", "observer"):
            if name in layer:  # torch itself says which entry is missing
                # with assign=True the entries become the parameters, which must not share their memory
                state_dict[prefix + key] = layer[name].clone() if part == "observer" else layer[name]
        else:
            state_dict[prefix + key] = torch.ones_like(value) if key == "temperature" else value


def _attachments(model: nn.Module) -> list[_Attachment]:
    owners = [getattr(hook, "__self__", None) for hook in model._forward_pre_hooks.values()]
    return [owner for owner in owners if isinstance(owner, _Attachment) and not isinstance(model, Head)]


def _named_modules(model: nn.Module) -> dict[str, nn.Module]:
    """All modules by name; one that stands in several places has several."""
    return dict(model.named_modules(remove_duplicate=False))


def _find_linear(model: nn.Module, layer: str | None) -> nn.Linear:
    modules = _named_modules(model)
    if not layer or layer not in modules:
        linear = [name for name, module in modules.items() if isinstance(module, nn.Linear)]
        near = closest(layer or "", linear) or linear[-5:]
        wrong = "name the layer to replace" if layer is None else f"the model has no layer {layer!r}"
        raise ValueError(f"{wrong}; its linear layers: {', '.join(near) or 'none'}")
    found = modules[layer]
    if isinstance(found, Head):
        raise ValueError(f"layer {layer!r} is a head already")
    if not isinstance(found, nn.Linear):
        raise ValueError(f"layer {layer!r} is a {type(found).__name__}, but only an nn.Linear can be replaced")
    return found


def _is_from_transformers(model: nn.Module) -> bool:
    """Whether a model is one of Transformers, or PEFT's wrapper of one; neither library is imported to find out."""
    kinds = type(model).mro()
    return any(
        (kind.__name__ == "PreTrainedModel" and kind.__module__.startswith("transformers."))
        or (kind.__name__ == "PeftModel" and kind.__module__.startswith("peft."))
        for kind in kinds
    )
