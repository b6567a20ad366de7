"""Cases for hypothesis to choose, and one call of a head next to the oracle's answer to the same call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from labelemb import (
    CompressedEmbedding,
    DenseEmbedding,
    FixedEmbedding,
    HeadOutput,
    LabelEmbeddingHead,
    LabelSpace,
    Objective,
    RunningEmbedding,
)
from labelemb.losses.sampling import first_by_hash
from tests.helpers.oracle import (
    TERMS,
    Result,
    compressed_table,
    linear,
    objective_value,
    running_update,
    softmax,
    with_prior,
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


def leaves_of(head: LabelEmbeddingHead) -> dict[str, Tensor]:
    """float64 copies of all parameters, under the names the head gives them."""
    return {name: value.detach().clone().double().requires_grad_() for name, value in head.named_parameters()}


def table_of(head: LabelEmbeddingHead, leaves: dict[str, Tensor]) -> Tensor:
    """(labels, labels): logits made from the leaves of a learned embedding, else probabilities."""
    embedding = head.embedding
    if isinstance(embedding, DenseEmbedding):
        return leaves["embedding.weight"]
    if isinstance(embedding, CompressedEmbedding):
        return compressed_table(leaves["embedding.A"], leaves["embedding.B"], leaves.get("embedding.bias"))
    if isinstance(embedding, RunningEmbedding):
        return with_prior(stored_table(embedding), embedding.mass, embedding.prior_rows)
    return fixed_table(embedding.space)


def fixed_table(space: LabelSpace) -> Tensor:
    """(labels, labels): the distributions of a label space."""
    tensors = {name: tensor if name == "indices" else tensor.double() for name, tensor in space.form.tensors().items()}
    if "indices" in tensors:
        return spread_table(tensors["indices"], tensors["probabilities"])
    logits = tensors["logits"] if "logits" in tensors else compressed_table(tensors["A"], tensors["B"], None)
    return torch.stack([softmax(row) for row in logits])


def stored_table(embedding: RunningEmbedding) -> Tensor:
    """(labels, labels): the means that a running embedding holds."""
    if embedding.top_k is None:
        return embedding.table.double().clone()
    return spread_table(embedding.top_labels, embedding.top_probabilities.double())


def spread_table(indices: Tensor, probabilities: Tensor) -> Tensor:
    """(labels, labels) from the largest entries of each row, one by one; what they leave of 1 is spread evenly."""
    table = torch.zeros(len(indices), len(indices), dtype=torch.float64)
    for y, (places, kept) in enumerate(zip(indices, probabilities, strict=True)):
        table[y] = (1 - kept.sum()) / (len(indices) - len(places))
        for place, value in zip(places.tolist(), kept, strict=True):
            table[y, place] = value
    return table


def keep_top(table: Tensor, k: int) -> Tensor:
    """Each row's k largest entries; what is left spread evenly over the others."""
    rows = []
    for row in table:
        places = set(row.argsort(descending=True)[:k].tolist())
        rest = (1 - sum(float(row[i]) for i in places)) / (len(row) - k)
        rows.append([float(value) if i in places else rest for i, value in enumerate(row)])
    return torch.tensor(rows, dtype=torch.float64)


def oracle_call(
    head: LabelEmbeddingHead,
    leaves: dict[str, Tensor],
    hidden: Tensor,
    targets: Tensor,
    *,
    sample_weight: Tensor | None = None,
    num_items: float | None = None,
    progress: float | None = None,
    observed_hidden: Tensor | None = None,
    reduction: str = "mean",
    stands_for: Tensor | None = None,
) -> Result:
    """What the equations give for a call."""
    if progress is None and head.total_steps is not None:
        progress = min(1.0, int(head.updates) / head.total_steps)
    fixed = isinstance(head.embedding, FixedEmbedding)
    z1 = linear(hidden, leaves["predictor.weight"], leaves.get("predictor.bias"))
    z2 = None
    if not fixed:
        seen = hidden if observed_hidden is None else observed_hidden
        z2 = linear(seen.detach(), leaves["observer.weight"], leaves.get("observer.bias"))
    return objective_value(
        z1,
        z2,
        table_of(head, leaves),
        targets,
        head.objective,
        learned=isinstance(head.embedding, DenseEmbedding | CompressedEmbedding),
        weight=head.weight,
        sample_weight=sample_weight,
        num_items=num_items,
        soft_active=fixed or soft_term_has_started(head, progress),
        progress=1.0 if progress is None else progress,
        reduction=reduction,
        stands_for=stands_for,
    )


def rows_stood_for(head: LabelEmbeddingHead, targets: Tensor) -> Tensor | None:
    """How many rows each row of a call stands for, 0 for one that will not be observed; None if all will be."""
    if head.draws is None or targets.is_floating_point() or len(targets) <= head.observe_rows:
        return None
    valid = targets != -100
    chosen = first_by_hash(valid, head.observe_rows, head.draws)
    chosen = chosen[valid[chosen]]
    return torch.zeros(len(targets)).double().index_fill_(0, chosen, int(valid.sum()) / max(1, len(chosen)))


def soft_term_has_started(head: LabelEmbeddingHead, progress: float | None) -> bool:
    start = head.objective.soft_start
    if start == 0:
        return True
    if isinstance(start, float):
        return progress is None or progress >= start
    if progress is not None and head.total_steps is not None:
        return progress * head.total_steps >= start - 1e-6
    return int(head.updates) >= start


