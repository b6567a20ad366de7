"""Every shipped recipe trains, evaluates and is read back, on tiny data."""

from collections.abc import Callable
from pathlib import Path

import pytest

from labelemb.lab.inference import TrainedModel
from labelemb.lab.methods import parse_method
from labelemb.lab.recipe import load_recipe, recipe_names
from labelemb.lab.train import train_run

# the full widths are for real machines; everything else is as shipped
NARROW = {"cifar10-resnet8": "0.05", "cifar100-resnet18": "0.05", "cifar10-small": "0.05", "mnist-cnn": "0.1"}


@pytest.mark.parametrize("name", recipe_names())
@pytest.mark.parametrize("method", ["label-embedding", "label-embedding@recommended"])
def test_a_shipped_recipe_trains(
    name: str, method: str, tmp_path: Path, tiny_data: Callable[[str], Path | None]
) -> None:
    narrow = [f"body.width={NARROW[name]}"] if name in NARROW else []
    recipe = load_recipe(name, ["train.epochs=1", *narrow])
    data = tiny_data(name)
    result = train_run(recipe, parse_method(method), 0, data, tmp_path / "run")
    assert 0 <= result["test_error"] <= 100
    assert len(result["curve"]) == 1
    scores = TrainedModel(tmp_path / "run").evaluate(data)
    assert scores["test"].error == result["test_error"]
