"""The baseline equals torch's cross entropy; the peers equal their published definitions, row by row in float64."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from labelemb import ConfidencePenaltyHead, Head, HeadOutput, OnlineSmoothingHead, PlainHead, TeacherFreeHead
from tests.helpers.oracle import entropy_between, softmax


def inputs(seed: int = 0, rows: int = 8, ignored: bool = True) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """hidden (rows, 3), labels (rows,) of 5 with some ignored, weights per row and per label; float64."""
    generator = torch.Generator().manual_seed(seed)
    hidden = 2 * torch.randn(rows, 3, generator=generator, dtype=torch.float64)
    labels = torch.randint(5, (rows,), generator=generator)
    if ignored:
        labels[:: max(2, rows // 2)] = -100
    row_weights = torch.rand(rows, generator=generator, dtype=torch.float64) + 0.1
    label_weights = torch.rand(5, generator=generator, dtype=torch.float64) + 0.1
    return hidden, labels, row_weights, label_weights


def made(kind: type[Head], **options: Any) -> Any:
    torch.manual_seed(3)
    return kind(3, 5, **options).double()


def gradient_on(hidden: Tensor, loss: Tensor) -> Tensor:
    (gradient,) = torch.autograd.grad(loss, hidden)
    return gradient


@settings(max_examples=60)
@given(
    seed=st.integers(0, 1000),
    rows=st.integers(2, 8),
    label_smoothing=st.sampled_from([0.0, 0.1, 1.0]),
    weighted=st.booleans(),
    sampled=st.booleans(),
    ignored=st.booleans(),
    num_items=st.sampled_from([None, 7]),
    training=st.booleans(),
)
def test_the_plain_head_equals_torchs_cross_entropy_in_every_option(
    seed: int,
    rows: int,
    label_smoothing: float,
    weighted: bool,
    sampled: bool,
    ignored: bool,
    num_items: int | None,
    training: bool,
) -> None:
    hidden, labels, row_weights, label_weights = inputs(seed, rows, ignored)
    hidden.requires_grad_()
    weight = label_weights.float() if weighted else None
    head = made(PlainHead, label_smoothing=label_smoothing, weight=weight).train(training)
    weight = weight if weight is None else weight.double()
    logits = head(hidden)
    options = {"weight": weight, "label_smoothing": label_smoothing}
    each = F.cross_entropy(logits, labels, reduction="none", **options)
    row_weights = row_weights if sampled else torch.ones_like(row_weights)
    valid = labels != -100
    divisor = (row_weights[valid] * (1 if weight is None else weight[labels[valid]])).sum()
    expected = (row_weights * each).sum() / (divisor if num_items is None else num_items)
    if not sampled and num_items is None and bool(valid.any()):
        torch.testing.assert_close(expected, F.cross_entropy(logits, labels, **options))
    if not bool(valid.any()):
        expected = 0 * logits.sum()

    keywords = {"sample_weight": row_weights} if sampled else {}
    output = head(hidden, labels, num_items=num_items, **keywords)
    torch.testing.assert_close(output.loss, expected)
    torch.testing.assert_close(gradient_on(hidden, output.loss), gradient_on(hidden, expected))
    per_row = head(hidden, labels, reduction="none", **keywords).loss
    torch.testing.assert_close(per_row, row_weights * each)


@pytest.mark.parametrize("label_smoothing", [0.0, 0.2])
def test_the_plain_head_takes_probabilities_as_torch_does(label_smoothing: float) -> None:
    hidden, _, _, _ = inputs()
    head = made(PlainHead, label_smoothing=label_smoothing)
    soft = torch.rand(8, 5, dtype=torch.float64).softmax(1)
    expected = F.cross_entropy(head(hidden), soft, label_smoothing=label_smoothing)
    torch.testing.assert_close(head(hidden, soft).loss, expected)


@pytest.mark.parametrize("ignore_index", [-100, -1, 2, 255])
def test_the_plain_head_takes_leading_dimensions_and_any_ignore_index(ignore_index: int) -> None:
    head = made(PlainHead, ignore_index=ignore_index)
    hidden = torch.randn(2, 4, 3, dtype=torch.float64)
    labels = torch.tensor([[0, 1, ignore_index, 3], [4, ignore_index, 0, 1]])
    expected = F.cross_entropy(head(hidden).flatten(0, 1), labels.flatten(), ignore_index=ignore_index)
    output = head(hidden, labels)
    torch.testing.assert_close(output.loss, expected)
    assert output.logits is not None
    assert output.logits.shape == (2, 4, 5)
    assert head(hidden, labels, reduction="none").loss.shape == (2, 4)


def all_heads() -> list[Head]:
    return [
        made(PlainHead),
        made(PlainHead, label_smoothing=0.1),
        made(OnlineSmoothingHead, rows_per_epoch=100),
        made(ConfidencePenaltyHead),
        made(TeacherFreeHead),
    ]


@pytest.mark.parametrize("temperature", [0.001, 0.01])
def test_the_teacher_of_a_low_temperature_is_one_hot(temperature: float) -> None:
    head = made(TeacherFreeHead, temperature=temperature)
    hidden, labels, _, _ = inputs(ignored=False)
    plain = F.cross_entropy(head(hidden), labels)
    teacher = F.kl_div(
        (head(hidden) / temperature).log_softmax(-1), F.one_hot(labels, 5).double(), reduction="batchmean"
    )
    expected = head.hard_weight * plain + head.soft_weight * teacher
    torch.testing.assert_close(head(hidden, labels).loss, expected)


@pytest.mark.parametrize("index", range(len(all_heads())))
def test_every_peer_is_linear_in_row_weights_and_targets(index: int) -> None:
    """One-hot floats mean labels, a weight of 2 means the row twice, halves with num_items add up."""
    head = all_heads()[index].eval()
    hidden, labels, row_weights, _ = inputs(ignored=False)
    loss = head(hidden, labels, sample_weight=row_weights).loss
    torch.testing.assert_close(head(hidden, F.one_hot(labels, 5).double(), sample_weight=row_weights).loss, loss)
    twice = head(torch.cat([hidden, hidden[:1]]), torch.cat([labels, labels[:1]])).loss
    doubled = torch.ones(8, dtype=torch.float64)
    doubled[0] = 2
    torch.testing.assert_close(head(hidden, labels, sample_weight=doubled).loss, twice)
    halves = [head(hidden[part], labels[part], num_items=8).loss for part in (slice(0, 3), slice(3, 8))]
    torch.testing.assert_close(sum(halves), head(hidden, labels).loss)
    others = (labels + 1) % 5
    mixed = 0.3 * F.one_hot(labels, 5).double() + 0.7 * F.one_hot(others, 5).double()
    torch.testing.assert_close(
        head(hidden, mixed).loss, 0.3 * head(hidden, labels).loss + 0.7 * head(hidden, others).loss
    )


@pytest.mark.parametrize("index", range(len(all_heads())))
def test_every_peer_ignores_the_keywords_it_has_no_use_for(index: int) -> None:
    head = all_heads()[index].eval()
    hidden, labels, _, _ = inputs()
    output: HeadOutput = head(hidden, labels, progress=0.3, observed_hidden=hidden + 1)
    torch.testing.assert_close(output.loss, head(hidden, labels).loss)
    assert output.observer_correct is None
    assert [term.item() for term in output.terms[2:]] == [0.0, 0.0, 0.0]
    z = head(hidden)
    right = [int(row[y] == row.max()) for row, y in zip(z, labels.tolist(), strict=True) if y != -100]
    assert int(output.correct) == sum(right)


def weighted_mean(values: list[Tensor], weights: list[float]) -> Tensor:
    return sum((w * v for w, v in zip(weights, values, strict=True)), torch.zeros(())) / sum(weights)


def test_the_confidence_penalty_subtracts_the_entropy_of_the_prediction() -> None:
    """Pereyra et al. 2017: -log p_y - beta H(p)."""
    hidden, labels, row_weights, label_weights = inputs()
    head = made(ConfidencePenaltyHead, penalty=0.3, weight=label_weights)
    values, weights = [], []
    for i, y in enumerate(labels.tolist()):
        if y != -100:
            p = softmax(head(hidden)[i])
            values.append(-torch.log(p[y]) - 0.3 * entropy_between(p, p))
            weights.append(float(row_weights[i] * head.weight[y]))
    torch.testing.assert_close(head(hidden, labels, sample_weight=row_weights).loss, weighted_mean(values, weights))


def test_the_teacher_free_head_is_the_papers_equation() -> None:
    """Yuan et al. 2020: (1 - alpha) H(y, p) + alpha KL(u_T, p_T), where u_T = softmax(u / T) of a virtual teacher u."""
    hidden, labels, row_weights, label_weights = inputs()
    options = {"correct_probability": 0.9, "temperature": 3.0, "teacher_weight": 0.4}
    head = made(TeacherFreeHead, weight=label_weights, **options)
    values, divergences, weights = [], [], []
    for i, y in enumerate(labels.tolist()):
        if y == -100:
            continue
        z = head(hidden)[i]
        virtual = torch.full((5,), 0.1 / 4, dtype=torch.float64)
        virtual[y] = 0.9
        teacher, student = softmax(virtual / 3.0), softmax(z / 3.0)
        divergence = entropy_between(teacher, student) - entropy_between(teacher, teacher)
        values.append(0.6 * -torch.log(softmax(z)[y]) + 0.4 * divergence)
        divergences.append(divergence)
        weights.append(float(row_weights[i] * head.weight[y]))
    output = head(hidden, labels, sample_weight=row_weights)
    torch.testing.assert_close(output.loss, weighted_mean(values, weights))
    torch.testing.assert_close(output.terms.soft, weighted_mean(divergences, weights))


def smoothed_loss(z: Tensor, labels: Tensor, matrix: Tensor, hard: float, soft: float) -> Tensor:
    """hard H(y, p) + soft H(S_y, p), averaged."""
    values = []
    for row, y in zip(z, labels.tolist(), strict=True):
        if y != -100:
            p = softmax(row)
            values.append(hard * -torch.log(p[y]) + soft * entropy_between(matrix[y], p))
    return sum(values, torch.zeros(())) / len(values)


def test_online_smoothing_learns_each_epochs_matrix_from_its_right_predictions() -> None:
    """Zhang et al. 2021: S_y of an epoch is the mean prediction over the rows of y that were predicted right."""
    head = made(OnlineSmoothingHead, rows_per_epoch=12, hard_weight=0.4, soft_weight=0.6)
    even = torch.full((5, 5), 0.2, dtype=torch.float64)
    epochs = [[inputs(seed, 8)[:2] for seed in range(10 * epoch, 10 * epoch + 2)] for epoch in range(3)]
    matrix = even
    for epoch, batches in enumerate(epochs):
        sums, counts = torch.zeros(5, 5, dtype=torch.float64), [0] * 5
        hard, soft = (0.9, 0.1) if epoch == 0 else (0.4, 0.6)  # the first epoch has nothing to look back on
        assert sum(int((labels != -100).sum()) for _, labels in batches) == 12
        for hidden, labels in batches:
            z = head(hidden).detach()
            torch.testing.assert_close(head(hidden, labels).loss, smoothed_loss(z, labels, matrix, hard, soft))
            for row, y in zip(z, labels.tolist(), strict=True):
                if y != -100 and int(row.argmax()) == y:
                    sums[y] += softmax(row)
                    counts[y] += 1
        assert sum(counts) > 0
        matrix = torch.stack([sums[y] / counts[y] if counts[y] else even[y] for y in range(5)])


def test_online_smoothing_trains_on_soft_targets() -> None:
    """Learning the next matrix must not disturb the gradients of the call, also where the epoch ends."""
    head = made(OnlineSmoothingHead, rows_per_epoch=16)
    hidden, labels, _, _ = inputs(ignored=False)
    hidden.requires_grad_()
    soft = 0.3 * F.one_hot(labels, 5).double() + 0.7 * F.one_hot((labels + 1) % 5, 5).double()
    for _ in range(3):
        head.eval()
        expected = gradient_on(hidden, head(hidden, soft).loss)
        head.train()
        torch.testing.assert_close(gradient_on(hidden, head(hidden, soft).loss), expected)


def test_online_smoothing_learns_the_same_matrix_whatever_rows_and_labels_weigh() -> None:
    hidden, labels, _, label_weights = inputs(rows=40, ignored=False)
    soft = 0.6 * F.one_hot(labels, 5).double() + 0.4 * F.one_hot((labels + 1) % 5, 5).double()
    plain = made(OnlineSmoothingHead, rows_per_epoch=40)
    weighted = made(OnlineSmoothingHead, rows_per_epoch=40, weight=label_weights**3)
    expected = plain(hidden, soft)
    found = weighted(hidden, soft, sample_weight=torch.arange(40) % 2)
    assert int(found.correct) == int(expected.correct)
    torch.testing.assert_close(weighted.targets, plain.targets)


def test_online_smoothing_learns_nothing_in_evaluation() -> None:
    head = made(OnlineSmoothingHead, rows_per_epoch=4).eval()
    before = {name: value.clone() for name, value in head.state_dict().items()}
    hidden, labels, _, _ = inputs()
    for _ in range(3):
        head(hidden, labels)
    assert all(torch.equal(value, before[name]) for name, value in head.state_dict().items())


def test_online_smoothing_with_a_floor_keeps_the_labels_share() -> None:
    head = made(OnlineSmoothingHead, rows_per_epoch=6, soft_weight=0.9, mass_floor=0.8)
    hidden, labels, _, _ = inputs()
    z = head(hidden).detach()
    head(hidden, labels, progress=0.0)
    own = head.targets.diagonal()
    assert not bool(head.first_epoch)
    values = []
    for row, y in zip(z, labels.tolist(), strict=True):
        if y != -100:
            a = min(0.9, (1 - 0.8 * 0.5) / (1 - float(own[y])))
            p = softmax(row)
            values.append((1 - a) * -torch.log(p[y]) + a * entropy_between(head.targets[y].clone(), p))
    expected = sum(values, torch.zeros(())) / len(values)
    torch.testing.assert_close(head.eval()(hidden, labels, progress=0.5).loss, expected)
    at_the_end = head(hidden, labels, progress=1.0).loss
    torch.testing.assert_close(head(hidden, labels).loss, at_the_end)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (PlainHead, {"label_smoothing": 0.1}),
        (OnlineSmoothingHead, {"rows_per_epoch": 16}),
        (ConfidencePenaltyHead, {}),
        (TeacherFreeHead, {}),
    ],
)
def test_an_ignored_row_may_overflow(kind: type[Head], options: dict[str, Any]) -> None:
    head = made(kind, **options).float()
    hidden, labels, _, _ = inputs()
    hidden = hidden.float()
    expected = head(hidden, labels).loss
    hidden[labels == -100] = 3e38 * hidden[labels == -100].sign()
    output = head(hidden.requires_grad_(), labels)
    torch.testing.assert_close(output.loss, expected)
    assert bool(gradient_on(hidden, output.loss).isfinite().all())


def test_an_unsure_prediction_has_the_entropy_of_the_even_distribution() -> None:
    head = made(ConfidencePenaltyHead, penalty=0.5)
    output = head(torch.zeros(1, 3, dtype=torch.float64), torch.tensor([0]))
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.zero_()
    output = head(torch.zeros(1, 3, dtype=torch.float64), torch.tensor([0]))
    assert output.loss.item() == pytest.approx(0.5 * math.log(5))
