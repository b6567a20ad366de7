"""`LabelEmbeddingHead`: predictor, observer and label embedding in one module."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from labelemb.embeddings.base import LabelEmbedding
from labelemb.embeddings.compressed import CompressedEmbedding
from labelemb.embeddings.dense import DenseEmbedding
from labelemb.embeddings.fixed import FixedEmbedding
from labelemb.embeddings.running import RunningEmbedding
from labelemb.heads.base import Head, HeadOutput, TrainingTerms, apply_linear
from labelemb.heads.calibration import agreeing_temperature
from labelemb.labelspace import LabelSpace
from labelemb.losses.autograd import reference_terms, target_labels
from labelemb.losses.batch import Batch
from labelemb.losses.chunked.fused import fused_terms
from labelemb.losses.objective import Objective
from labelemb.support.tensors import sum_over_processes

if TYPE_CHECKING:
    from typing import Self

Implementation = Literal["auto", "reference", "chunked"]


class LabelEmbeddingHead(Head):
    """Replaces the last linear layer and the cross entropy: learns how labels resemble each other, and teaches it.

    >>> head = LabelEmbeddingHead(512, 100)
    >>> out = head(torch.randn(8, 512), torch.randint(100, (8,)))
    >>> out.loss.backward()
    >>> logits = head(torch.randn(8, 512))  # predicting costs one linear layer

    Arguments:
        in_features: size of the hidden state.
        num_labels: number of labels.
        rank: learn a compressed embedding of this rank; None for a dense one.
        bias: whether predictor and observer have a bias.
        objective: the weights and choices of the loss.
        embedding: an embedding module to use, or a learned `LabelSpace` to reuse, fixed.
        weight: a weight per label, as in `nn.CrossEntropyLoss`.
        ignore_index: the target that leaves a row out.
        impl: "reference" is plain autograd; "chunked" computes gradients in the forward pass, in memory that does not
            grow with rows x labels; "auto" takes the faster.
        total_steps: optimiser updates of the whole training, for a mass floor where the call does not pass progress=.
        rows_per_epoch: for the `RunningEmbedding` that a mass floor brings; see there.
    """

    def __init__(
        self,
        in_features: int,
        num_labels: int,
        *,
        rank: int | None = None,
        bias: bool = True,
        objective: Objective = Objective(),  # noqa: B008  frozen
        embedding: LabelEmbedding | LabelSpace | None = None,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        impl: Implementation = "auto",
        total_steps: int | None = None,
        rows_per_epoch: int | None = None,
    ) -> None:
        super().__init__(in_features, num_labels, bias=bias, weight=weight, ignore_index=ignore_index)
        if impl not in ("auto", "reference", "chunked"):
            raise ValueError(f'impl is {impl!r}, but must be "auto", "reference" or "chunked"')
        if total_steps is not None and total_steps < 1:
            raise ValueError(f"total_steps is {total_steps}, but must be 1 or more")
        self.objective, self.impl, self.total_steps = objective, impl, total_steps
        self.chunk_rows: int | None = None
        self.embedding = _make_embedding(num_labels, rank, objective, embedding, rows_per_epoch)
        self.observer = nn.Linear(in_features, num_labels, bias=bias) if self.embedding.needs_observer else None
        self.counts: Tensor
        self.register_buffer("counts", torch.zeros(num_labels, dtype=torch.long))
        self.updates: Tensor | None
        counts_updates = objective.soft_after > 0 or total_steps is not None
        self.register_buffer("updates", torch.zeros((), dtype=torch.long) if counts_updates else None)

    @classmethod
    def from_linear(cls, layer: nn.Linear, **options: Any) -> Self:
        """A head around an existing last layer: it becomes the predictor, and the observer starts as its copy."""
        if not isinstance(layer, nn.Linear):
            raise TypeError(f"the layer is a {type(layer).__name__}, but must be an nn.Linear")
        head = cls(layer.in_features, layer.out_features, bias=layer.bias is not None, **options)
        head.to(layer.weight.device)
        head.predictor = layer
        if head.observer is not None:
            head.observer.to(layer.weight.dtype)
            head.observer.load_state_dict(layer.state_dict())
        return head

    def parameter_groups(
        self, lr: float, embedding_lr: float | None = None, weight_decay: float = 0.0
    ) -> list[dict[str, Any]]:
        """Groups for an optimiser: the layers at `lr`, a learned embedding at its own rate and without decay."""
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
        """What was learned about the labels, detached from training."""
        return self.embedding.to_space(names, self.counts, self.objective.to_dict())

    def calibrate(self, hidden_batches: Iterable[Tensor]) -> float:
        """Find the one temperature at which the predictor agrees with the observer on hidden states of training inputs.

        Soft targets make the predictor underconfident by construction, and the observer is nearly calibrated: no
        labels are needed. The temperature is stored with the head; `probabilities` uses it.
        """
        if self.observer is None:
            kind = f"a {type(self).__name__}" if self.embedding.needs_observer else "a head with a fixed embedding"
            raise ValueError(f"{kind} has no observer to agree with: use fit_temperature")
        observer = self.observer
        self.temperature.fill_(
            agreeing_temperature(hidden_batches, self.logits, lambda hidden: apply_linear(observer, hidden))
        )
        return float(self.temperature)

    def extra_repr(self) -> str:
        """The sizes, and what differs from the defaults."""
        shown = [super().extra_repr()]
        if self.objective != Objective():
            shown.append(f"objective={self.objective!r}")
        if self.impl != "auto":
            shown.append(f"impl={self.impl!r}")
        if self.total_steps is not None:
            shown.append(f"total_steps={self.total_steps}")
        return ", ".join(shown)

    def _training_output(self, batch: Batch) -> HeadOutput:
        soft_active, progress = self._schedule(batch)
        loss, terms, logits, correct, observed, right = self._terms(batch, soft_active, progress)
        if self.training:
            self._count(batch, right)
        return HeadOutput(loss, terms, logits, correct, observed)

    def _terms(self, batch: Batch, soft_active: bool | Tensor, progress: float | None) -> TrainingTerms:
        terms_of = fused_terms if self._uses_chunks(batch) else reference_terms
        return terms_of(self, batch, soft_active, progress)

    def _uses_chunks(self, batch: Batch) -> bool:
        if self.impl == "reference":
            return False
        if batch.reduction == "none":
            if self.impl == "chunked":
                raise ValueError('reduction="none" needs impl="reference" or "auto": chunks only add rows up')
            return False
        return batch.labels is not None and not torch.compiler.is_compiling()

    def _schedule(self, batch: Batch) -> tuple[bool | Tensor, float | None]:
        """Whether the soft term has started, and how far the training is."""
        objective = self.objective
        step: int | Tensor | None = self.updates if batch.step is None else batch.step
        soft_active: bool | Tensor = True
        if objective.soft_after > 0 and self.embedding.needs_observer:
            assert step is not None
            soft_active = step >= objective.soft_after
        if objective.mass_floor == 0:
            return soft_active, None
        if batch.progress is not None:
            return soft_active, batch.progress
        if self.total_steps is not None:
            assert step is not None
            return soft_active, min(1.0, float(step) / self.total_steps)
        if not self.training:
            return soft_active, 1.0
        raise ValueError(
            "a mass floor rises with the training: pass progress= in [0, 1] in the call, or total_steps= to the head"
        )

    def observe(self, batch: Batch, z1: Tensor) -> Tensor | None:
        """The logits that the embedding learns from: the observer's, of a hidden state behind a stop-gradient."""
        if self.observer is None:
            return None
        hidden = batch.hidden.detach() if batch.observed_hidden is None else batch.observed_hidden
        return apply_linear(self.observer, hidden)

    def soft_target(self, labels: Tensor, e: Tensor | None) -> Tensor | None:
        """The soft target of each label, (k, num_labels); None for softmax(e)."""
        return self.embedding.probabilities(labels) if e is None else None

    def _count(self, batch: Batch, right: Tensor) -> None:
        """Count the training call, and the right observations of each label."""
        if self.updates is not None and batch.step is None:
            self.updates.add_(1)
        if self.embedding.needs_observer:
            self._count_right(batch, right)

    def _count_right(self, batch: Batch, right: Tensor) -> None:
        if batch.labels is not None:
            new = torch.zeros_like(self.counts).scatter_add_(0, batch.labels, right.to(self.counts.dtype))
        else:
            labels = target_labels(batch).labels
            new = torch.zeros_like(self.counts).index_add_(0, labels, right.sum(0))
        self.counts.add_(sum_over_processes(new))


def _make_embedding(
    num_labels: int,
    rank: int | None,
    objective: Objective,
    embedding: LabelEmbedding | LabelSpace | None,
    rows_per_epoch: int | None,
) -> LabelEmbedding:
    if embedding is None:
        if rank is not None:
            return CompressedEmbedding(num_labels, rank)
        if objective.mass_floor > 0:
            return RunningEmbedding(num_labels, rows_per_epoch)
        return DenseEmbedding(num_labels)
    if rank is not None:
        raise ValueError(f"rank={rank} and embedding= were both given: choose one")
    if isinstance(embedding, LabelSpace):
        embedding = FixedEmbedding(embedding)
    if not isinstance(embedding, LabelEmbedding):
        raise TypeError(f"embedding is a {type(embedding).__name__}, but must be a label embedding or a LabelSpace")
    if embedding.num_labels != num_labels:
        raise ValueError(f"the embedding has {embedding.num_labels} labels, but the head {num_labels}")
    return embedding
