"""The schedules of softness give the true label the share of the target that they name."""

import pytest
import torch

from benchmarks.schedules import SCHEDULES, make_head

LABELS = 5
SPREAD = ("prior", "even")
"""Soft targets that are even before anything was observed; without a prior a label then has all of its own."""


def target_of(kind: str, schedule: str, progress: float) -> torch.Tensor:
    """The predictor's target for label 2, from the gradient of its bias: prediction minus target."""
    head = make_head(kind, SCHEDULES[schedule], 3, LABELS, rows_per_epoch=100, total_steps=10)
    out = head(torch.ones(1, 3), torch.tensor([2]), progress=progress)
    out.loss.backward()
    prediction = head.predictor(torch.ones(1, 3)).softmax(-1).squeeze(0)
    assert head.predictor.bias.grad is not None
    return (prediction - head.predictor.bias.grad).detach()


@pytest.mark.parametrize("kind", SPREAD)
@pytest.mark.parametrize(
    ("schedule", "progress", "share"),
    [("falling", 1.0, 0.9), ("constant", 0.2, 0.45), ("constant", 0.9, 0.45), ("rising", 0.0, 0.9)],
)
def test_the_true_label_has_its_least_share(kind: str, schedule: str, progress: float, share: float) -> None:
    target = target_of(kind, schedule, progress)
    torch.testing.assert_close(target.sum(), torch.tensor(1.0))
    torch.testing.assert_close(target[2], torch.tensor(share))


@pytest.mark.parametrize("kind", SPREAD)
@pytest.mark.parametrize(("schedule", "progress"), [("falling", 0.0), ("rising", 1.0), ("on-then-off", 0.4)])
def test_the_softest_moment_has_a_tenth_of_hard_target(kind: str, schedule: str, progress: float) -> None:
    torch.testing.assert_close(target_of(kind, schedule, progress)[2], torch.tensor(0.1 + 0.9 / LABELS))


def test_off_is_one_hot() -> None:
    torch.testing.assert_close(target_of("even", "on-then-off", 0.5), torch.eye(LABELS)[2])
