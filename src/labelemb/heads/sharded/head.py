"""`ShardedLabelEmbeddingHead`: a head whose labels are split over processes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple, Self, overload

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from labelemb.embeddings.compressed import CompressedEmbedding
from labelemb.heads.base import HeadOutput
from labelemb.heads.label_embedding import LabelEmbeddingHead
from labelemb.heads.sharded.axis import LocalLayer, SplitAxis, SplitEmbedding
from labelemb.heads.sharded.initial import initial_rows, normal, seeds, uniform
from labelemb.heads.sharded.shard import LabelShard
from labelemb.labelspace import LabelSpace
from labelemb.losses.batch import Batch, LabelRules, checked_labels, checked_sample_weight, checked_weight
from labelemb.losses.chunked import ChunkOptions, chunked_loss
from labelemb.losses.chunked.rows import rows_in_chunk
from labelemb.losses.objective import Objective
from labelemb.losses.parts import Parts, in_precision_of
from labelemb.losses.result import LossResult, RightLabels
from labelemb.support.arguments import require_tensor
from labelemb.support.tensors import can_look_at, widened

LABEL_AXIS = {"embedding.B": 1}
"""Which dimension of a parameter or buffer is the labels, where it is not the first."""


class TopLabels(NamedTuple):
    """The most probable labels of each row and their log-probabilities, best first; both (..., k)."""

    log_probabilities: Tensor
    labels: Tensor


class ShardedLabelEmbeddingHead(LabelEmbeddingHead):
    """A `LabelEmbeddingHead` with a compressed embedding whose labels are split over processes.

    Every process of the mesh holds ceil(labels / processes) rows of predictor, observer and A and as many columns of B
    (the last processes hold fewer), as DTensors, so optimisers and checkpoints can handle them. All processes call the
    head together with the same rows (`gather_rows` collects the rows of several processes). Loss, terms and counts are
    the same in all processes, and so is the gradient of `hidden`.

    Initial values come from torch's global generator in the first process, and do not depend on the number of
    processes.

    Arguments:
        in_features: size of the hidden state.
        num_labels: number of labels in all processes together.
        mesh: a DeviceMesh of one dimension, over which the labels are split.
        rank: rank of the compressed embedding; there is no dense one.
        bias: whether predictor and observer have a bias.
        embedding_bias: whether the embedding has a bias, as in the authors' text code.
        objective: the weights and options of the loss. None: `Objective()`.
        weight: (num_labels,), a weight per label. None: all labels have weight 1.
        ignore_index: target of rows that are left out.
        chunk_rows: rows whose logits are in memory at once. None: chosen for the device.
        observe_rows: as in `LabelEmbeddingHead`.
        total_steps: as in `LabelEmbeddingHead`.
    """

    shard: LabelShard
    embedding: CompressedEmbedding

    def __init__(
        self,
        in_features: int,
        num_labels: int,
        *,
        mesh: DeviceMesh,
        rank: int,
        bias: bool = True,
        embedding_bias: bool = False,
        objective: Objective | None = None,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        chunk_rows: int | None = None,
        observe_rows: int | Literal["auto"] | None = "auto",
        total_steps: int | None = None,
    ) -> None:
        shard = LabelShard(mesh, num_labels)
        with torch.device("meta"):
            super().__init__(
                in_features,
                num_labels,
                bias=bias,
                objective=objective,
                embedding=CompressedEmbedding(num_labels, rank, bias=embedding_bias),
                ignore_index=ignore_index,
                impl="chunked",
                chunk_rows=chunk_rows,
                observe_rows=observe_rows,
                total_steps=total_steps,
            )
        self.shard = shard
        self._draw_parameters()
        device = mesh.device_type
        self.temperature = torch.ones((), device=device)
        self.updates = None if self.updates is None else torch.zeros((), dtype=torch.long, device=device)
        self.draws = None if self.draws is None else torch.zeros((), dtype=torch.long, device=device)
        self.counts = shard.wrap(torch.zeros(shard.width, dtype=torch.long, device=device))
        if weight is not None:
            self.weight = shard.cut(checked_weight(weight, num_labels))
        self.register_load_state_dict_pre_hook(_cut_whole_tensors)

    @classmethod
    def from_head(cls, head: LabelEmbeddingHead, mesh: DeviceMesh) -> Self:
        """Split a head that every process has; each process copies its part of the parameters and counters."""
        embedding = head.embedding
        if not isinstance(embedding, CompressedEmbedding):
            raise ValueError(
                f"the head has a {type(embedding).__name__}, but only a compressed one can be split: make it with "
                'embedding="compressed"'
            )
        sharded = cls(
            head.in_features,
            head.num_labels,
            mesh=mesh,
            rank=embedding.rank,
            bias=head.predictor.bias is not None,
            embedding_bias=embedding.bias is not None,
            objective=head.objective,
            weight=head.weight,
            ignore_index=head.ignore_index,
            chunk_rows=head.chunk_rows,
            observe_rows=head.observe_rows,
            total_steps=head.total_steps,
        )
        sharded.to(head.predictor.weight.dtype)
        sharded.load_state_dict(head.state_dict())
        return sharded.train(head.training)

    @classmethod
    def from_linear(cls, layer: nn.Linear, **options: Any) -> Self:
        raise ValueError(
            "a layer with all labels is split by way of a head: "
            'from_head(LabelEmbeddingHead.from_linear(layer, embedding="compressed", rank=...), mesh)'
        )

    @torch.no_grad()
    def unsharded(self) -> LabelEmbeddingHead | None:
        """The head with all labels, in the CPU memory of the first process; None in the others. All must call it."""
        state = {
            name: self.shard.on_first(value) if isinstance(value, DTensor) else value
            for name, value in self.state_dict().items()
        }
        if self.shard.rank > 0:
            return None
        with torch.random.fork_rng(devices=[]):  # what it draws is overwritten
            head = LabelEmbeddingHead(
                self.in_features,
                self.num_labels,
                bias=self.predictor.bias is not None,
                objective=self.objective,
                embedding=CompressedEmbedding(self.num_labels, self.embedding.rank, self.embedding.bias is not None),
                weight=state.get("weight"),
                ignore_index=self.ignore_index,
                chunk_rows=self.chunk_rows,
                observe_rows=self.observe_rows,
                total_steps=self.total_steps,
            )
        head.to(self.predictor.weight.dtype).load_state_dict(state)
        return head.train(self.training)

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
        """Compute logits as a DTensor split over the labels, or with integer targets the loss; see `Head.forward`."""
        if targets is None:
            return self.logits(hidden)
        require_tensor("targets", targets)
        if targets.is_floating_point():
            raise ValueError(
                "soft targets are rows of all labels, which no process holds here: pass integer labels; "
                "a mixture of two labels is the mixture of the losses of two calls"
            )
        if reduction == "none":
            raise ValueError(
                'reduction="none" needs all labels of a row, which no process holds here: call unsharded() and use the '
                "head of the first process"
            )
        if self.weight is not None:
            sample_weight = self._folded_weight(targets, sample_weight)
        return super().forward(
            hidden,
            targets,
            sample_weight=sample_weight,
            num_items=num_items,
            progress=progress,
            observed_hidden=observed_hidden,
            reduction=reduction,
        )

    def logits(self, hidden: Tensor) -> DTensor:
        """The predictor's logits (..., labels), split over the labels; `.full_tensor()` collects them."""
        return self.shard.wrap(self._held_logits(hidden), -1)

    @torch.no_grad()
    def log_probabilities(self, hidden: Tensor) -> DTensor:
        """log_softmax(logits / temperature), (..., labels), split over the labels. Without gradients."""
        local = self._held_log_probabilities(hidden.reshape(-1, self.in_features))
        return self.shard.wrap(local.reshape(*hidden.shape[:-1], self.shard.width), -1)

    def probabilities(self, hidden: Tensor) -> DTensor:
        """Calibrated probabilities (..., labels), split over the labels. Without gradients."""
        return _as_dtensor(self.log_probabilities(hidden).exp())

    @torch.no_grad()
    def top_labels(self, hidden: Tensor, k: int = 5) -> TopLabels:
        """The k most probable labels of each row, the same in all processes. Rows are processed in chunks."""
        if not 1 <= k <= self.num_labels:
            raise ValueError(f"k is {k}, but must be in [1, {self.num_labels}]")
        chunks = hidden.reshape(-1, self.in_features).split(
            self.chunk_rows or rows_in_chunk(self.shard.largest, can_look_at(hidden))
        )
        found = [self.shard.best(self._held_log_probabilities(chunk), k) for chunk in chunks]
        values, labels = (torch.cat(parts).reshape(*hidden.shape[:-1], k) for parts in zip(*found, strict=True))
        return TopLabels(values, labels)

    def predict(self, hidden: Tensor) -> Tensor:
        """The most probable label of each row, (...); of equal ones, the first."""
        return self.top_labels(hidden, 1).labels.squeeze(-1)

    @torch.no_grad()
    def label_space(self, names: Sequence[str] | None = None) -> LabelSpace | None:  # type: ignore[override]  # None elsewhere
        """What was learned about the labels, in the first process; None in the others. All must call it.

        The first process needs memory for both factors of all labels, 8 bytes x labels x rank.
        """
        embedding = self.embedding
        A, B, counts = (self.shard.on_first(_as_dtensor(x)) for x in (embedding.A, embedding.B, self.counts))
        bias = None if embedding.bias is None else self.shard.on_first(_as_dtensor(embedding.bias))
        if A is None or B is None:
            return None
        return LabelSpace.from_factors(A, B, bias, names, counts=counts, objective=self.objective.to_dict())

    def calibrate(
        self, hidden_batches: Tensor | Iterable[Tensor], targets: Tensor | Iterable[Tensor] | None = None
    ) -> float:
        raise ValueError("a head in parts cannot be calibrated: call unsharded() and calibrate on the first process")

    def export_predictor(self, *, fold_temperature: bool = False) -> nn.Linear:
        raise ValueError("the predictor is in parts: call unsharded(), and export_predictor() on the first process")

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, held={self.shard.start}:{self.shard.stop}"

    def _draw_parameters(self) -> None:
        shard, rank, device = self.shard, self.embedding.rank, self.shard.mesh.device_type
        layer, factor = uniform(1 / math.sqrt(self.in_features)), uniform(1 / math.sqrt(rank))
        fills = {"embedding.A": normal, "embedding.B": factor, "embedding.bias": factor}
        names = [name for name, _ in self.named_parameters()]
        for name, seed in zip(names, seeds(shard, len(names)), strict=True):
            parent, _, leaf = name.rpartition(".")
            shape = self.get_parameter(name).shape
            axis = LABEL_AXIS.get(name, 0)
            columns = math.prod(shape) // self.num_labels
            local = initial_rows(shard, columns, fills.get(name, layer), seed)
            local = local.T.contiguous() if axis else local.reshape(shard.width, *shape[1:])
            setattr(self.get_submodule(parent), leaf, nn.Parameter(shard.wrap(local.to(device), axis)))

    def _rules(self) -> LabelRules:
        return super()._rules()._replace(label_weight=None)  # it is in the rows' weights already

    def _folded_weight(self, targets: Tensor, sample_weight: Tensor | None) -> Tensor:
        """The weight of each row times that of its label, which one of the processes knows."""
        labels = checked_labels(targets.reshape(-1), self.num_labels, self.ignore_index).labels
        weights = self.shard.sum(self.shard.pick(_as_dtensor(self.weight).to_local(), labels)).reshape(targets.shape)
        if sample_weight is None:
            return weights
        return weights * checked_sample_weight(sample_weight, targets.shape, weights.dtype).reshape(targets.shape)

    def parts(self) -> Parts:
        """This process's part of what the loss works with."""
        assert self.observer is not None
        tensors = {name: _as_dtensor(value).to_local() for name, value in self.embedding.named_parameters()}
        embedding = SplitEmbedding(self.shard, tensors)
        return Parts(_local(self.predictor), _local(self.observer), embedding, self.objective)

    def _loss(self, batch: Batch) -> LossResult:
        return chunked_loss(self.parts(), batch, ChunkOptions(self.chunk_rows), SplitAxis(self.shard))

    def _count_right(self, right: RightLabels) -> None:
        if not self.shard.width:
            return
        places, held = self.shard.places(right.labels)
        _as_dtensor(self.counts).to_local().index_add_(0, places, torch.where(held, right.counts, 0))

    def _held_logits(self, hidden: Tensor) -> Tensor:
        """The logits of the labels held here; the gradient of `hidden` is summed over the processes."""
        layer = _local(self.predictor)
        return layer(self.shard.shared(in_precision_of(layer, hidden)))

    def _held_log_probabilities(self, rows: Tensor) -> Tensor:
        logits = widened(self._held_logits(rows)) / self.temperature
        logits -= self.shard.row_maximum(logits).unsqueeze(1)
        return logits.sub_(self.shard.sum(logits.exp().sum(1)).log_().unsqueeze(1))


def _as_dtensor(tensor: Tensor | None) -> DTensor:
    assert isinstance(tensor, DTensor)
    return tensor


def _local(layer: nn.Linear) -> LocalLayer:
    bias: Tensor | None = layer.bias
    return LocalLayer(_as_dtensor(layer.weight).to_local(), None if bias is None else _as_dtensor(bias).to_local())


def _cut_whole_tensors(module: nn.Module, state: dict[str, Any], prefix: str, *_: object) -> None:
    """An unsharded head's state may be loaded: each process takes its part."""
    assert isinstance(module, ShardedLabelEmbeddingHead)
    for name, value in module.state_dict().items():
        found = state.get(prefix + name)
        whole = found if isinstance(found, Tensor) and not isinstance(found, DTensor) else None
        if isinstance(value, DTensor) and whole is not None and whole.shape == value.shape:
            state[prefix + name] = module.shard.cut(whole, LABEL_AXIS.get(name, 0))
