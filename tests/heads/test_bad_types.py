"""Arguments of a wrong type are a TypeError that quotes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from labelemb import LabelEmbeddingHead, Objective, label_embedding_loss
from tests.helpers.all_heads import HIDDEN, LABELS, heads


@pytest.mark.parametrize(
    ("targets", "keywords", "said"),
    [
        ([0, 1], {}, r"targets is \[0, 1\], .* tensor"),
        (1, {}, "targets is 1, .* tensor"),
        (LABELS, {"sample_weight": [1.0, 2.0]}, r"sample_weight is \[1.0, 2.0\], .* tensor"),
        (LABELS, {"sample_weight": 2.0}, "sample_weight is 2.0, .* tensor"),
        (LABELS, {"progress": "half"}, "progress is 'half', .* number"),
        (LABELS, {"num_items": "3"}, "num_items is '3', .* number"),
        (np.array([0, 1]), {}, r"targets is array\(\[0, 1\]\), .* tensor"),
        (LABELS > 0, {}, "targets are torch.bool, .* integer labels"),
        (LABELS + 0j, {}, "targets are torch.complex64, .* integer labels"),
        (LABELS, {"sample_weight": LABELS + 0j}, "sample_weight is torch.complex64, .* real"),
        (LABELS, {"observed_hidden": HIDDEN.numpy()}, "observed_hidden is array.* tensor"),
        (LABELS, {"observed_hidden": HIDDEN.long()}, "observed_hidden is torch.int64, .* floating point"),
        (LABELS, {"progress": [0.5]}, r"progress is \[0.5\], .* number"),
        (LABELS, {"progress": torch.zeros(2)}, r"progress is tensor\(\[0., 0.\]\), .* number"),
        (LABELS, {"num_items": [3]}, r"num_items is \[3\], .* number"),
        (LABELS, {"num_items": torch.tensor([3, 3])}, r"num_items is tensor\(\[3, 3\]\), .* number"),
    ],
)
def test_an_argument_of_a_wrong_type_is_an_error_that_quotes_it(
    targets: Any, keywords: dict[str, Any], said: str
) -> None:
    for head in heads():
        with pytest.raises(TypeError, match=said):
            head(HIDDEN, targets, **keywords)


@pytest.mark.parametrize(
    ("hidden", "said"),
    [
        (HIDDEN.tolist(), r"hidden is \[\[0.0, 0.0, 0.0\], .* tensor"),
        (HIDDEN.numpy(), "hidden is array.* tensor"),
        (None, "hidden is None, .* tensor"),
        (HIDDEN.long(), r"hidden is torch.int64, .* floating point: pass hidden.float\(\)"),
        (HIDDEN + 0j, "hidden is torch.complex64, .* floating point"),
    ],
)
def test_hidden_states_are_floating_point_tensors(hidden: Any, said: str) -> None:
    for head in heads():
        for targets in (None, LABELS):
            with pytest.raises(TypeError, match=said):
                head(hidden, targets)


@pytest.mark.parametrize(
    ("objective", "said"), [("paper", "objective is 'paper'"), (Objective.paper, r"objective is Objective\.paper,")]
)
def test_what_is_no_objective_is_an_error_that_says_what_to_pass(objective: Any, said: str) -> None:
    with pytest.raises(TypeError, match=rf"{said}.* Objective\.paper\(\)"):
        LabelEmbeddingHead(3, 4, objective=objective)
    with pytest.raises(TypeError, match=said):
        label_embedding_loss(HIDDEN, HIDDEN, HIDDEN, LABELS, objective)


def test_a_text_for_prior_rows_is_an_error_that_quotes_it() -> None:
    with pytest.raises(TypeError, match="prior_rows is 'many'"):
        LabelEmbeddingHead(3, 4, embedding="running", prior_rows="many")  # type: ignore[arg-type]


def test_numbers_of_numpy_say_when_the_soft_term_starts() -> None:
    assert Objective(soft_start=np.int64(5)) == Objective(soft_start=5)  # type: ignore[arg-type]
    assert isinstance(Objective(soft_start=np.int64(5)).soft_start, int)  # type: ignore[arg-type]
    assert Objective(soft_start=np.float32(0.5)) == Objective(soft_start=0.5)  # type: ignore[arg-type]
