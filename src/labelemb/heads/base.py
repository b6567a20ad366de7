"""`Head`: the base of all heads, with one call and one way to read targets, weights and ignored rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, Self, overload

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labelemb.heads.calibration import agreeing_temperature, target_temperature, warn_at_limit
from labelemb.heads.clock import Clock, no_updates
from labelemb.heads.defaults import DEFAULT
from labelemb.labelspace import LabelSpace
from labelemb.losses.batch import Batch, CallOptions, LabelRules, checked_weight, read_batch
from labelemb.losses.parts import LinearLayer, apply_linear
from labelemb.losses.result import LossTerms, brief
from labelemb.support.tensors import widened

COUNTERS = ("updates", "draws")
"""Buffers that heads have or have not, as their options are."""


@dataclass
class HeadOutput:
    """The output of a head for a batch with targets."""

    loss: Tensor
    """The loss: a scalar to call backward() on, or one value per row with reduction="none"."""
    terms: LossTerms
    """The five terms of the loss, unweighted; a term that the head does not have is 0."""
    logits: Tensor | None
    """The predictor's logits, (..., labels); None where they were never in memory at once."""
    correct: Tensor | None
    """Number of valid rows that the predictor got right; None with `kernel=`, which gives losses only."""
    observer_correct: Tensor | None = None
    """Number of observed rows that the observer got right; None for heads without an observer."""
    observer_rows: Tensor | None = None
    """Number of valid rows that the observer saw; None for heads without an observer."""

    def __repr__(self) -> str:
        shown = [f"loss={brief(self.loss)}"]
        for name in ("correct", "observer_correct", "observer_rows"):
            count: Tensor | None = getattr(self, name)
            shown += [] if count is None else [f"{name}={int(count)}"]
        return f"HeadOutput({', '.join(shown)}, terms={self.terms!r})"


class ComputedLayer(NamedTuple):
    """A linear layer whose weights were computed from its parameters, for one call."""

    weight: Tensor
    bias: Tensor | None

    def __call__(self, hidden: Tensor, /) -> Tensor:
        return F.linear(hidden, self.weight, self.bias)


def computed(layer: nn.Linear) -> LinearLayer:
    """The layer itself, or with its weights computed once where they are no parameters: normed, parametrized, pruned.

    A loss may read the weights several times, and without calling the layer.
    """
    if "weight" in layer._parameters and "bias" in layer._parameters:
        return layer
    if layer._forward_pre_hooks:  # of `weight_norm` and pruning: a call of the layer computes its weights
        layer(layer.weight.new_empty(0, layer.in_features))
    return ComputedLayer(layer.weight, layer.bias)


@torch.no_grad()
def copy_layer(layer: nn.Linear, target: nn.Linear) -> None:
    """Copy the weights that a layer computes with."""
    source = computed(layer)
    target.weight.copy_(source.weight)
    if source.bias is not None:
        target.bias.copy_(source.bias)


def _fit_counters(head: nn.Module, state: dict[str, Any], prefix: str, *_: object) -> None:
    """Let weights of a head with another schedule, or other `observe_rows`, be loaded: its counters are no weights."""
    if not any(key.startswith(prefix) for key in state):  # nothing of the head is to be loaded
        return
    for name in COUNTERS:
        counter = getattr(head, name, None)
        if counter is None:
            state.pop(prefix + name, None)
        else:
            state.setdefault(prefix + name, torch.zeros_like(counter))


