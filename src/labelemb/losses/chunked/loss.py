"""The chunked objective as one autograd function that computes its gradients in the forward pass."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from labelemb.embeddings.base import RowGradients
from labelemb.losses.batch import Batch
from labelemb.losses.chunked.labels import LabelAxis
from labelemb.losses.chunked.layer import LayerPass, Workspace
from labelemb.losses.chunked.observer import ObserverPass, ObserverSums
from labelemb.losses.chunked.predictor import PredictorPass, PredictorSums, nothing_predicted
from labelemb.losses.chunked.rows import rows_in_chunk
from labelemb.losses.objective import Objective
from labelemb.losses.parts import Parts, without_autocast
from labelemb.losses.result import LossResult, LossTerms
from labelemb.losses.terms import training_terms
from labelemb.support.tensors import can_look_at, precision_to_keep


@dataclass(frozen=True)
class ChunkOptions:
    """How a batch is cut."""

    chunk_rows: int | None = None
    """Rows of logits at once; None for as many as are fast."""
    predicts: bool = True
    """False leaves out the hard and the soft term, for a caller that has them by other means."""

    def rows(self, axis: LabelAxis, batch: Batch) -> int:
        return self.chunk_rows or rows_in_chunk(max(1, axis.widest), can_look_at(batch.valid))


@dataclass
class Tensors:
    """One tensor for each input of the objective: the inputs themselves, or their gradients."""

    hidden: Tensor | None = None
    predictor_weight: Tensor | None = None
    predictor_bias: Tensor | None = None
    observer_weight: Tensor | None = None
    observer_bias: Tensor | None = None
    embedding: dict[str, Tensor | None] = field(default_factory=dict)

    @classmethod
    def of(cls, parts: Parts, batch: Batch) -> Tensors:
        observer = parts.observer
        return cls(
            batch.hidden,
            parts.predictor.weight,
            parts.predictor.bias,
            None if observer is None else observer.weight,
            None if observer is None else observer.bias,
            {} if parts.embedding is None else dict(parts.embedding.trained_tensors()),
        )

    def in_order(self) -> list[Tensor | None]:
        """For autograd, which knows inputs by their position alone."""
        layers = [self.predictor_weight, self.predictor_bias, self.observer_weight, self.observer_bias]
        return [self.hidden, *layers, *self.embedding.values()]


def chunked_loss(parts: Parts, batch: Batch, options: ChunkOptions, axis: LabelAxis | None = None) -> LossResult:
    """The objective of a batch with integer labels. Its terms carry no gradient."""
    work = ChunkedPass(parts, batch, options, axis or LabelAxis(len(parts.predictor.weight)))
    inputs = Tensors.of(parts, batch)
    if not options.predicts:
        inputs = replace(inputs, hidden=None, predictor_weight=None, predictor_bias=None)
    loss: Tensor = _ChunkedLoss.apply(work, *inputs.in_order())
    return work.result._replace(loss=loss)


class ChunkedPass:
    """One pass over a batch: `run` gives the result and all gradients."""

    result: LossResult

    def __init__(self, parts: Parts, batch: Batch, options: ChunkOptions, axis: LabelAxis) -> None:
        self.parts, self.batch, self.axis = parts, batch, axis
        self.chunk_rows, self.predicts = options.rows(axis, batch), options.predicts
        self.wants_gradients = torch.is_grad_enabled()
        self.predictor = LayerPass(parts.predictor, self.wants_gradients)
        self.observer = None if parts.observer is None else LayerPass(parts.observer, self.wants_gradients)

    def run(self) -> Tensors:
        parts, batch = self.parts, self.batch
        like = batch.hidden.new_empty(0, dtype=self.predictor.dtype)
        shared = parts.objective, self.axis, self.chunk_rows
        workspace = Workspace(min(self.chunk_rows, len(batch.hidden)), self.axis.width, like)
        wants_hidden = self.predicts and self.wants_gradients and batch.hidden.requires_grad
        on_hidden = torch.zeros_like(batch.hidden, dtype=self.predictor.dtype) if wants_hidden else None
        predicted = nothing_predicted(batch.divisor)
        if self.predicts:
            predicted = PredictorPass(self.predictor, parts.embedding, *shared, workspace).run(batch, on_hidden)
        observed, on_embedding = None, self._embedding_gradients()
        if self.observer is not None and parts.embedding is not None:
            observed = ObserverPass(self.observer, parts.embedding, *shared, workspace).run(batch, on_embedding)
        if on_hidden is not None:
            on_hidden = self.axis.total(on_hidden)
        self.result = _result(parts.objective, batch.divisor, predicted, observed)
        self._divide_embedding_gradients(on_embedding, observed)
        return self._gradients(on_hidden, on_embedding)

    def _embedding_gradients(self) -> RowGradients:
        trained = Tensors.of(self.parts, self.batch).embedding
        wanted = {name: p for name, p in trained.items() if p is not None and p.requires_grad}
        dtype, divisor = self.predictor.dtype, self.batch.divisor
        buffers = {name: torch.zeros_like(p, dtype=dtype) for name, p in wanted.items()} if self.wants_gradients else {}
        all_rows = self.parts.objective.embedding_reduction == "all"
        return RowGradients(buffers, 1 / divisor if all_rows else torch.ones_like(divisor))

    def _divide_embedding_gradients(self, found: RowGradients, observed: ObserverSums | None) -> None:
        if observed is not None and self.parts.objective.embedding_reduction == "correct":
            for gradient in found.buffers.values():
                gradient.div_(observed.right_weight.clamp_min(1))

    def _gradients(self, on_hidden: Tensor | None, on_embedding: RowGradients) -> Tensors:
        inputs, observer = Tensors.of(self.parts, self.batch), self.observer
        predicts = self.predicts
        return Tensors(
            _like(on_hidden, inputs.hidden) if predicts else None,
            _like(self.predictor.weight_gradient, inputs.predictor_weight) if predicts else None,
            _like(self.predictor.bias_gradient, inputs.predictor_bias) if predicts else None,
            None if observer is None else _like(observer.weight_gradient, inputs.observer_weight),
            None if observer is None else _like(observer.bias_gradient, inputs.observer_bias),
            {name: _like(on_embedding.buffers.get(name), value) for name, value in inputs.embedding.items()},
        )


def _like(gradient: Tensor | None, value: Tensor | None) -> Tensor | None:
    """In the precision to keep until it is scaled; zeros where no chunk has added to it."""
    if value is None or not value.requires_grad:
        return None
    return torch.zeros_like(value) if gradient is None else gradient.to(precision_to_keep(value.dtype))


def _result(objective: Objective, total: Tensor, predicted: PredictorSums, observed: ObserverSums | None) -> LossResult:
    zero = torch.zeros_like(predicted.hard)
    hard, soft, mixed = predicted.hard / total, predicted.soft / total, predicted.mixed / total
    if observed is None:
        return LossResult(mixed, LossTerms(hard, soft, zero, zero, zero), None, predicted.correct)
    cap_total = total if objective.cap_reduction == "mean" else torch.ones_like(total)
    all_rows = objective.embedding_reduction == "all"
    embedding = observed.embedding / (total if all_rows else observed.right_weight.clamp_min(1))
    terms = LossTerms(hard, soft, observed.observer / total, observed.cap / cap_total, embedding)
    loss = mixed + training_terms(terms, objective)
    return LossResult(loss, terms, None, predicted.correct, observed.correct, observed.rows, observed.right)


class _ChunkedLoss(torch.autograd.Function):
    """The loss of a pass and its inputs, whose gradients the pass has found."""

    @staticmethod
    def forward(ctx: Any, work: ChunkedPass, *inputs: Tensor | None) -> Tensor:
        device = work.batch.hidden.device.type
        with without_autocast(device):  # its precision is used for the large products alone
            ctx.gradients = work.run()
        ctx.dtypes = [None if value is None else value.dtype for value in inputs]
        return work.result.loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_loss: Tensor) -> tuple[Tensor | None, ...]:
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is None:
            raise RuntimeError("gradients of the chunked head are used up: call it again, or take impl='autograd'")
        found = gradients.in_order()
        if not can_look_at(grad_loss) or grad_loss.item() != 1:
            found = [None if g is None else g.mul_(grad_loss.to(g.dtype)) for g in found]
        return None, *(None if g is None else g.to(dtype) for g, dtype in zip(found, ctx.dtypes, strict=True))
