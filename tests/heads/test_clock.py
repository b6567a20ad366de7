"""One clock: a call says progress=, or a head that was made with total_steps= counts its training calls."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from labelemb import HeadOutput, LabelEmbeddingHead, Objective, OnlineSmoothingHead, PlainHead
from labelemb.heads.base import Head
from tests.helpers.cases import Case

HIDDEN, LABELS = torch.randn(6, 3, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 3, 0, 1])
IMPLEMENTATIONS = ["autograd", "chunked"]


def call(head: Head, progress: float | None = None) -> HeadOutput:
    return head(HIDDEN.to(head.predictor.weight.dtype), LABELS, progress=progress)


def made(objective: Objective, **options: object) -> LabelEmbeddingHead:
    torch.manual_seed(0)
    return LabelEmbeddingHead(3, 4, embedding="compressed", rank=2, objective=objective, **options)  # type: ignore[arg-type]


def starts(head: Head, calls: int) -> list[bool]:
    return [call(head).terms.soft.item() > 0 for _ in range(calls)]


@pytest.mark.parametrize("impl", IMPLEMENTATIONS)
def test_the_soft_term_starts_when_the_counted_training_calls_reach_soft_start(impl: str) -> None:
    assert starts(made(Objective(soft_start=2), impl=impl), 4) == [False, False, True, True]


@pytest.mark.parametrize("impl", IMPLEMENTATIONS)
def test_a_share_of_the_training_is_measured_by_total_steps(impl: str) -> None:
    assert starts(made(Objective(soft_start=0.5), impl=impl, total_steps=4), 4) == [False, False, True, True]


def test_a_share_of_the_training_is_measured_by_progress() -> None:
    head = made(Objective(soft_start=0.38))
    assert [call(head, progress).terms.soft.item() > 0 for progress in (0.0, 0.37, 0.38, 1.0)] == [
        False,
        False,
        True,
        True,
    ]


def test_progress_times_total_steps_are_the_updates_that_soft_start_waits_for() -> None:
    head = made(Objective(soft_start=3), total_steps=7)
    assert [call(head, step / 7).terms.soft.item() > 0 for step in range(7)] == [False] * 3 + [True] * 4


def test_a_share_without_any_clock_is_an_error_in_training_and_over_in_evaluation() -> None:
    head = made(Objective(soft_start=0.5))
    with pytest.raises(ValueError, match=r"soft_start=0\.5 is a share of the training: pass progress="):
        call(head)
    assert call(head.eval()).terms.soft.item() > 0


def test_total_steps_stands_in_for_progress() -> None:
    objective = Objective(mass_floor=1.0, soft_weight=0.9)
    halfway = call(made(objective), progress=0.5).loss.item()
    counting = made(objective, total_steps=8)
    losses = [call(counting).loss.item() for _ in range(5)]
    assert losses[4] == pytest.approx(halfway)
    assert losses[0] != pytest.approx(halfway, rel=1e-4)


@pytest.mark.parametrize("impl", IMPLEMENTATIONS)
def test_a_mass_floor_without_a_clock_stands_at_its_end_value(impl: str) -> None:
    head = made(Objective(mass_floor=0.7), impl=impl)
    assert call(head).loss.item() == pytest.approx(call(head, progress=1.0).loss.item(), rel=1e-6)
    assert call(head).loss.item() != pytest.approx(call(head, progress=0.0).loss.item(), rel=1e-4)


@pytest.mark.parametrize(
    "make_head",
    [
        lambda: PlainHead(3, 4, label_smoothing=0.9, mass_floor=0.9, total_steps=4),
        lambda: OnlineSmoothingHead(3, 4, rows_per_epoch=6, soft_weight=0.9, mass_floor=0.9, total_steps=4),
    ],
    ids=["plain", "online smoothing"],
)
def test_every_head_with_a_floor_has_the_same_clock(make_head: Callable[[], Head]) -> None:
    torch.manual_seed(0)
    head = make_head()
    call(head)  # online smoothing has its first matrix now
    head.load_state_dict(head.state_dict() | {"updates": torch.tensor(2)})
    counted = call(head.eval()).loss.item()
    assert counted == pytest.approx(call(head, progress=0.5).loss.item())
    assert counted != pytest.approx(call(head, progress=1.0).loss.item(), rel=1e-3)


def test_weights_pass_between_heads_with_and_without_a_schedule() -> None:
    scheduled, constant = made(Objective(soft_start=2)), made(Objective(soft_start=0))
    call(scheduled)
    constant.load_state_dict(scheduled.state_dict())
    call(scheduled)
    scheduled.load_state_dict(constant.state_dict())
    assert scheduled.updates is not None
    assert int(scheduled.updates) == 0  # the schedule starts


@pytest.mark.parametrize("impl", IMPLEMENTATIONS)
def test_evaluation_neither_counts_nor_moves_the_running_table(impl: str) -> None:
    head = Case(Objective(soft_start=1), "running", impl).head().eval()
    before = {name: value.clone() for name, value in head.state_dict().items()}
    assert starts(head, 3) == [False, False, False]
    for name, value in head.state_dict().items():
        assert torch.equal(value, before[name]), name
    call(head.train())
    assert call(head.eval()).terms.soft.item() > 0


def test_the_counter_travels_with_the_state() -> None:
    head, other = made(Objective(soft_start=2)), made(Objective(soft_start=2))
    starts(head, 2)
    other.load_state_dict(head.state_dict())
    assert call(other).terms.soft.item() > 0


def test_a_trainer_may_set_total_steps_late() -> None:
    head = made(Objective(soft_start=0.5))
    head.total_steps = 4
    assert starts(head, 4) == [False, False, True, True]
    with pytest.raises(ValueError, match="total_steps=4 would be ignored"):
        made(Objective()).total_steps = 4


@pytest.mark.parametrize("objective", [Objective(mass_floor=0.5), Objective(soft_start=2), Objective(soft_start=0.3)])
@pytest.mark.parametrize("shape", [(), (1,)])
def test_progress_may_be_a_tensor_with_one_entry(objective: Objective, shape: tuple[int, ...]) -> None:
    expected = call(made(objective, total_steps=4), 0.5).loss
    found = made(objective, total_steps=4)(HIDDEN, LABELS, progress=torch.full(shape, 0.5)).loss
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("progress", [-0.1, 1.1, float("nan")])
def test_progress_outside_its_range_is_an_error(progress: float) -> None:
    with pytest.raises(ValueError, match="progress"):
        call(made(Objective(mass_floor=0.5)), progress=progress)
