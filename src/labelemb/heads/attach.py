"""`attach`: put a head in the place of a model's last linear layer, without touching the model's code.

`predictor_only` is the way back, to a model that needs nothing of this package.
"""

from __future__ import annotations

import copy
import difflib
import inspect
from functools import partial
from typing import Any, TypeVar

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from labelemb.heads.base import Head, HeadOutput
from labelemb.heads.label_embedding import LabelEmbeddingHead

Model = TypeVar("Model", bound=nn.Module)

CALL_OPTIONS = ("sample_weight", "num_items", "step", "progress", "reduction")


def attach(model: Model, layer: str | None = None, head: Head | None = None, **options: Any) -> Model:
    """Replace `model`'s linear layer by a head, in place: then `model(x, targets)` gives a `HeadOutput`.

    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> model = attach(model, "2")
    >>> model(torch.randn(5, 4)).shape
    torch.Size([5, 3])
    >>> model(torch.randn(5, 4), torch.tensor([0, 1, 2, 0, 1])).loss.backward()

    Without targets the model gives what it gave before.

    Arguments:
        model: any module; it stays what it is, and its parameters are found by every optimiser and trainer.
        layer: the layer's name inside the model, as in `model.named_modules()`: "fc", "classifier.2".
        head: a head to use, which is moved to the layer's device and keeps its precision; by default
            `LabelEmbeddingHead.from_linear` of the layer with `options` (rank=, ...).

    `targets` is given by keyword where the model's own forward would take another positional argument. The head's call
    options (sample_weight, num_items, step, progress, reduction) may be given beside it.

    A Hugging Face model takes `labels` of its own, and finds its last layer by itself: it is handed to
    `labelemb.integrations.transformers.attach_to_pretrained`, which says how it is called.
    """
    if _is_pretrained(model):
        from labelemb.integrations.transformers import attach_to_pretrained

        return attach_to_pretrained(model, layer, head, **options)  # type: ignore[type-var]  # it is a PreTrainedModel
    modules = dict(model.named_modules())
    if not layer or layer not in modules:
        linear = [name for name, module in modules.items() if isinstance(module, nn.Linear)]
        near = difflib.get_close_matches(layer or "", linear, 3) or linear[-5:]
        wrong = "name the layer to replace" if layer is None else f"the model has no layer {layer!r}"
        raise ValueError(f"{wrong}; its linear layers: {', '.join(near) or 'none'}")
    old = modules[layer]
    if isinstance(old, Head):
        raise ValueError(f"layer {layer!r} is a head already")
    if not isinstance(old, nn.Linear):
        raise ValueError(f"layer {layer!r} is a {type(old).__name__}, but only an nn.Linear can be replaced")
    head = head_for_layer(layer, old, head, options)
    parent, _, name = layer.rpartition(".")
    setattr(model.get_submodule(parent), name, head)
    slot = _Slot()
    slot.handles = [
        head.register_forward_pre_hook(partial(_give_targets, slot), with_kwargs=True),
        head.register_forward_hook(partial(_take_output, slot)),
        model.register_forward_pre_hook(partial(_strip_targets, slot), with_kwargs=True),
        model.register_forward_hook(partial(_return_output, slot), always_call=True),
    ]
    return model


def head_for_layer(name: str, layer: nn.Linear, head: Head | None, options: dict[str, Any]) -> Head:
    """The head to put in a layer's place, on the layer's device: the given one if it fits, else a new one."""
    if head is None:
        return LabelEmbeddingHead.from_linear(layer, **options)
    if options:
        raise ValueError(f"options {sorted(options)} go to a new head, but head= was given")
    if (head.in_features, head.num_labels) != (layer.in_features, layer.out_features):
        sizes = f"{head.in_features} -> {head.num_labels}"
        raise ValueError(f"the head is {sizes}, but layer {name!r} {layer.in_features} -> {layer.out_features}")
    return head.to(layer.weight.device)


def predictor_only(model: nn.Module, *, fold_temperature: bool = False) -> nn.Module:
    """A copy of a model in which every head is its predicting `nn.Linear`, for `torch.export`, serving and sharing.

    >>> plain = predictor_only(attach(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)), "2"))
    >>> plain
    Sequential(
      (0): Linear(in_features=4, out_features=8, bias=True)
      (1): ReLU()
      (2): Linear(in_features=8, out_features=3, bias=True)
    )

    The answers are the same. Observer, embedding and counts are not copied; the model itself keeps them. Weights that
    the model shares with its predictor stay shared in the copy.

    Arguments:
        model: a model that `attach` was used on, or one with heads of its own that it calls without targets.
        fold_temperature: divide the logits by the temperature found by `calibrate`. The layer then has weights of its
            own.
    """
    copied: dict[int, Any] = {}
    for name, module in model.named_modules():
        if not isinstance(module, Head):
            continue
        if "predictor" not in module._modules:
            raise ValueError(
                f"{name!r} is the head of a Hugging Face model, which keeps its own layer: save_pretrained writes the "
                "model without the head's parts"
            )
        # copies know what stands for an object that they meet again, so a head is not copied at all
        copied[id(module)] = (
            module.export_predictor(fold_temperature=True)
            if fold_temperature
            else copy.deepcopy(module.predictor, copied)
        )
    plain: nn.Module = copy.deepcopy(model, copied)
    for module in model.modules():
        for hook in module._forward_hooks.values():
            if isinstance(hook, partial) and hook.func is _return_output:
                for handle in copied[id(hook.args[0])].handles:
                    handle.remove()
    return plain


def _is_pretrained(model: nn.Module) -> bool:
    """Whether a model comes from Transformers, which is not imported to find out."""
    return any(
        kind.__name__ == "PreTrainedModel" and kind.__module__.startswith("transformers.") for kind in type(model).mro()
    )


class _Slot:
    """What passes between a model's call and its head's. Copied with the model, so that copies stay apart."""

    def __init__(self) -> None:
        self.call: dict[str, Any] | None = None
        self.output: HeadOutput | None = None
        self.handles: list[RemovableHandle] = []


def _strip_targets(
    slot: _Slot, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    kwargs = dict(kwargs)
    slot.call, slot.output = None, None
    if "targets" in kwargs:
        targets = kwargs.pop("targets")
    elif len(args) > 1 and not _accepts(model, args, kwargs):
        *kept, targets = args
        args = tuple(kept)
    else:
        return args, kwargs
    options = {name: kwargs.pop(name) for name in CALL_OPTIONS if name in kwargs}
    if targets is not None:
        slot.call = {"targets": targets} | options
    return args, kwargs


def _accepts(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    own = {name: value for name, value in kwargs.items() if name not in CALL_OPTIONS}
    try:
        inspect.signature(model.forward).bind(*args, **own)
    except TypeError:
        return False
    return True


def _give_targets(
    slot: _Slot, head: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return args, kwargs if slot.call is None else kwargs | slot.call


def _take_output(slot: _Slot, head: Head, args: tuple[Any, ...], output: Any) -> Tensor | None:
    """Keep the head's output and hand logits on to whatever the model does behind its last layer."""
    if slot.call is None or not isinstance(output, HeadOutput):
        return None
    slot.output = output
    if output.logits is not None:
        return output.logits
    hidden: Tensor = args[0]
    return hidden.new_zeros(()).expand(*hidden.shape[:-1], head.num_labels)  # right in shape, without memory


def _return_output(slot: _Slot, model: nn.Module, args: tuple[Any, ...], output: Any) -> HeadOutput | None:
    given, slot.call, slot.output = slot.output, None, None
    return given
