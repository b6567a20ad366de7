"""Calls of a head, with everything that shapes them, for hypothesis to choose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from labelemb import (
    CompressedEmbedding,
    DenseEmbedding,
    FixedEmbedding,
    LabelEmbeddingHead,
    LabelSpace,
    Objective,
    RunningEmbedding,
)

ROWS_PER_EPOCH = 11
PRIOR_ROWS = 2.5
EMBEDDINGS = [
    "dense",
    "compressed",
    "compressed-bias",
    "running",
    "running-prior",
    "running-top",
    "running-top-prior",
    "fixed",
    "fixed-factors",
    "fixed-top",
]
TOTAL_STEPS = 10


@dataclass(frozen=True)
class Case:
    """One call of a head, with everything that shapes it."""

    objective: Objective = Objective()  # noqa: RUF009  frozen
    embedding: str = "dense"  # see EMBEDDINGS
    impl: str = "autograd"
    chunk_rows: int | None = None
    long_rows: bool = False  # take the chunked head's way for very many labels
    unseen: bool = False  # take the way of a device at whose values nobody may look
    seed: int = 0
    rows: int = 6
    in_features: int = 3
    num_labels: int = 4
    bias: bool = True
    training: bool = True
    weight: bool = False
    sample_weight: bool = False
    ignored: bool = False
    num_items: float | None = None
    soft_targets: bool = False
    observed_hidden: bool = False
    ties: bool = False
    updates: int = 0  # training calls before this one
    progress: float | None = None
    total_steps: bool = False
    observe_rows: int | None = None
    draws: int = 0  # training calls before this one, by which the observed rows are drawn

    def head(self) -> LabelEmbeddingHead:
        """A head in float64 with random parameters everywhere; `ties` makes them small integers."""
        torch.manual_seed(self.seed)
        head = LabelEmbeddingHead(
            self.in_features,
            self.num_labels,
            bias=self.bias,
            objective=self.objective,
            embedding=make_embedding(self.embedding, self.num_labels),
            weight=torch.rand(self.num_labels) + 0.5 if self.weight else None,
            impl=self.impl,
            chunk_rows=None if self.impl == "autograd" else self.chunk_rows,
            observe_rows=None if self.embedding.startswith("fixed") else self.observe_rows,
            total_steps=TOTAL_STEPS if self.total_steps and self.has_schedule else None,
        ).double()
        if head.draws is not None:
            head.draws.fill_(self.draws)
        if head.updates is not None:
            head.updates.fill_(self.updates)
        with torch.no_grad():
            for parameter in head.parameters():
                parameter.normal_()
            if isinstance(head.embedding, RunningEmbedding):
                fill_running(head.embedding)
            if self.ties and head.observer is not None:
                for parameter in head.observer.parameters():
                    parameter.copy_(torch.randint_like(parameter, -1, 2))
        return head.train(self.training)

    @property
    def has_schedule(self) -> bool:
        waits = self.objective.soft_start > 0 and not self.embedding.startswith("fixed")
        return self.objective.mass_floor > 0 or waits

    def inputs(self) -> tuple[Tensor, Tensor, dict[str, Any]]:
        """hidden, targets and the keywords of the call."""
        generator = torch.Generator().manual_seed(self.seed + 1)
        hidden, observed = (self._hidden(generator) for _ in range(2))
        rows, labels = self.rows, self.num_labels
        targets = torch.randint(labels, (rows,), generator=generator)
        ignored = torch.rand(rows, generator=generator) < 0.4 if self.ignored else torch.zeros(rows, dtype=torch.bool)
        if self.soft_targets:
            # some entries are exactly zero, as in mixup
            shares = torch.rand(rows, labels, generator=generator, dtype=torch.float64)
            shares = shares * (torch.rand(rows, labels, generator=generator) < 0.6) + 1e-3 * nn.functional.one_hot(
                targets, labels
            )
            targets = shares / shares.sum(1, keepdim=True)
            targets[ignored] = 0.0
        else:
            targets[ignored] = -100
        keywords: dict[str, Any] = {"num_items": self.num_items, "progress": self.progress}
        if self.sample_weight:
            keywords["sample_weight"] = torch.rand(rows, generator=generator, dtype=torch.float64) + 0.1
        if self.observed_hidden:
            keywords["observed_hidden"] = observed
        return hidden, targets, keywords

    def _hidden(self, generator: torch.Generator) -> Tensor:
        shape = (self.rows, self.in_features)
        if self.ties:
            return torch.randint(-1, 2, shape, generator=generator).double()
        return 1.5 * torch.randn(shape, generator=generator, dtype=torch.float64)


def make_embedding(kind: str, num_labels: int) -> nn.Module:
    few = max(1, num_labels // 2)
    if kind == "dense":
        return DenseEmbedding(num_labels)
    if kind.startswith("compressed"):
        return CompressedEmbedding(num_labels, rank=2, bias=kind.endswith("bias"))
    if kind.startswith("fixed"):
        return FixedEmbedding(make_space(kind, num_labels))
    top_k, prior = few if "top" in kind else None, PRIOR_ROWS if kind.endswith("prior") else None
    return RunningEmbedding(num_labels, rows_per_epoch=ROWS_PER_EPOCH, top_k=top_k, prior_rows=prior)


def make_space(kind: str, num_labels: int) -> LabelSpace:
    if kind == "fixed-factors":
        return LabelSpace.from_factors(torch.randn(num_labels, 2), torch.randn(2, num_labels))
    if kind == "fixed-top":
        kept, places = torch.rand(num_labels, num_labels).softmax(1).topk(max(1, num_labels // 2))
        return LabelSpace.from_top_k(places, kept)
    return LabelSpace.from_matrix(torch.randn(num_labels, num_labels), kind="logit")


def fill_running(embedding: RunningEmbedding) -> None:
    """A table that has already seen something, and more of some labels than of others."""
    table = torch.rand(embedding.num_labels, embedding.num_labels, dtype=torch.float64).softmax(1)
    if embedding.top_k is None:
        embedding.table.copy_(table)
    else:
        kept, places = table.topk(embedding.top_k)
        embedding.top_labels.copy_(places)
        embedding.top_probabilities.copy_(kept)
    embedding.mass.copy_(3 * torch.rand(embedding.num_labels, dtype=torch.float64))


def objectives() -> st.SearchStrategy[Objective]:
    """Every option, each with values that change something on small random logits."""
    return st.builds(
        make_objective,
        tau=st.sampled_from([0.7, 1.0, 2.0]),
        alpha=st.sampled_from([0.23, 0.6, 1.0]),
        cap_power=st.sampled_from([1, 2]),
        two_sided_cap=st.booleans(),
        hard_weight=st.sampled_from([None, 0, 0.3, 1]),
        soft_weight=st.sampled_from([0, 0.8, 1]),
        cap_weight=st.sampled_from([0, 1, 2.5]),
        cap_reduction=st.sampled_from(["mean", "sum"]),
        embedding_reduction=st.sampled_from(["all", "correct"]),
        correct_only=st.booleans(),
        soft_start=st.sampled_from([0, 0, 5, 0.5]),
        mass_floor=st.sampled_from([0.0, 0.0, 0.4, 1.0]),
    ).filter(lambda objective: objective.hard_weight != 0 or objective.soft_weight > 0)


def make_objective(**choices: Any) -> Objective:
    """With a mass floor nobody may choose the weight of the hard term."""
    return Objective(**choices | ({"hard_weight": None} if choices["mass_floor"] else {}))


def cases(*, some_observed: bool = False, **fixed: Any) -> st.SearchStrategy[Case]:
    """Calls with every option; with `some_observed` the observer may see some rows only."""
    choices: dict[str, st.SearchStrategy[Any]] = {
        "objective": objectives(),
        "embedding": st.sampled_from(EMBEDDINGS),
        "impl": st.sampled_from(["autograd", "chunked", "auto"]),
        "chunk_rows": st.sampled_from([None, 1, 2, 3, 50]),
        "long_rows": st.booleans(),
        "unseen": st.booleans(),
        "seed": st.integers(0, 1000),
        "rows": st.integers(1, 7),
        "in_features": st.integers(1, 4),
        "num_labels": st.integers(2, 5),
        "bias": st.booleans(),
        "training": st.booleans(),
        "weight": st.booleans(),
        "sample_weight": st.booleans(),
        "ignored": st.booleans(),
        "num_items": st.sampled_from([None, 13.0]),
        "soft_targets": st.booleans(),
        "observed_hidden": st.booleans(),
        "ties": st.booleans(),
        "updates": st.sampled_from([0, 4, 5, 9, 12]),
        "progress": st.sampled_from([0.0, 0.4, 0.5, 1.0]),
        "total_steps": st.booleans(),
        "observe_rows": st.sampled_from([None, 1, 3]) if some_observed else st.none(),
        "draws": st.integers(0, 3),
    }
    choices.update({name: st.just(value) for name, value in fixed.items()})
    return st.builds(Case, **choices).filter(lambda case: not _keeps_other_entries(case))


def _keeps_other_entries(case: Case) -> bool:
    """Where a table of the largest entries need not be the oracle's.

    Which of two equal entries it keeps is nobody's promise. Where nobody may look, a label whose rows are in two chunks
    is cut to its largest entries twice.
    """
    return "running-top" in case.embedding and (case.ties or (case.unseen and case.chunk_rows is not None))
