"""`attach`: put a head in the place of a model's last linear layer, without touching the model's code."""

from __future__ import annotations

import difflib
import inspect
from functools import partial
from typing import Any, TypeVar

from torch import Tensor, nn

from labelemb.heads.base import Head, HeadOutput
from labelemb.heads.label_embedding import LabelEmbeddingHead

Model = TypeVar("Model", bound=nn.Module)

CALL_OPTIONS = ("sample_weight", "num_items", "step", "progress", "reduction")


def attach(model: Model, layer: str, head: Head | None = None, **options: Any) -> Model:
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
        head: a head to use; by default `LabelEmbeddingHead.from_linear` of the layer with `options` (rank=, ...).

    `targets` is given by keyword where the model's own forward would take another positional argument. The head's call
    options (sample_weight, num_items, step, progress, reduction) may be given beside it.
    """
    modules = dict(model.named_modules())
    if not layer or layer not in modules:
        linear = [name for name, module in modules.items() if isinstance(module, nn.Linear)]
        near = difflib.get_close_matches(layer, linear, 3) or linear[-5:]
        raise ValueError(f"the model has no layer {layer!r}; its linear layers: {', '.join(near) or 'none'}")
    old = modules[layer]
    if isinstance(old, Head):
        raise ValueError(f"layer {layer!r} is a head already")
    if not isinstance(old, nn.Linear):
        raise ValueError(f"layer {layer!r} is a {type(old).__name__}, but only an nn.Linear can be replaced")
    if head is None:
        head = LabelEmbeddingHead.from_linear(old, **options)
    elif options:
        raise ValueError(f"options {sorted(options)} go to a new head, but head= was given")
    elif (head.in_features, head.num_labels) != (old.in_features, old.out_features):
        sizes = f"{head.in_features} -> {head.num_labels}"
        raise ValueError(f"the head is {sizes}, but layer {layer!r} {old.in_features} -> {old.out_features}")
    parent, _, name = layer.rpartition(".")
    setattr(model.get_submodule(parent), name, head)
    slot = _Slot()
    head.register_forward_pre_hook(partial(_give_targets, slot), with_kwargs=True)
    head.register_forward_hook(partial(_take_output, slot))
    model.register_forward_pre_hook(partial(_strip_targets, slot), with_kwargs=True)
    model.register_forward_hook(partial(_return_output, slot), always_call=True)
    return model


class _Slot:
    """What passes between a model's call and its head's. Copied with the model, so that copies stay apart."""

    def __init__(self) -> None:
        self.call: dict[str, Any] | None = None
        self.output: HeadOutput | None = None


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
    if targets is not None:
        slot.call = {"targets": targets} | {name: kwargs.pop(name) for name in CALL_OPTIONS if name in kwargs}
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