def assert_same_terms(output: HeadOutput, expected: Result, **tolerance: float) -> None:
    tolerance = tolerance or {"rtol": 1e-9, "atol": 1e-11}
    for name in TERMS:
        found = getattr(output.terms, name)
        torch.testing.assert_close(
            found.detach().double(), getattr(expected, name).detach(), **tolerance, msg=lambda m, n=name: f"{n}: {m}"
        )
    torch.testing.assert_close(output.loss.detach().double(), expected.loss.detach(), **tolerance)


def assert_same_gradients(head: nn.Module, leaves: dict[str, Tensor], **tolerance: float) -> None:
    """No gradient counts as a gradient of zero."""
    tolerance = tolerance or {"rtol": 1e-8, "atol": 1e-10}
    for name, parameter in head.named_parameters():
        found = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        wanted = leaves[name].grad
        wanted = torch.zeros_like(leaves[name]) if wanted is None else wanted
        torch.testing.assert_close(found.double(), wanted, **tolerance, msg=lambda m, n=name: f"{n}: {m}")


def check(case: Case) -> None:
    """Loss, terms, counts, all gradients and the running table of one call against the oracle."""
    head = case.head()
    hidden, targets, keywords = case.inputs()
    leaves = leaves_of(head)
    oracle_hidden = hidden.clone().requires_grad_()
    stands_for = rows_stood_for(head, targets)
    expected = oracle_call(head, leaves, oracle_hidden, targets, **keywords, stands_for=stands_for)
    running = isinstance(head.embedding, RunningEmbedding)
    if running:
        before = stored_table(head.embedding), head.embedding.mass.clone()

    hidden.requires_grad_()
    with chunks_of_a_device_or_long_rows(case):
        output = head(hidden, targets, **keywords)
    assert_same_terms(output, expected)

    # a factor on the loss must reach every gradient, also one computed in the forward pass
    (3.0 * output.loss).backward()
    if expected.loss.requires_grad:  # not if no row is valid
        (3.0 * expected.loss).backward()
    assert_same_gradients(head, leaves)
    wanted = torch.zeros_like(hidden) if oracle_hidden.grad is None else oracle_hidden.grad
    found = torch.zeros_like(hidden) if hidden.grad is None else hidden.grad
    torch.testing.assert_close(found, wanted, rtol=1e-8, atol=1e-10, msg=lambda m: f"hidden: {m}")

    seen = keywords.get("observed_hidden", hidden).detach()
    if running:
        check_running_table(head, before, seen, targets, keywords.get("sample_weight"), stands_for)
    if not case.soft_targets:
        check_counts(head, output, hidden.detach(), seen, targets, stands_for)


@contextmanager
def chunks_of_a_device_or_long_rows(case: Case) -> Iterator[None]:
    """Take the way of very many labels, or that of a device at whose values nobody may look."""
    long_row = 1 if case.long_rows else 4096
    with (
        patch("labelemb.losses.chunked.predictor.LONG_ROW", long_row),
        patch("labelemb.losses.chunked.observer.LONG_ROW", long_row),
        patch("labelemb.losses.batch.MAY_LOOK", not case.unseen),
    ):
        yield


def check_running_table(
    head: LabelEmbeddingHead,
    before: tuple[Tensor, Tensor],
    seen: Tensor,
    targets: Tensor,
    rows: Tensor | None,
    stands_for: Tensor | None,
) -> None:
    table, mass = before
    if head.training:
        z2 = nn.functional.linear(seen, head.observer.weight.detach(), head.observer.bias)
        table, mass = running_update(
            table,
            mass,
            z2.detach(),
            targets,
            head.objective,
            rows_per_epoch=ROWS_PER_EPOCH,
            weight=head.weight,
            sample_weight=rows,
            stands_for=stands_for,
        )
        if head.embedding.top_k is not None:
            table = keep_top(table, head.embedding.top_k)
    torch.testing.assert_close(head.embedding.mass, mass, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(stored_table(head.embedding), table, rtol=1e-9, atol=1e-12)
    everything = torch.arange(head.num_labels)
    expected = with_prior(table, mass, head.embedding.prior_rows)
    torch.testing.assert_close(head.embedding.probabilities(everything), expected, rtol=1e-9, atol=1e-12)


def check_counts(
    head: LabelEmbeddingHead,
    output: HeadOutput,
    hidden: Tensor,
    seen: Tensor,
    targets: Tensor,
    stands_for: Tensor | None,
) -> None:
    valid = targets != -100
    looked_at = valid if stands_for is None else stands_for > 0

    def right_labels(layer: nn.Linear, rows: Tensor, which: Tensor) -> Tensor:
        z, labels = layer(rows[which]).detach(), targets[which].unsqueeze(1)
        return labels[z.gather(1, labels) == z.amax(1, keepdim=True)]

    assert int(output.correct) == len(right_labels(head.predictor, hidden, valid))
    assert (output.observer_correct is None) == (head.observer is None)
    if head.observer is not None:
        observed = right_labels(head.observer, seen, looked_at)
        assert int(output.observer_correct) == len(observed)
        assert int(output.observer_rows) == int(looked_at.sum())
        counts = observed.bincount(minlength=head.num_labels) if head.training else torch.zeros_like(head.counts)
        assert torch.equal(head.counts, counts)


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
