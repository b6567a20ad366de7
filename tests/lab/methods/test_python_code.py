"""The lines of Python of a method make the head that the lab trains, and give its parameters their rates."""

from typing import Any

import pytest
import torch
from torch import nn

from labelemb.lab.methods.method import parse_method
from labelemb.lab.methods.python_code import python_lines
from labelemb.lab.recipes.recipe import load_recipe
from labelemb.lab.runs.engine import make_optimizer
from labelemb.support.errors import UserError

SIZES = {"in_features": 7, "num_labels": 12, "rows_per_epoch": 50, "total_steps": 20}
METHODS = [
    *("plain", "label-smoothing@0.1", "label-smoothing@rising", "online-smoothing@0.6", "online-smoothing@floor"),
    *("label-embedding", "label-embedding@rising-floor", "label-embedding@paper", "label-embedding@fading"),
    "label-embedding@halves+embedding=running+soft_weight=0.7+tau=1.5+mass_floor=0.9",
    "label-embedding@halves+embedding=running+prior_rows=12",
    "label-embedding@halves+embedding=compressed+rank=5+hard_weight=0.3+soft_weight=0.7",
    *("label-embedding@embedding_lr=0.2", "label-embedding@halves", "label-embedding@clean-observer"),
]


@pytest.mark.parametrize("name", METHODS)
def test_the_lines_make_the_head_of_the_method(name: str) -> None:
    method, recipe = parse_method(name), load_recipe("digits")
    lines = python_lines(method, recipe, SIZES["num_labels"])
    assert lines[0].startswith("from labelemb import ")
    names: dict[str, Any] = dict(SIZES)
    torch.manual_seed(0)
    exec("\n".join(lines[:2]), names)
    torch.manual_seed(0)
    head = method.make_head(recipe, 7, 12, rows_per_epoch=50, total_steps=20)
    made = names["head"]
    assert repr(made) == repr(head)
    assert {key: str(value) for key, value in vars(made).items() if key != "_modules"}.keys() == vars(head).keys() - {
        "_modules"
    }
    for attribute in ("objective", "mixing", "label_smoothing", "mass_floor", "rows_per_epoch", "total_steps"):
        assert getattr(made, attribute, None) == getattr(head, attribute, None)
    if hasattr(head, "embedding"):
        for attribute in ("rows_per_epoch", "prior_rows", "rank"):
            assert getattr(made.embedding, attribute, None) == getattr(head.embedding, attribute, None)
    model = nn.Sequential(nn.Linear(2, 7), made)
    optimizer = make_optimizer(recipe, model[0], made, method.embedding_lr(recipe))
    rates = {group["lr"] for group in optimizer.param_groups}
    assert ("observed_hidden=" in lines[-1]) == method.clean_observer
    if not any(line.startswith("groups = ") for line in lines):
        assert rates == {recipe.train.lr}
    else:
        exec(lines[2], names := names | {"model": model, "lr": recipe.train.lr})
        assert {group["lr"] for group in names["groups"]} == rates


def test_a_control_has_no_line() -> None:
    with pytest.raises(UserError, match="is a control for experiments"):
        python_lines(parse_method("label-embedding@single-output"), load_recipe("digits"), 10)
