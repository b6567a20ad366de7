"""Models that PEFT has wrapped: their Hugging Face model, and the layers that they train. PEFT is not imported here.

PEFT replaces a layer that it trains whole by a `ModulesToSaveWrapper` around the layer and a copy for each adapter, and
a layer that it adapts by one with low-rank layers of its own beside `base_layer`.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from labelemb.support.optional import require_version

OLDEST, NEWEST = (0, 21), (0, 21)


def base_of(model: Any) -> Any:
    """The Hugging Face model inside a `PeftModel`; any other model itself."""
    if not is_wrapped(model):
        return model
    require_version("peft", extra="transformers", oldest=OLDEST, newest=NEWEST)
    return model.get_base_model()


def is_wrapped(model: object) -> bool:
    """Whether a model is a `PeftModel`."""
    return any(kind.__name__ == "PeftModel" and kind.__module__.startswith("peft.") for kind in type(model).mro())


def trained_copy(module: Any) -> Any:
    """The copy that the active adapter trains of a layer in a `ModulesToSaveWrapper`; any other module itself."""
    if type(module).__name__ != "ModulesToSaveWrapper":
        return module
    return module.modules_to_save[module.active_adapters[0]]


def is_adapted(module: object) -> bool:
    """Whether a layer has low-rank layers beside it."""
    return hasattr(module, "base_layer")


def linear_layers(model: nn.Module) -> dict[str, nn.Linear]:
    """The linear layers of a model by name; of wrapped ones the copy in training, of adapted ones nothing."""
    found: dict[str, nn.Linear] = {}
    left_out: set[int] = set()
    for name, module in model.named_modules():
        if id(module) in left_out:
            continue
        if isinstance(module, nn.Linear):
            found[name] = module
        copied = trained_copy(module)
        if copied is not module or is_adapted(module):
            kept = {id(inner) for inner in copied.modules()} if copied is not module else set()
            left_out |= {id(inner) for inner in module.modules()} - kept
    return found
