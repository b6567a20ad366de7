"""`LabelEmbeddingHead`: predictor, observer and label embedding in one module."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from labelemb.chunked import chunked_terms
from labelemb.distributed import sum_over_processes
from labelemb.embedding import CompressedEmbedding, DenseEmbedding, FixedEmbedding, LabelEmbedding
from labelemb.heads.base import Batch, Head, HeadOutput, apply_linear, count_correct, per_row_output
from labelemb.labelspace import LabelSpace
from labelemb.objective import (
    Objective,
    RowTerms,
    observed_right,
    reduce_rows,
    row_terms,
    soft_row_terms,
    softened,
    widened,
)
from labelemb.running import RunningEmbedding
from labelemb.temperature import agreeing_temperature

if TYPE_CHECKING:
    from typing import Self

Implementation = Literal["auto", "reference", "chunked"]
FEW_LABELS = 1024
"""Up to here soft targets use all rows of the embedding, without looking which labels have mass."""


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
        impl: "reference" is plain autograd; "chunked" computes gradients in the forward pass, in memory that does not grow
            with rows x labels; "auto" takes the faster.
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
        """Find the one temperature at which the predictor agrees with the observer, on hidden states of training inputs.

        Soft targets make the predictor underconfident by construction, and the observer is nearly calibrated: no
        labels are needed. The temperature is stored with the head; `probabilities` uses it.
        """
        if self.observer is None:
            raise ValueError("a head with a fixed embedding has no observer to agree with: use fit_temperature")
        observer = self.observer
        self.temperature.fill_(
            agreeing_temperature(hidden_batches, self.logits, lambda hidden: apply_linear(observer, hidden))
        )
        return float(self.temperature)

    def _training_output(self, batch: Batch) -> HeadOutput:
        soft_active, progress = self._schedule(batch)
        if self._uses_chunks(batch):
            output = chunked_terms(self, batch, bool(soft_active), progress)
            right = output.right
        else:
            output, right = self._reference(batch, soft_active, progress)
        if self.training:
            self._count(batch, right)
        return HeadOutput(output.loss, output.terms, output.logits, output.correct, output.observed)

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
            "a mass floor rises with the training: pass progress= in [0, 1] in the call, or total_steps= to the constructor"
        )

    def _reference(self, batch: Batch, soft_active: bool | Tensor, progress: float | None) -> tuple[HeadOutput, Tensor]:
        """Plain autograd over (rows, labels) tensors; also gives which rows (or pairs) were observed right."""
        z1 = self.logits(batch.hidden)
        z2 = self._observe(batch, z1)
        labels, weights, count = self._target_labels(batch)
        e = self.embedding.rows(labels) if self.embedding.learned else None
        terms_of = row_terms if batch.labels is not None else soft_row_terms
        rows: RowTerms = terms_of(
            z1,
            z2 if self.observer is not None else None,
            e,
            labels,
            weights,
            self.objective,
            q=self._soft_target(labels, e),
            teacher=z2,
            soft_active=soft_active,
            progress=progress,
        )
        if batch.reduction == "none":
            loss = rows.supervision + rows.observer + self.objective.cap_weight * rows.cap + rows.embedding
            loss, terms = per_row_output(rows, loss, batch)
        else:
            loss, terms = reduce_rows(rows, batch.total, self.objective)
        right = self._right_pairs(batch, z2, labels) & count
        if self.training and isinstance(self.embedding, RunningEmbedding) and z2 is not None:
            self._update_table(self.embedding, batch, z2.detach(), labels, weights, right)
        observed = None if self.observer is None else right.reshape(len(batch.valid), -1).any(-1).sum()
        return HeadOutput(loss, terms, batch.rowwise(z1), count_correct(z1, batch), observed), right

    def _observe(self, batch: Batch, z1: Tensor) -> Tensor | None:
        """The logits that the embedding learns from."""
        if self.observer is None:
            return None
        hidden = batch.hidden.detach() if batch.observed_hidden is None else batch.observed_hidden
        return apply_linear(self.observer, hidden)

    def _soft_target(self, labels: Tensor, e: Tensor | None) -> Tensor | None:
        """The soft target of each label, None for softmax(e)."""
        return self.embedding.probabilities(labels) if e is None else None

    def _target_labels(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Labels, weights and valid places: all (rows,), or for soft targets (k,), (rows, k) and (rows, k)."""
        if batch.labels is not None:
            return batch.labels, batch.weights, batch.valid
        pairs = batch.soft_targets
        assert pairs is not None
        labels = torch.arange(self.num_labels, device=pairs.device)
        if self.num_labels > FEW_LABELS:
            labels = labels[(pairs > 0).any(0)]
            pairs = pairs[:, labels]
        return labels, pairs, pairs > 0

    @staticmethod
    def _right_pairs(batch: Batch, z2: Tensor | None, labels: Tensor) -> Tensor:
        if z2 is None:
            return torch.zeros((), dtype=torch.bool, device=labels.device)
        if batch.labels is None:
            return observed_right(z2.detach(), labels.expand(len(z2), -1))
        return observed_right(z2.detach(), labels.unsqueeze(-1)).squeeze(-1)

    def _update_table(
        self, table: RunningEmbedding, batch: Batch, z2: Tensor, labels: Tensor, weights: Tensor, right: Tensor
    ) -> None:
        seen = softened(widened(z2), self.objective.tau)  # (rows, m)
        gate = right if self.objective.correct_only else seen.sum(-1) > 0
        if batch.labels is None:
            weights = weights * (right if self.objective.correct_only else gate.unsqueeze(-1))
            sums, masses = weights.T @ seen, weights.sum(0)
        elif table.top_k is None:
            weights = weights * gate
            masses = torch.zeros_like(table.mass).index_add_(0, labels, weights.to(table.mass.dtype))
            sums = torch.zeros_like(table.table).index_add_(0, labels, (weights.unsqueeze(-1) * seen).to(masses.dtype))
            labels = torch.arange(self.num_labels, device=labels.device)
        else:
            weights = weights * gate
            labels, place = labels.unique(return_inverse=True)
            masses = weights.new_zeros(len(labels)).index_add_(0, place, weights)
            sums = seen.new_zeros(len(labels), self.num_labels).index_add_(0, place, weights.unsqueeze(-1) * seen)
        table.begin(batch.valid.sum())
        table.observe(labels, sums, masses)
        table.finish()

    @torch.no_grad()
    def _count(self, batch: Batch, right: Tensor) -> None:
        """Count the training call, and the right observations of each label."""
        if self.updates is not None and batch.step is None:
            self.updates.add_(1)
        if self.observer is None:
            return
        if batch.labels is not None:
            new = torch.zeros_like(self.counts).scatter_add_(0, batch.labels, right.long())
        else:
            labels, _, _ = self._target_labels(batch)
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
