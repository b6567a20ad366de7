"""One call of a head next to the oracle's answer to the same call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import torch
from torch import Tensor, nn

from labelemb import (
    CompressedEmbedding,
    DenseEmbedding,
    FixedEmbedding,
    Head,
    HeadOutput,
    LabelEmbeddingHead,
    LabelSpace,
    RunningEmbedding,
)
from labelemb.losses.sampling import first_by_hash
from tests.helpers.cases import ROWS_PER_EPOCH, Case
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


def loss_and_gradients(head: Head, hidden: Tensor, targets: Tensor) -> tuple[HeadOutput, dict[str, Tensor]]:
    """A call with its backward pass: the gradients of all parameters and of hidden."""
    hidden = hidden.detach().clone().requires_grad_()
    head.zero_grad()
    output = head(hidden, targets)
    output.loss.backward()
    found = {n: p.grad.clone() for n, p in head.named_parameters() if p.grad is not None}
    return output, found | {"hidden": hidden.grad}


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
        patch("labelemb.support.tensors.MAY_LOOK", not case.unseen),
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
