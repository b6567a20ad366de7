"""Loss and gradients in one forward pass: autograd's view of it, and the choice between the two ways to do it.

`OnePiece` takes a batch whose logits are small all at once, with as few operations as possible. `Sweep` (chunked) takes
any batch in memory that does not grow with rows x labels. Both are objects with run(inputs), which fills loss, terms,
counts and the gradient of every input.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from labelemb.heads.base import TrainingTerms
from labelemb.losses.batch import Batch
from labelemb.losses.chunked.one_piece import OnePiece
from labelemb.losses.chunked.sweep import Sweep

if TYPE_CHECKING:
    from labelemb.heads.label_embedding import LabelEmbeddingHead

FEW_VALUES = 1 << 20
"""Up to this many logits a batch is taken in one piece, and its logits are given to the caller."""


def fused_terms(
    head: LabelEmbeddingHead, batch: Batch, soft_active: bool | Tensor, progress: float | None
) -> TrainingTerms:
    """What the reference gives for integer labels, except that `terms` carry no gradient."""
    few = head.chunk_rows is None and len(batch.hidden) * head.num_labels <= FEW_VALUES
    work = (OnePiece if few else Sweep)(head, batch, bool(soft_active), progress)
    return run_fused(work, batch, parameters_of(head))


def parameters_of(head: LabelEmbeddingHead) -> list[Tensor | None]:
    """Predictor weight and bias, observer weight and bias, and the embedding's parameters."""
    observer = head.observer
    observing = [None, None] if observer is None else [observer.weight, observer.bias]
    return [head.predictor.weight, head.predictor.bias, *observing, *head.embedding.parameters()]


def run_fused(work: OnePiece | Sweep, batch: Batch, parameters: list[Tensor | None]) -> TrainingTerms:
    """Loss and gradients of the hidden states and the parameters (see `parameters_of`)."""
    loss, logits = FusedLoss.apply(work, batch.hidden, *parameters)
    return TrainingTerms(
        loss,
        work.terms,
        None if logits is None else batch.rowwise(logits),
        work.correct,
        None if parameters[2] is None else work.right.sum(),
        work.right,
    )


class FusedLoss(torch.autograd.Function):
    """(loss, logits or None) of (work, hidden, predictor weight and bias, observer weight and bias, embedding...)."""

    @staticmethod
    def forward(
        ctx: Any, work: OnePiece | Sweep, hidden: Tensor, *parameters: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        if torch.is_autocast_enabled(hidden.device.type):
            with torch.autocast(hidden.device.type, enabled=False):  # its type is used for the large products alone
                work.run([hidden, *parameters])
        else:
            work.run([hidden, *parameters])
        ctx.gradients = work.gradients
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*((hidden, parameters[0]) if work.logits is not None else ()))
        return work.loss, work.logits

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_loss: Tensor | None, grad_logits: Tensor | None) -> tuple[Tensor | None, ...]:
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is None:
            raise RuntimeError("gradients of the fused head are used up: call it again, or take impl='reference'")
        if grad_loss is None:
            gradients = [None if g is None else g.zero_() for g in gradients]
        elif grad_loss.device.type != "cpu" or grad_loss.item() != 1:
            gradients = [None if g is None else g.mul_(grad_loss.to(g.dtype)) for g in gradients]
        if grad_logits is not None:
            _add_logit_gradients(gradients, grad_logits, *ctx.saved_tensors)
        return None, *gradients


def _add_logit_gradients(gradients: list[Tensor | None], grad_logits: Tensor, hidden: Tensor, weight: Tensor) -> None:
    """What a caller does with the logits beside the loss has gradients of its own."""
    grad_logits = grad_logits.to(weight.dtype)
    extra = [grad_logits @ weight, grad_logits.T @ hidden.to(weight.dtype), grad_logits.sum(0)]
    for gradient, more in zip(gradients, extra, strict=False):
        if gradient is not None:
            gradient.add_(more)
