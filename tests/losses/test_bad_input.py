"""Losses and fits of logits answer bad input with one clear line, as heads do."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from labelemb import LabelSpace, Objective, SoftTargetLoss, fit_temperature, label_embedding_loss

LOGITS = torch.tensor([[2.0, 1.0, 0.0], [0.0, 1.0, 2.0]])
LABELS = torch.tensor([0, 1])
SPACE = LabelSpace.from_matrix(torch.eye(3), kind="logit")

FUNCTIONS: dict[str, Callable[[Any, Any], Tensor | float]] = {
    "label_embedding_loss": lambda logits, targets: label_embedding_loss(logits, logits, logits, targets)[0],
    "SoftTargetLoss": SoftTargetLoss(SPACE),
    "fit_temperature": fit_temperature,
}


@pytest.mark.parametrize("name", list(FUNCTIONS))
@pytest.mark.parametrize(
    ("logits", "targets", "said"),
    [
        (LOGITS, [0, 1], r"targets is \[0, 1\], but must be a tensor"),
        (LOGITS, LABELS.numpy(), r"targets is array\(\[0, 1\]\), but must be a tensor"),
        (LOGITS, None, "targets is None, but must be a tensor"),
        (LOGITS, LABELS > 0, "targets are torch.bool, but must be integer labels"),
        (LOGITS, LABELS + 0j, "targets are torch.complex64, but must be integer labels"),
        (LOGITS.numpy(), LABELS, "(logits|z1) is array.*, but must be a tensor"),
        (np.zeros((2, 3)), LABELS.numpy(), "(logits|z1) is array.*, but must be a tensor"),
        (LOGITS.long(), LABELS, "(logits|z1) is torch.int64, but must be floating point"),
        (LOGITS + 0j, LABELS, "(logits|z1) is torch.complex64, but must be floating point"),
    ],
)
def test_logits_and_targets_of_a_wrong_type_are_quoted(name: str, logits: Any, targets: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        FUNCTIONS[name](logits, targets)


@pytest.mark.parametrize("name", list(FUNCTIONS))
@pytest.mark.parametrize("targets", [LABELS.unsqueeze(1), torch.tensor([0, 1, 2]), torch.tensor(0)])
def test_targets_of_another_shape_are_an_error_that_names_both(name: str, targets: Tensor) -> None:
    with pytest.raises(ValueError, match=re.escape(f"{tuple(targets.shape)}")) as caught:
        FUNCTIONS[name](LOGITS, targets)
    assert "(2, 3)" in str(caught.value)


@pytest.mark.parametrize("name", list(FUNCTIONS))
@pytest.mark.parametrize("bad", [-1, 3])
def test_a_target_that_is_no_label_is_quoted_with_the_range(name: str, bad: int) -> None:
    with pytest.raises(ValueError, match=rf"a target is {bad}, but must be in \[0, 3\)"):
        FUNCTIONS[name](LOGITS, torch.tensor([0, bad]))


@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_logits_without_an_axis_of_labels_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"shapes? \(\)"):
        FUNCTIONS[name](torch.tensor(1.0), torch.tensor(0))


@pytest.mark.parametrize("name", list(FUNCTIONS))
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32])
def test_labels_may_be_integers_of_any_size(name: str, dtype: torch.dtype) -> None:
    assert FUNCTIONS[name](LOGITS, LABELS.to(dtype)) == FUNCTIONS[name](LOGITS, LABELS)


@pytest.mark.parametrize(("z2", "e"), [(LOGITS[:, :2], LOGITS), (LOGITS, torch.eye(3)), (LOGITS, LOGITS[:1])])
def test_the_three_kinds_of_logits_have_one_shape(z2: Tensor, e: Tensor) -> None:
    with pytest.raises(ValueError, match="z1, z2, e and targets have shapes"):
        label_embedding_loss(LOGITS, z2, e, LABELS)


@pytest.mark.parametrize("progress", [-0.1, 1.1, float("nan")])
def test_progress_of_the_function_is_in_0_to_1(progress: float) -> None:
    with pytest.raises(ValueError, match=rf"progress is {progress}, but must be in \[0, 1\]"):
        label_embedding_loss(LOGITS, LOGITS, LOGITS, LABELS, Objective(mass_floor=0.5), progress=progress)
