"""Learning rates over time, and when a run evaluates."""

import pytest

from labelemb.lab.recipes.recipe import load_recipe
from labelemb.lab.runs.schedule import evaluation_points, learning_rate_factor


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("constant", [1.0, 1.0, 1.0, 1.0]),
        ("linear", [1.0, 0.75, 0.5, 0.25]),
        ("cosine", [1.0, 0.8535533905932737, 0.5, 0.14644660940672627]),
        ("step", [1.0, 1.0, 0.1, 0.1]),
    ],
)
def test_the_factor_over_four_epochs_of_ten_updates(schedule: str, expected: list[float]) -> None:
    recipe = load_recipe("digits", [f"train.schedule={schedule}", "train.step_every=2", "train.step_factor=0.1"])
    factors = [learning_rate_factor(recipe.train, step=10 * epoch, total_steps=40, epoch=epoch) for epoch in range(4)]
    assert factors == pytest.approx(expected)


@pytest.mark.parametrize(
    ("batches", "evaluations", "expected"),
    [(10, 1, {10}), (10, 5, {2, 4, 6, 8, 10}), (10, 3, {4, 7, 10}), (2, 5, {1, 2}), (1, 1, {1})],
)
def test_evaluations_are_spread_evenly_and_end_with_the_epoch(
    batches: int, evaluations: int, expected: set[int]
) -> None:
    assert evaluation_points(batches, evaluations) == expected
