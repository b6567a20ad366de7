"""`attach_to_pretrained`: finds a model's last layer, checks that a head fits, and attaches it."""

from __future__ import annotations

import inspect
from typing import Any, TypeVar

from torch import nn
from transformers import PreTrainedModel
from transformers.loss.loss_utils import LOSS_MAPPING, ForCausalLMLoss

from labelemb.heads import Head
from labelemb.heads.attach import head_for_layer
from labelemb.heads.defaults import DEFAULT
from labelemb.integrations.transformers.adapters import base_of, is_adapted, linear_layers, trained_copy
from labelemb.integrations.transformers.attachment import Attachment, attachment_of
from labelemb.integrations.transformers.targets import IGNORED
from labelemb.integrations.transformers.training_parts import save_with_parts
from labelemb.support.wording import closest

Model = TypeVar("Model", bound=nn.Module)


def attach_to_pretrained(
    model: Model, layer: str | None = None, head: Head | None = None, *, shift: bool | None = None, **options: Any
) -> Model:
    """Train a Hugging Face model's last linear layer by label embedding, in place.

    >>> model = attach_to_pretrained(model)  # a classifier: bert.classifier, gpt2.score, roberta.classifier.out_proj
    >>> model = attach_to_pretrained(model, embedding="compressed", rank=100)  # a language or seq2seq model: lm_head
    >>> model.train()  # `from_pretrained` gives models in eval mode
    >>> model(**inputs, labels=labels).loss.backward()

    In training mode a call with `labels` returns the head's loss. In all other calls (evaluation, `generate`, no
    labels) the model works as before. `model.label_embedding.head` is the head, `model.label_embedding.terms` are the
    five terms of the latest training call. Attach after resizing embeddings and before making an optimiser.

    Arguments:
        model: a model with a last linear layer after its body and `labels` among its arguments, or a `PeftModel` of
            one.
        layer: the layer's name inside the model. None: it is found.
        head: a head to use; the layer becomes its predictor. None: a `LabelEmbeddingHead` with `options`.
        shift: whether row t of a sequence predicts label t + 1. None: as in the model's own loss.
        options: options of the default head (embedding=, rank=, objective=, ...).
    """
    base = base_of(model)
    if not isinstance(base, PreTrainedModel):
        raise TypeError(
            f"the model is a {type(base).__name__}, but must be a PreTrainedModel; labelemb.attach takes any module"
        )
    if hasattr(base, "label_embedding"):
        raise ValueError("a head is attached to this model already")
    if "labels" not in inspect.signature(type(base).forward).parameters:
        raise ValueError(f"{type(base).__name__} takes no labels: a model with a classifier or lm_head is needed")
    name, linear = _find_layer(base, layer)
    language_model = linear is trained_copy(base.get_output_embeddings())
    _check_labels(base, name, linear, language_model)
    head = head_for_layer(name, linear, head, options)
    if head.ignore_index != IGNORED:
        raise ValueError(
            f"the head's ignore_index is {head.ignore_index}, but Transformers leaves out labels {IGNORED}"
        )
    shifts = _shifts_labels(base, language_model) if shift is None else shift
    attachment = Attachment(base, name, head, language_model=language_model, shifts=shifts)
    base.label_embedding = attachment.train(base.training)
    base.__dict__["accepts_loss_kwargs"] = True  # the Trainer then tells how many labels an update has
    if shifts and base.loss_type is None:
        base.loss_type = "ForCausalLM"  # what it falls back to; known to the Trainer, its count of labels is right
    parts = [f"label_embedding.{key}" for key in attachment.state_dict()]
    base._keys_to_ignore_on_save = [*(base._keys_to_ignore_on_save or ()), *parts]
    for saved in {id(module): module for module in (base, model)}.values():
        save_with_parts(saved)
    return model


