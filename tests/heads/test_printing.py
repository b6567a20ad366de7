"""Heads, objectives and what they give print in a line that says what matters."""

from __future__ import annotations

import pytest
import torch

from labelemb import (
    ConfidencePenaltyHead,
    Head,
    LabelEmbeddingHead,
    Objective,
    OnlineSmoothingHead,
    PlainHead,
    TeacherFreeHead,
)


def test_an_objective_prints_what_differs_from_the_default() -> None:
    assert repr(Objective()) == "Objective()"
    assert repr(Objective(tau=3.0, cap_power=2)) == "Objective(tau=3.0, cap_power=2)"
    assert eval(repr(Objective.rising_floor())) == Objective.rising_floor()


def test_an_output_prints_its_loss_counts_and_five_terms_as_numbers() -> None:
    head = LabelEmbeddingHead(2, 2, embedding="dense")
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.zero_()
    out = head(torch.ones(4, 2), torch.tensor([0, 1, 0, -100]))
    assert repr(out) == (
        "HeadOutput(loss=2.0794, correct=3, observer_correct=3, observer_rows=3, "
        "terms=LossTerms(hard=0.6931, soft=0.6931, observer=0.6931, cap=0.0000, embedding=0.6931))"
    )
    assert "observer_correct" not in repr(PlainHead(2, 2)(torch.ones(1, 2), torch.tensor([0])))


def test_an_output_of_rows_prints_their_shape() -> None:
    out = LabelEmbeddingHead(2, 3)(torch.ones(4, 2), torch.tensor([0, 1, 0, 2]), reduction="none")
    assert repr(out).startswith("HeadOutput(loss=per row (4,), correct=")
    assert "embedding=per row (4,)" in repr(out)


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (LabelEmbeddingHead(4, 3), "in_features=4, num_labels=3"),
        (
            LabelEmbeddingHead(4, 3, objective=Objective(tau=3.0), impl="autograd", ignore_index=-1),
            "in_features=4, num_labels=3, ignore_index=-1, objective=Objective(tau=3.0), impl='autograd'",
        ),
        (PlainHead(4, 3, label_smoothing=0.1), "in_features=4, num_labels=3, label_smoothing=0.1"),
        (OnlineSmoothingHead(4, 3, rows_per_epoch=100), "in_features=4, num_labels=3, rows_per_epoch=100"),
        (ConfidencePenaltyHead(4, 3, penalty=0.2), "in_features=4, num_labels=3, penalty=0.2"),
        (TeacherFreeHead(4, 3), "in_features=4, num_labels=3, temperature=20.0, teacher_weight=0.1"),
    ],
)
def test_a_head_prints_its_sizes_and_settings(head: Head, expected: str) -> None:
    assert head.extra_repr() == expected
    assert repr(head).splitlines()[1].strip() == expected
