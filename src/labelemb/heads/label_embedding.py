"""`LabelEmbeddingHead`: predictor, observer and label embedding in one module."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn

from labelemb.embeddings.base import LabelEmbedding
from labelemb.embeddings.make import EmbeddingName, is_fixed, make_embedding
from labelemb.heads.base import Head, HeadOutput, computed, copy_layer
from labelemb.heads.clock import Clock
from labelemb.heads.defaults import DEFAULT
from labelemb.heads.implementation import Implementation, ImplementationChoice
from labelemb.labelspace import LabelSpace
from labelemb.losses.autograd import autograd_loss
from labelemb.losses.batch import Batch
from labelemb.losses.chunked import chunked_loss
from labelemb.losses.closed_form import closed_form_loss, has_closed_form
from labelemb.losses.kernel import PredictorKernel, kernel_loss
from labelemb.losses.objective import Objective, checked_objective
from labelemb.losses.parts import Parts, apply_linear
from labelemb.losses.result import LossResult, RightLabels
from labelemb.losses.sampling import observe_some
from labelemb.support.tensors import is_transformed, sum_over_processes


class LabelEmbeddingHead(Head):
    """A head that learns how similar the labels are, and trains the network with soft targets from that.

    It replaces a network's last linear layer and its cross entropy.

    >>> head = LabelEmbeddingHead(512, 100)
    >>> out = head(torch.randn(8, 512), torch.randint(100, (8,)))
    >>> out.loss.backward()
    >>> logits = head(torch.randn(8, 512))  # predicting costs one linear layer

    Arguments:
        in_features: size of the hidden state.
        num_labels: number of labels.
        embedding: where soft targets come from: "dense" (a learned matrix), "compressed" (a learned matrix of low
            rank), "running" (a running mean, which needs no optimiser), an embedding module, or a learned `LabelSpace`
            to reuse without changes. None: "dense" below 4,096 labels, "running" from there on.
        rank: rank of a "compressed" embedding; required for it.
        rows_per_epoch: number of examples in one epoch (tokens for a sequence model), the time constant of a "running"
            embedding. None: 100 per label.
        prior_rows: number of imaginary rows that give every label the same probability, for a "running" embedding with
            few observations per label; up to 1,000 labels, `num_labels` is a good value. None: 0 with
            embedding="running", 100 if the embedding is chosen by default.
        bias: whether predictor and observer have a bias.
        objective: the weights and options of the loss. None: `Objective()`.
        weight: (num_labels,), a weight per label, as in `nn.CrossEntropyLoss`. None: all labels have weight 1.
        ignore_index: target of rows that are left out.
        impl: "autograd" is plain autograd; "chunked" computes gradients in the forward pass, in memory that does not
            grow with rows x labels; "auto" uses gradients in closed form for up to a million logits, chunks for more,
            and autograd where neither fits (soft targets, say).
        chunk_rows: rows whose logits are in memory at once if the loss is computed in chunks. None: chosen for the
            device.
        observe_rows: the most rows that the observer sees in a call; they are drawn anew in every call. The predictor
            sees every row. None: all rows. "auto": all rows below 4,096 labels, 256 from there on.
        kernel: a function that computes the predictor's cross entropy instead of the chunks: kernel(hidden, weight,
            bias, labels) returns a differentiable loss per row. `out.correct` is then None. It is not used for soft
            targets, losses per row, compiled heads and `torch.func`.
        total_steps: number of optimiser updates of the whole training, for an objective with a mass floor or
            `soft_start`, if calls do not pass progress=. The head then counts its training calls. Without both a mass
            floor is at its end value from the first call on.
    """

    def __init__(
        self,
        in_features: int,
        num_labels: int,
        *,
        embedding: EmbeddingName | LabelEmbedding | LabelSpace | None = None,
        rank: int | None = None,
        rows_per_epoch: int | None = None,
        prior_rows: float | None = None,
        bias: bool = True,
        objective: Objective | None = None,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        impl: Implementation = "auto",
        chunk_rows: int | None = None,
        observe_rows: int | Literal["auto"] | None = "auto",
        kernel: PredictorKernel | None = None,
        total_steps: int | None = None,
    ) -> None:
        objective = DEFAULT.objective if objective is None else checked_objective(objective)
        if embedding is None:
            embedding = DEFAULT.embedding(num_labels)
            if embedding == "running" and prior_rows is None:
                prior_rows = DEFAULT.prior_rows(num_labels)
        ImplementationChoice(impl, chunk_rows)
        if kernel is not None and impl == "autograd":
            raise ValueError('kernel= would be ignored with impl="autograd": pass impl="auto" or "chunked"')
        # labels that are fixed are known from the start: nothing has to wait for them
        soft_start = 0 if is_fixed(embedding) else objective.soft_start
        clock = Clock(objective.mass_floor, soft_start, total_steps)
        # the predictor is drawn first, so that every method of a seed starts with the same one
        super().__init__(in_features, num_labels, bias=bias, weight=weight, ignore_index=ignore_index, clock=clock)
        self.objective, self.impl, self.chunk_rows, self.kernel = objective, impl, chunk_rows, kernel
        self.embedding = make_embedding(
            num_labels, embedding, rank=rank, rows_per_epoch=rows_per_epoch, prior_rows=prior_rows
        )
        self.observer = nn.Linear(in_features, num_labels, bias=bias) if self.embedding.needs_observer else None
        self.counts: Tensor
        self.register_buffer("counts", torch.zeros(num_labels, dtype=torch.long))
        self.observe_rows = self._checked_observe_rows(observe_rows)
        self.draws: Tensor | None
        self.register_buffer("draws", None if self.observe_rows is None else torch.zeros((), dtype=torch.long))

    @classmethod
    def from_linear(cls, layer: nn.Linear, **options: Any) -> Self:
        """Make a head whose predictor is the given layer; the observer starts as a copy of it."""
        head = super().from_linear(layer, **options)
        if head.observer is not None:
            head.observer.to(layer.weight.dtype)
            copy_layer(layer, head.observer)
        return head

    def parameter_groups(
        self, lr: float, embedding_lr: float | None = DEFAULT.embedding_lr, weight_decay: float = 0.0
    ) -> list[dict[str, Any]]:
        """Parameter groups for an optimiser: the layers, and a learned embedding with its own learning rate.

        Arguments:
            lr: learning rate of predictor and observer.
            embedding_lr: learning rate of a learned embedding (0.05). None: `lr`.
            weight_decay: weight decay of predictor and observer; the embedding has none.
        """
        embedding = list(self.embedding.parameters())
        inside = {id(parameter) for parameter in embedding}
        layers = [parameter for parameter in self.parameters() if id(parameter) not in inside]
        groups: list[dict[str, Any]] = [{"params": layers, "lr": lr, "weight_decay": weight_decay}]
        if embedding:
            groups.append(
                {"params": embedding, "lr": lr if embedding_lr is None else embedding_lr, "weight_decay": 0.0}
            )
        return groups

    def label_space(self, names: Sequence[str] | None = None) -> LabelSpace:
        """What was learned about the labels, as a copy that later training does not change.

        Arguments:
            names: one name per label; None for "0", "1", ...
        """
        return self.embedding.to_space(names, self.counts, self.objective.to_dict())

    def parts(self) -> Parts:
        """The layers, the embedding and the objective, for the loss functions."""
        observer = None if self.observer is None else computed(self.observer)
        return Parts(computed(self.predictor), observer, self.embedding, self.objective)

    def _observing(self) -> Callable[[Tensor], Tensor]:
        observer = self.observer
        if observer is None:
            kind = f"a {type(self).__name__}" if self.embedding.needs_observer else "a head with a fixed embedding"
            raise ValueError(f"{kind} has no observer to agree with: pass targets=")
        return lambda hidden: apply_linear(observer, hidden)

    def extra_repr(self) -> str:
        """The sizes and the options that differ from their defaults."""
        shown = [super().extra_repr()]
        if self.objective != DEFAULT.objective:
            shown.append(f"objective={self.objective!r}")
        if self.impl != "auto":
            shown.append(f"impl={self.impl!r}")
        if self.observe_rows is not None:
            shown.append(f"observe_rows={self.observe_rows}")
        if self.total_steps is not None:
            shown.append(f"total_steps={self.total_steps}")
        return ", ".join(shown)

    def _checked_observe_rows(self, observe_rows: int | Literal["auto"] | None) -> int | None:
        if observe_rows == "auto":
            return DEFAULT.observe_rows(self.num_labels) if self.embedding.needs_observer else None
        if observe_rows is not None and observe_rows < 1:
            raise ValueError(f"observe_rows is {observe_rows}, but must be 1 or more, or None for all rows")
        if observe_rows is not None and not self.embedding.needs_observer:
            raise ValueError(f"observe_rows={observe_rows} would be ignored: a fixed embedding has no observer")
        return observe_rows

    def _training_output(self, batch: Batch) -> HeadOutput:
        if self.observe_rows is not None and self.observer is not None:
            assert self.draws is not None
            batch = observe_some(batch, self.observe_rows, self.draws)
        found = self._loss(batch)
        if self.training:
            self._count(found)
        return HeadOutput(
            found.loss, found.terms, found.logits, found.correct, found.observer_correct, found.observer_rows
        )

    def _loss(self, batch: Batch) -> LossResult:
        choice = ImplementationChoice(self.impl, self.chunk_rows)
        traced = torch.compiler.is_compiling() or is_transformed()
        if self.kernel is not None and batch.labels is not None and batch.reduction == "mean" and not traced:
            return kernel_loss(self.parts(), batch, self.kernel, choice.options)
        if choice.uses_chunks(batch, self.num_labels):
            return chunked_loss(self.parts(), batch, choice.options)
        parts = self.parts()
        if self.impl == "auto" and has_closed_form(parts, batch):
            return closed_form_loss(parts, batch)
        return autograd_loss(parts, batch)

    def _count(self, found: LossResult) -> None:
        if found.right is not None:
            self._count_right(found.right)
        if self.draws is not None:
            self.draws.add_(1)

    def _count_right(self, right: RightLabels) -> None:
        """Count the right observations of each label."""
        if sum_over_processes.active():
            new = torch.zeros_like(self.counts).index_add_(0, *right)
            self.counts.add_(sum_over_processes(new))
        else:
            self.counts.index_add_(0, *right)
