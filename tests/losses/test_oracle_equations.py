"""The oracle itself: numbers worked out by hand, and its gradients against finite differences."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.helpers.oracle import Result, compressed_table, linear, objective_value, running_update, softmax


@dataclass(frozen=True)
class Options:
    tau: float = 2.0
    alpha: float = 0.8
    cap_power: int = 1
    two_sided_cap: bool = False
    hard_weight: float = 1.0
    soft_weight: float = 1.0
    cap_weight: float = 1.0
    cap_reduction: str = "mean"
    embedding_reduction: str = "all"
    correct_only: bool = True
    mass_floor: float = 0.0


# z1' = (2/3, 1/3), z2' = (9/10, 1/10), z2'' = (3/4, 1/4) at tau 2, e_0' = (4/5, 1/5), e_1' = (1/2, 1/2)
Z1 = torch.tensor([[math.log(2.0), 0.0]], dtype=torch.float64)
Z2 = torch.tensor([[2 * math.log(3.0), 0.0]], dtype=torch.float64)
E = torch.tensor([[math.log(4.0), 0.0], [0.0, 0.0]], dtype=torch.float64)


def numbers(result: Result) -> list[float]:
    values = (result.hard, result.soft, result.observer, result.cap, result.embedding, result.loss)
    return [float(value) for value in values]


def test_a_right_row_gives_the_numbers_worked_out_by_hand() -> None:
    result = objective_value(Z1, Z2, E, torch.tensor([0]), Options())
    hard = math.log(3 / 2)
    soft = 0.8 * math.log(3 / 2) + 0.2 * math.log(3)
    observer = math.log(10 / 9)
    embedding = 0.75 * math.log(5 / 4) + 0.25 * math.log(5)
    expected = [hard, soft, observer, 0.1, embedding, hard + soft + observer + 0.1 + embedding]
    assert numbers(result) == pytest.approx(expected, abs=1e-12)
    assert float(result.loss) == pytest.approx(1.724637, abs=1e-6)


def test_a_wrong_row_teaches_the_embedding_nothing_unless_asked_to() -> None:
    gated = objective_value(Z1, Z2, E, torch.tensor([1]), Options())
    assert float(gated.embedding) == 0.0
    assert float(gated.cap) == 0.0
    assert float(gated.observer) == pytest.approx(math.log(10))
    open_gate = objective_value(Z1, Z2, E, torch.tensor([1]), Options(correct_only=False))
    assert float(open_gate.embedding) == pytest.approx(math.log(2))


def test_the_two_sided_cap_is_the_distance_from_alpha() -> None:
    result = objective_value(Z1, Z2, E, torch.tensor([1]), Options(two_sided_cap=True, cap_power=2))
    assert float(result.cap) == pytest.approx(0.7**2)


def test_the_floor_limits_the_soft_share_by_hand() -> None:
    # S_yy = 4/5 and c = 0.9 * 1, so a = min(0.9, 0.1 / 0.2) = 0.5
    objective = Options(mass_floor=0.9, soft_weight=0.9)
    result = objective_value(Z1, None, E, torch.tensor([0]), objective, progress=1.0)
    assert float(result.loss) == pytest.approx(0.5 * float(result.hard) + 0.5 * float(result.soft))
    early = objective_value(Z1, None, E, torch.tensor([0]), objective, progress=0.0)
    assert float(early.loss) == pytest.approx(0.1 * float(early.hard) + 0.9 * float(early.soft))


def test_weights_reductions_and_ignored_rows_by_hand() -> None:
    z1, z2 = Z1.repeat(3, 1), Z2.repeat(3, 1)
    targets, rows = torch.tensor([0, 1, -100]), torch.tensor([2.0, 1.0, 5.0])
    labels = torch.tensor([1.0, 3.0])
    keywords: dict[str, Any] = {"sample_weight": rows, "weight": labels}  # the pairs weigh 2 and 3
    mean = objective_value(z1, z2, E, targets, Options(), **keywords)
    assert float(mean.hard) == pytest.approx((2 * math.log(3 / 2) + 3 * math.log(3)) / 5)
    assert float(mean.cap) == pytest.approx(2 * 0.1 / 5)
    vision = Options(cap_reduction="sum", embedding_reduction="correct")
    summed = objective_value(z1, z2, E, targets, vision, num_items=50, **keywords)
    assert float(summed.cap) == pytest.approx(2 * 0.1)
    assert float(summed.embedding) == pytest.approx(0.75 * math.log(5 / 4) + 0.25 * math.log(5))
    assert float(summed.hard) == pytest.approx((2 * math.log(3 / 2) + 3 * math.log(3)) / 50)


def test_a_soft_target_is_the_mean_of_the_losses_with_each_label() -> None:
    soft = objective_value(Z1, Z2, E, torch.tensor([[0.3, 0.7]]), Options())
    first, second = (objective_value(Z1, Z2, E, torch.tensor([y]), Options()) for y in (0, 1))
    expected = [0.3 * a + 0.7 * b for a, b in zip(numbers(first), numbers(second), strict=True)]
    assert numbers(soft) == pytest.approx(expected)


def test_the_running_table_is_a_decayed_mean_by_hand() -> None:
    table, mass = torch.eye(2, dtype=torch.float64), torch.tensor([4.0, 4.0], dtype=torch.float64)
    # two valid rows in an epoch of 2 / ln 2 halve the masses first: 2 and 2
    targets = torch.tensor([0, 1, -100])
    updated, new_mass = running_update(
        table, mass, Z2.repeat(3, 1), targets, Options(correct_only=False), rows_per_epoch=2 / math.log(2)
    )
    assert new_mass.tolist() == pytest.approx([3.0, 3.0])
    assert updated[0].tolist() == pytest.approx([(2 + 0.75) / 3, 0.25 / 3])
    assert updated[1].tolist() == pytest.approx([0.75 / 3, (2 + 0.25) / 3])
    gated, gated_mass = running_update(table, mass, Z2.repeat(3, 1), targets, Options(), rows_per_epoch=2 / math.log(2))
    assert gated_mass.tolist() == pytest.approx([3.0, 2.0])
    assert gated[1].tolist() == [0.0, 1.0]


def finite_difference(function: Callable[[Tensor], Tensor], at: Tensor, step: float = 1e-6) -> Tensor:
    gradient = torch.zeros_like(at)
    for index in range(at.numel()):
        moved = at.detach().clone().reshape(-1)
        moved[index] += step
        above = function(moved.reshape(at.shape))
        moved[index] -= 2 * step
        below = function(moved.reshape(at.shape))
        gradient.reshape(-1)[index] = (above - below).detach() / (2 * step)
    return gradient


@pytest.mark.parametrize(
    "options",
    [
        Options(alpha=0.3),
        Options(alpha=0.3, cap_power=2, cap_weight=2.0, hard_weight=0.2, soft_weight=0.8, correct_only=False),
        Options(alpha=0.5, two_sided_cap=True, cap_power=2, cap_reduction="sum", embedding_reduction="correct"),
        Options(alpha=0.3, mass_floor=0.7, soft_weight=0.9),
    ],
)
def test_gradients_equal_finite_differences_of_the_terms_that_train_each_part(options: Options) -> None:
    """A part's gradient is that of its own terms with everything behind sg() held still."""
    generator = torch.Generator().manual_seed(1)
    hidden, predictor, observer, left, right = (
        torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()
        for shape in ((5, 3), (4, 3), (4, 3), (4, 2), (2, 4))
    )
    targets, weight = torch.tensor([0, 1, 2, 3, 1]), torch.tensor([1.0, 2.0, 0.5, 1.5])

    def value(h: Tensor, w1: Tensor, w2: Tensor, a: Tensor, b: Tensor) -> Result:
        z1, z2 = linear(h, w1, None), linear(h.detach(), w2, None)
        return objective_value(z1, z2, compressed_table(a, b, None), targets, options, weight=weight, progress=0.8)

    def fit(h: Tensor, w1: Tensor) -> Tensor:
        # observer, cap and embedding do not see z1; taking z2 and E from the fixed point holds sg(e') still
        z1, z2 = linear(h, w1, None), linear(hidden, observer, None)
        table = compressed_table(left, right, None)
        return objective_value(z1, z2, table, targets, options, weight=weight, progress=0.8).loss

    def observing(w2: Tensor) -> Tensor:
        result = value(hidden, predictor, w2, left, right)
        return result.observer + options.cap_weight * result.cap

    value(hidden, predictor, observer, left, right).loss.backward()
    expected = {
        "hidden": (hidden, finite_difference(lambda h: fit(h, predictor), hidden)),
        "predictor": (predictor, finite_difference(lambda w: fit(hidden, w), predictor)),
        "observer": (observer, finite_difference(observing, observer)),
        "left": (left, finite_difference(lambda a: value(hidden, predictor, observer, a, right).embedding, left)),
        "right": (right, finite_difference(lambda b: value(hidden, predictor, observer, left, b).embedding, right)),
    }
    for name, (leaf, difference) in expected.items():
        assert leaf.grad is not None, name
        torch.testing.assert_close(
            leaf.grad, difference, rtol=1e-6, atol=1e-8, msg=f"{name}: {leaf.grad} is not {difference}"
        )


def test_softmax_and_linear_agree_with_torch() -> None:
    generator = torch.Generator().manual_seed(2)
    hidden, weight, bias = (
        torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in ((3, 4), (5, 4), (5,))
    )
    z = linear(hidden, weight, bias)
    torch.testing.assert_close(z, torch.nn.functional.linear(hidden, weight, bias))
    torch.testing.assert_close(softmax(z[0]), torch.softmax(z[0], 0))


def test_no_valid_row_gives_zero_everywhere() -> None:
    result = objective_value(Z1, Z2, E, torch.tensor([-100]), replace(Options(), mass_floor=0.5))
    assert numbers(result) == [0.0] * 6