def parameter_groups(
    model: nn.Module, lr: float, embedding_lr: float | None = DEFAULT.embedding_lr, weight_decay: float = 0.0
) -> list[dict[str, Any]]:
    """Parameter groups for an optimiser of an attached model: a learned embedding has its own learning rate.

    >>> optimizer = torch.optim.AdamW(parameter_groups(model, lr=5e-5, weight_decay=0.01))
    >>> Trainer(..., optimizers=(optimizer, None))

    Arguments:
        model: a model that `attach_to_pretrained` was called on.
        lr: learning rate of all parameters but a learned embedding.
        embedding_lr: learning rate of a learned embedding (0.05). None: `lr`.
        weight_decay: weight decay of the head's layers and of the model's matrices. A learned embedding and the model's
            vectors (biases, norms) have none.
    """
    attachment = attachment_of(model)
    inside = {id(parameter) for parameter in attachment.parameters()}
    body = [parameter for parameter in model.parameters() if id(parameter) not in inside and parameter.requires_grad]
    groups = [
        {"params": [parameter for parameter in body if parameter.ndim > 1], "lr": lr, "weight_decay": weight_decay},
        {"params": [parameter for parameter in body if parameter.ndim < 2], "lr": lr, "weight_decay": 0.0},
        *attachment.head.parameter_groups(lr, embedding_lr, weight_decay),
    ]
    return [group for group in groups if group["params"]]


def _find_layer(model: PreTrainedModel, name: str | None) -> tuple[str, nn.Linear]:
    """The layer of this name; without one the output embeddings, or the last linear layer behind the model's body."""
    modules, linear = dict(model.named_modules()), linear_layers(model)
    body = f"{model.base_model_prefix}."
    behind = [name for name in linear if not name.startswith(body)]
    if name is None:
        output = trained_copy(model.get_output_embeddings())
        outputs = [name for name, module in linear.items() if module is output]
        adapted = [name for name, module in modules.items() if is_adapted(module) and not name.startswith(body)]
        if not outputs and not behind and not adapted:
            raise ValueError(f"{type(model).__name__} has no linear layer behind its body to attach a head to")
        name = (outputs or adapted or behind)[-1]
    for other, layer in linear.items():
        if layer is trained_copy(modules.get(name)):
            return other, layer
    if is_adapted(modules.get(name)):
        raise ValueError(
            f"layer {name!r} is adapted by PEFT, but a head trains a whole layer: name it in modules_to_save of the "
            f"PEFT configuration, not in target_modules"
        )
    inside = [other for other in linear if other.startswith(f"{name}.")]
    near = closest(name, list(linear))
    candidates = ", ".join(inside[-5:] or near or behind[-5:] or list(linear)[-5:]) or "none"
    if name not in modules:
        raise ValueError(f"the model has no layer {name!r}; its linear layers: {candidates}")
    kind = type(modules[name]).__name__
    raise ValueError(f"layer {name!r} is a {kind}, but must be an nn.Linear; linear layers: {candidates}")


def _check_labels(model: PreTrainedModel, name: str, layer: nn.Linear, language_model: bool) -> None:
    """Refuse a layer that does not give one answer out of the configuration's labels."""
    config = model.config
    if language_model:
        known, key = config.get_text_config(decoder=True).vocab_size, "vocab_size"
    else:
        known, key = config.num_labels, "num_labels"
        if known == 1 or config.problem_type in ("regression", "multi_label_classification"):
            problem = config.problem_type or "regression"
            raise ValueError(
                f"the model is configured for {problem} with {known} labels, but label embedding needs one true label "
                f"of two or more: problem_type='single_label_classification'"
            )
    if layer.out_features != known:
        raise ValueError(
            f"layer {name!r} gives {layer.out_features} labels, but the model's configuration has {key}={known}"
        )


def _shifts_labels(model: PreTrainedModel, language_model: bool) -> bool:
    """Whether the model's own loss compares row t with label t + 1.

    Most models leave that to `loss_function`; those with a loss of their own keep the shifted labels in a variable.
    """
    if not language_model or model.config.is_encoder_decoder:
        return False
    code = inspect.unwrap(type(model).forward).__code__
    if "loss_function" in code.co_names:
        return LOSS_MAPPING.get(model.loss_type or "ForCausalLM") is ForCausalLMLoss
    return "shift_labels" in code.co_varnames