class Head(nn.Module):
    """Base class of all heads: a linear layer that predicts labels, and a loss for training.

    `head(hidden)` returns logits and is the same as `head.predictor(hidden)`. `head(hidden, targets)` returns a
    `HeadOutput`. All heads take the same keywords, so one training loop works for all methods; a head ignores keywords
    that it does not need.

    Arguments:
        in_features: size of the hidden state, 1 or more.
        num_labels: number of labels, 2 or more.
        bias: whether the predictor has a bias.
        weight: (num_labels,), a weight per label, as in `nn.CrossEntropyLoss`. None: all labels have weight 1.
        ignore_index: target of rows that are left out.
        clock: the schedule of the loss; subclasses pass it.
    """

    def __init__(
        self,
        in_features: int,
        num_labels: int,
        *,
        bias: bool = True,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        clock: Clock = Clock(),  # noqa: B008  frozen
    ) -> None:
        super().__init__()
        if in_features < 1 or num_labels < 2:
            raise ValueError(
                f"in_features is {in_features} and num_labels {num_labels}, but 1 feature and 2 labels are the least"
            )
        self.in_features, self.num_labels, self.ignore_index = in_features, num_labels, ignore_index
        self.predictor = nn.Linear(in_features, num_labels, bias=bias)
        self.weight: Tensor | None
        self.register_buffer("weight", None if weight is None else checked_weight(weight, num_labels))
        self.temperature: Tensor
        self.register_buffer("temperature", torch.ones(()))
        self.clock = clock
        self.updates: Tensor | None
        self.register_buffer("updates", no_updates(clock))
        self.register_load_state_dict_pre_hook(_fit_counters)

    @classmethod
    def from_linear(cls, layer: nn.Linear, **options: Any) -> Self:
        """Make a head whose predictor is the given layer; `options` are those of the constructor."""
        if not isinstance(layer, nn.Linear):
            raise TypeError(f"the layer is a {type(layer).__name__}, but must be an nn.Linear")
        head = cls(layer.in_features, layer.out_features, bias=layer.bias is not None, **options)
        head.to(layer.weight.device)
        head.predictor = layer
        return head.train(layer.training)

    @property
    def total_steps(self) -> int | None:
        """Number of optimiser updates of the whole training; None if calls pass progress= or if it is not needed.

        It can be set before the first call, for trainers that do not know it earlier. A head without a schedule raises
        a ValueError.
        """
        return self.clock.total_steps

    @total_steps.setter
    def total_steps(self, value: int | None) -> None:
        self.clock = replace(self.clock, total_steps=value)

    @overload
    def forward(self, hidden: Tensor, targets: None = None) -> Tensor: ...

    @overload
    def forward(
        self,
        hidden: Tensor,
        targets: Tensor,
        *,
        sample_weight: Tensor | None = None,
        num_items: int | float | Tensor | None = None,
        progress: float | None = None,
        observed_hidden: Tensor | None = None,
        reduction: Literal["mean", "none"] = "mean",
    ) -> HeadOutput: ...

    def forward(
        self,
        hidden: Tensor,
        targets: Tensor | None = None,
        *,
        sample_weight: Tensor | None = None,
        num_items: int | float | Tensor | None = None,
        progress: float | None = None,
        observed_hidden: Tensor | None = None,
        reduction: Literal["mean", "none"] = "mean",
    ) -> Tensor | HeadOutput:
        """Compute logits, or with targets the loss as a `HeadOutput`.

        Arguments:
            hidden: (..., in_features), hidden states.
            targets: integer labels (...), where `ignore_index` leaves a row out; or soft targets (..., num_labels)
                whose rows sum to 1, where an all-zero row is left out. None: return logits (..., num_labels).
            sample_weight: (...), a weight per row, 0 or more; multiplies all terms of the row.
            num_items: the divisor of the loss. None: the sum of the row weights of this call. With gradient
                accumulation pass the number of valid rows of the whole update; if processes average their gradients
                (DDP), divide that number by the number of processes.
            progress: how far the training is, from 0 to 1, for heads with a schedule (a mass floor, `soft_start`). Not
                needed with total_steps=.
            observed_hidden: (..., in_features), hidden states that the observer reads. None: `hidden`.
            reduction: "mean" for the sum over rows divided by num_items, or "none" for an undivided loss per row.
        """
        if targets is None:
            return self.logits(hidden)
        moment = self.clock.read(progress, self.updates, self.training)
        options = CallOptions(sample_weight, num_items, observed_hidden, reduction, moment.progress, moment.soft_active)
        output = self._training_output(read_batch(hidden, targets, self._rules(), options))
        if self.training and self.updates is not None:
            self.updates.add_(1)
        return output

    def _rules(self) -> LabelRules:
        dtype = torch.promote_types(self.predictor.weight.dtype, torch.float32)
        return LabelRules(self.in_features, self.num_labels, self.ignore_index, self.weight, dtype)

    def _training_output(self, batch: Batch) -> HeadOutput:
        raise NotImplementedError

    def logits(self, hidden: Tensor) -> Tensor:
        """The predictor's logits (..., num_labels). Hidden states of another float type are converted."""
        return apply_linear(self.predictor, hidden)

    def probabilities(self, hidden: Tensor) -> Tensor:
        """Calibrated probabilities (..., num_labels): softmax(logits / temperature), see `calibrate`."""
        return (widened(self.logits(hidden)) / self.temperature).softmax(-1)

    def calibrate(
        self, hidden_batches: Tensor | Iterable[Tensor], targets: Tensor | Iterable[Tensor] | None = None
    ) -> float:
        """Find the temperature that calibrates `probabilities`, store it in the head, and return it.

        Without `targets` the temperature is the one at which the predictor agrees with the observer, which is trained
        with hard labels only. The likelihood improves, but the probabilities are only as good as the observer's own
        (docs/drop-in.md has numbers). Heads without an observer need targets.

        Arguments:
            hidden_batches: hidden states (..., in_features), one tensor or several.
            targets: integer labels (...) of held-out rows, in as many tensors. The temperature is the one with the
                lowest cross entropy.
        """
        if targets is not None:
            found = target_temperature(hidden_batches, targets, self.logits, self.ignore_index)
        else:
            found = agreeing_temperature(hidden_batches, self.logits, self._observing())
        warn_at_limit(found)
        self.temperature.fill_(found)
        return float(self.temperature)

    def _observing(self) -> Callable[[Tensor], Tensor]:
        """The observer's logits of hidden states."""
        raise ValueError(f"a {type(self).__name__} has no observer to agree with: pass targets=")

    @torch.no_grad()
    def export_predictor(self, *, fold_temperature: bool = False) -> nn.Linear:
        """A copy of the predictor, an `nn.Linear`.

        Arguments:
            fold_temperature: divide the weights by the temperature found by `calibrate`, so that softmax of the
                layer's output is calibrated.
        """
        layer = nn.Linear(self.in_features, self.num_labels, bias=self.predictor.bias is not None)
        layer = layer.to(self.predictor.weight)
        copy_layer(self.predictor, layer)
        if fold_temperature:
            for parameter in layer.parameters():
                parameter.div_(self.temperature)
        return layer

    def parameter_groups(
        self, lr: float, embedding_lr: float | None = DEFAULT.embedding_lr, weight_decay: float = 0.0
    ) -> list[dict[str, Any]]:
        """Parameter groups for an optimiser: the head's layers at `lr`. A learned embedding gets its own group."""
        return [{"params": list(self.parameters()), "lr": lr, "weight_decay": weight_decay}]

    def label_space(self, names: Sequence[str] | None = None) -> LabelSpace | None:
        """What was learned about the labels; None for a head that learns nothing about them.

        Arguments:
            names: one name per label; None for "0", "1", ...
        """
        return None

    def extra_repr(self) -> str:
        sizes = f"in_features={self.in_features}, num_labels={self.num_labels}"
        return sizes if self.ignore_index == -100 else f"{sizes}, ignore_index={self.ignore_index}"
