"""Every shipped recipe trains, evaluates and is read back, on tiny data."""

from collections.abc import Callable
from pathlib import Path

import pytest

from labelemb.lab.methods.method import parse_method
from labelemb.lab.recipes.recipe import load_recipe, recipe_names
from labelemb.lab.recipes.settings import CnnBody, ResNetBody
from labelemb.lab.runs.loop import train_run
from labelemb.lab.tasks import make_task
from labelemb.lab.trained.model import TrainedModel
from tests.helpers.tiny_data import small_sizes
from tests.helpers.tiny_pretrained import recipe_overrides

# the full widths are for real machines; everything else is as shipped
WIDTHS = {
    name: "0.1" if name == "mnist-cnn" else "0.05"
    for name in recipe_names()
    if isinstance(load_recipe(name).body, CnnBody | ResNetBody)
}
NARROW = {
    **{name: [f"body.width={width}"] for name, width in WIDTHS.items()},
    **{
        name: ["body.embedding_size=8", "body.hidden_size=8", "head.rank=4", "decode.max_length=5"]
        for name in ("en-vi-news-small", "iwslt15-en-vi", "lcsts", "multi30k-en-de-small", "zh-titles-small")
    },
    "numbers-en-vi": ["body.hidden_size=8", "data.max_pairs=50", "data.dev_size=20", "data.test_size=20"],
}


@pytest.mark.parametrize("name", recipe_names())
@pytest.mark.parametrize("method", ["of the recipe", "label-embedding@rising-floor"])
def test_a_shipped_recipe_trains(
    name: str, method: str, tmp_path: Path, tiny_data: Callable[[str], Path | None]
) -> None:
    sizes = [*NARROW.get(name, []), *small_sizes(name), *recipe_overrides(name, tmp_path)]
    recipe = load_recipe(name, ["train.epochs=1", *sizes])
    data = tiny_data(name)
    chosen = parse_method(recipe.methods[-1] if method == "of the recipe" else method)
    result = train_run(recipe, chosen, 0, data, tmp_path / "run")
    assert 0 <= result.test_error <= 100
    assert len(result.curve) == 1
    scores = TrainedModel(tmp_path / "run").evaluate(data)
    assert scores["test"].error == result.test_error
    main = make_task(recipe).main
    assert getattr(scores["test"], main.reported) == getattr(result, main.test_field)
