"""Temperatures: fitted to labels, or to what the observer says about training inputs."""

from __future__ import annotations

import copy
import math

import hypothesis.strategies as st
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given

from labelemb import Head, LabelEmbeddingHead, LabelSpace, PlainHead, TeacherFreeHead, fit_temperature
from labelemb.heads.calibration import weighted_temperature
from labelemb.lab.methods.controls import SingleOutputHead


def noisy(rows: int = 400, labels: int = 5, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Calibrated logits: the targets are drawn from their softmax."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(rows, labels, generator=generator)
    return logits, torch.multinomial(logits.softmax(-1), 1, generator=generator).squeeze(1)


@given(seed=st.integers(0, 99), scale=st.floats(0.05, 20))
def test_no_temperature_nearby_has_a_lower_cross_entropy(seed: int, scale: float) -> None:
    logits, targets = noisy(60, seed=seed)
    logits = scale * logits.double()
    best = fit_temperature(logits, targets)
    reached = F.cross_entropy(logits / best, targets)
    for factor in (0.97, 1.03):
        assert F.cross_entropy(logits / (best * factor), targets) >= reached


def test_calibrated_logits_need_a_temperature_near_one() -> None:
    logits, targets = noisy(20_000)
    assert fit_temperature(logits, targets) == pytest.approx(1, abs=0.03)


def test_scaled_logits_need_a_scaled_temperature() -> None:
    logits, targets = noisy()
    assert fit_temperature(3 * logits, targets) == pytest.approx(3 * fit_temperature(logits, targets), rel=1e-5)


def test_ignored_rows_and_leading_dimensions_change_nothing() -> None:
    logits, targets = noisy(60)
    expected = fit_temperature(logits, targets)
    assert fit_temperature(logits.reshape(6, 10, 5), targets.reshape(6, 10)) == pytest.approx(expected)
    padded = torch.cat([logits, torch.full((4, 5), 99.0)])
    ignored = torch.cat([targets, torch.full((4,), -1)])
    assert fit_temperature(padded, ignored, ignore_index=-1) == pytest.approx(expected)


@pytest.mark.parametrize("rows", [4, 400])
def test_logits_that_are_always_right_are_trusted_as_if_one_row_more_were_wrong(rows: int) -> None:
    targets = torch.arange(rows) % 4
    temperature = fit_temperature(3 * torch.eye(4)[targets] + 7, targets)
    # a confidence of rows / (rows + 1): exp(3 / T) / (exp(3 / T) + 3)
    assert 3 / temperature == pytest.approx(math.log(3 * rows), rel=1e-6)


def test_one_wrong_row_is_enough_to_decide_by_the_likelihood_alone() -> None:
    logits, targets = 3 * torch.eye(4)[torch.arange(12) % 4], torch.arange(12) % 4
    targets[0] = 1
    assert 3 / fit_temperature(logits, targets) == pytest.approx(math.log(3 * 11), rel=1e-6)


def test_a_row_of_weight_two_counts_twice() -> None:
    torch.manual_seed(0)
    logits, aimed = torch.randn(30, 4, dtype=torch.float64), torch.rand(30, dtype=torch.float64)
    weights = torch.randint(1, 4, (30,))
    repeated = weighted_temperature(logits.repeat_interleave(weights, 0), aimed.repeat_interleave(weights))
    assert weighted_temperature(logits, aimed, weights) == pytest.approx(repeated)


@pytest.mark.parametrize(
    ("logits", "aimed", "temperature"), [([0.3, 0.3], 0.3, 1.0), ([0.0, 1.0], 0.0, 1e3)], ids=["equal", "wrong"]
)
def test_a_temperature_exists_where_no_finite_one_is_best(
    logits: list[float], aimed: float, temperature: float
) -> None:
    assert weighted_temperature(torch.tensor([logits]), torch.tensor([aimed])) == pytest.approx(temperature)


def test_a_row_of_weight_two_counts_twice_where_all_are_right_and_one_of_weight_zero_not_at_all() -> None:
    logits, aimed = torch.eye(3).double()[[0, 1, 2]], torch.tensor([1.0, 1.0, 0.0])
    found = weighted_temperature(logits, aimed, torch.tensor([2.0, 1.0, 0.0]))
    repeated = weighted_temperature(logits[[0, 0, 1]], aimed[[0, 0, 1]])
    assert found == pytest.approx(repeated)
    assert 1 / found == pytest.approx(math.log(2 * 3), rel=1e-6)


def test_an_observer_without_any_doubt_does_not_make_the_predictor_sharper_than_its_rows_can_tell() -> None:
    head = agreeing_head(1.0)
    assert head.observer is not None
    with torch.no_grad():
        head.observer.weight.mul_(1e4)
    assert head.calibrate([torch.randn(50, 6, generator=torch.Generator().manual_seed(0))]) > 0.01


def test_half_precision_logits_are_fitted_in_better_precision() -> None:
    logits, targets = noisy()
    logits = logits.bfloat16()
    assert fit_temperature(logits, targets) == pytest.approx(fit_temperature(logits.double(), targets))


def test_nothing_to_fit_is_an_error() -> None:
    with pytest.raises(ValueError, match="no valid target"):
        fit_temperature(torch.zeros(2, 3), torch.tensor([-100, -100]))
    with pytest.raises(ValueError, match=r"\(2, 3\) and targets \(3,\)"):
        fit_temperature(torch.zeros(2, 3), torch.tensor([0, 1, 2]))
    with pytest.raises(ValueError, match="not finite"):
        fit_temperature(torch.tensor([[float("nan"), 0.0]]), torch.tensor([0]))


def agreeing_head(sharpness: float) -> LabelEmbeddingHead:
    """A predictor whose logits are the observer's divided by `sharpness`: underconfident by that much."""
    torch.manual_seed(0)
    head = LabelEmbeddingHead(6, 4)
    assert head.observer is not None
    with torch.no_grad():
        head.observer.weight.mul_(5)
        head.predictor.weight.copy_(head.observer.weight / sharpness)
        assert head.predictor.bias is not None
        head.predictor.bias.copy_(head.observer.bias / sharpness)
    return head


def test_calibrate_finds_the_temperature_at_which_predictor_and_observer_agree() -> None:
    head = agreeing_head(2.5)
    assert head.observer is not None
    hidden = torch.randn(200, 6)
    assert head.calibrate([hidden[:80], hidden[80:]]) == pytest.approx(1 / 2.5, rel=1e-4)
    assert float(head.temperature) == pytest.approx(1 / 2.5, rel=1e-4)
    torch.testing.assert_close(head.probabilities(hidden), head.observer(hidden).softmax(-1), rtol=1e-3, atol=1e-5)


def test_the_observers_distributions_may_be_given_as_the_mean_logits_they_aim_at() -> None:
    torch.manual_seed(0)
    head, hidden = LabelEmbeddingHead(4, 5).double(), torch.randn(100, 4, dtype=torch.float64)
    assert head.observer is not None
    logits, observed = head(hidden).detach(), head.observer(hidden).detach().softmax(1)
    assert weighted_temperature(logits, (observed * logits).sum(1)) == pytest.approx(head.calibrate([hidden]))


def test_how_the_hidden_states_are_batched_does_not_matter() -> None:
    hidden = torch.randn(60, 6, generator=torch.Generator().manual_seed(1))
    head = agreeing_head(3.0)
    whole = head.calibrate([hidden])
    assert head.calibrate(hidden.reshape(4, 15, 6)) == pytest.approx(whole)
    assert head.calibrate(iter(hidden.split(7))) == pytest.approx(whole)


def test_calibration_changes_probabilities_and_neither_logits_nor_predictions() -> None:
    head = agreeing_head(2.0)
    hidden = torch.randn(10, 6)
    logits, before = head(hidden), head.probabilities(hidden)
    torch.testing.assert_close(before, logits.softmax(-1))  # temperature 1 until it is calibrated
    head.calibrate([hidden])
    assert torch.equal(head(hidden), logits)
    assert torch.equal(head.probabilities(hidden).argmax(-1), before.argmax(-1))
    assert not torch.allclose(head.probabilities(hidden), before)


def test_the_temperature_travels_with_copies_and_state_dicts() -> None:
    head = agreeing_head(2.0)
    found = head.calibrate([torch.randn(30, 6)])
    assert float(copy.deepcopy(head).temperature) == pytest.approx(found)
    other = LabelEmbeddingHead(6, 4)
    other.load_state_dict(head.state_dict())
    assert float(other.temperature) == pytest.approx(found)


def test_an_exported_predictor_is_calibrated_only_on_request() -> None:
    head = agreeing_head(2.0)
    hidden = torch.randn(10, 6)
    head.calibrate([hidden])
    torch.testing.assert_close(head.export_predictor()(hidden), head(hidden))
    folded = head.export_predictor(fold_temperature=True)
    torch.testing.assert_close(folded(hidden).softmax(-1), head.probabilities(hidden))
    torch.testing.assert_close(head.export_predictor()(hidden), head(hidden))  # folding touched a copy only


def test_calibrating_needs_hidden_states_and_an_observer() -> None:
    with pytest.raises(ValueError, match="no hidden state"):
        agreeing_head(1.0).calibrate([])
    fixed = LabelEmbeddingHead(6, 2, embedding=LabelSpace.from_matrix([[0.9, 0.1], [0.1, 0.9]]))
    for head, kind in (
        (PlainHead(6, 4), "a PlainHead"),
        (fixed, "a head with a fixed embedding"),
        (SingleOutputHead(6, 4), "a SingleOutputHead"),
        (SingleOutputHead(6, 2, embedding=fixed.embedding), "a head with a fixed embedding"),
    ):
        with pytest.raises(ValueError, match=f"^{kind} has no observer to agree with: pass targets="):
            head.calibrate([torch.randn(3, 6)])


@pytest.mark.parametrize("head", [PlainHead(6, 4), LabelEmbeddingHead(6, 4), TeacherFreeHead(6, 4)])
def test_every_head_is_calibrated_by_targets(head: Head) -> None:
    hidden = torch.randn(60, 6, generator=torch.Generator().manual_seed(1))
    logits = head(hidden).detach()
    targets = torch.multinomial((2 * logits).softmax(-1), 1, generator=torch.Generator().manual_seed(2)).squeeze(1)
    expected = fit_temperature(logits, targets)
    assert head.calibrate([hidden[:20], hidden[20:]], [targets[:20], targets[20:]]) == pytest.approx(expected, rel=1e-5)
    assert head.calibrate(hidden.reshape(6, 10, 6), targets.reshape(6, 10)) == pytest.approx(expected, rel=1e-5)
    assert float(head.temperature) == pytest.approx(expected, rel=1e-5)
    padded = torch.cat([targets[:50], torch.full((10,), -100)])
    assert head.calibrate(hidden, padded) == pytest.approx(fit_temperature(logits, padded), rel=1e-5)


def test_targets_that_do_not_fit_the_hidden_states_are_an_error() -> None:
    head = PlainHead(6, 4)
    with pytest.raises(ValueError, match=r"need targets of the same leading dimensions, but they have \[\(4,\)\]"):
        head.calibrate([torch.randn(5, 6)], [torch.zeros(4, dtype=torch.long)])
    with pytest.raises(ValueError, match="no valid target"):
        head.calibrate([torch.randn(2, 6)], [torch.tensor([-100, -100])])
    with pytest.raises(ValueError, match="a target is 4"):
        head.calibrate(torch.randn(2, 6), torch.tensor([0, 4]))


def test_a_temperature_at_the_limit_of_the_search_is_a_warning() -> None:
    head, hidden = PlainHead(6, 4), torch.randn(40, 6, generator=torch.Generator().manual_seed(0))
    worst = head(hidden).argmin(-1)
    with pytest.warns(UserWarning, match=r"^the temperature 1000 is a limit of the search: no temperature fits"):
        assert head.calibrate(hidden, worst) == pytest.approx(1000)


def test_pairs_of_hidden_states_and_targets_are_an_error_that_says_what_to_pass() -> None:
    pair = (torch.randn(5, 6), torch.zeros(5, dtype=torch.long))
    for arguments in ([[pair]], [[pair], [pair[1]]]):
        with pytest.raises(TypeError, match=r"^a batch is a tuple, but must be a tensor: pass hidden states and targ"):
            LabelEmbeddingHead(6, 4).calibrate(*arguments)  # type: ignore[arg-type]


def test_every_head_has_probabilities() -> None:
    head = PlainHead(6, 4)
    hidden = torch.randn(3, 6)
    torch.testing.assert_close(head.probabilities(hidden), head(hidden).softmax(-1))
