"""Runs whose body was trained before: learned, resumed, frozen, loaded again without its weights, and exported."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from labelemb.lab.bodies import FeatureBody, make_body
from labelemb.lab.data import load_data
from labelemb.lab.recipes.recipe import Recipe, load_recipe
from labelemb.lab.runs.features import FOLDER
from labelemb.lab.runs.loop import train_run
from labelemb.lab.trained.export.job import export_run
from labelemb.lab.trained.model import TrainedModel
from labelemb.support.errors import UserError
from labelemb.support.interrupts import Interrupted
from tests.helpers.quick_runs import StopAt, assert_same_run, every_update_saved
from tests.helpers.tiny_data import text_rows, write_cifar100, write_csv
from tests.helpers.tiny_pretrained import recipe_overrides

RECIPES = ("text-vectors", "text-minilm", "cifar100-pretrained")
TEXTS = RECIPES[:2]
METHOD = "label-embedding@halves"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[Recipe, Path]]:
    """A function from a recipe's name and overrides to the recipe with a tiny network, and its data."""
    folder = tmp_path_factory.mktemp("saved")
    texts = write_csv(folder / "texts.csv", text_rows(per_label=20))
    images = write_cifar100(folder / "cifar-100-binary")
    networks = {name: recipe_overrides(name, folder / name) for name in RECIPES}

    def made(name: str, *overrides: str) -> tuple[Recipe, Path]:
        sizes = ["train.epochs=3", "train.batch_size=8", "data.dev_size=10", *networks[name]]
        return load_recipe(name, [*sizes, *overrides]), images if name.startswith("cifar") else texts

    return made


def encoder_of(run: Path) -> dict[str, torch.Tensor]:
    return {name: value for name, value in load_file(run / "model.safetensors").items() if "body.encoder" in name}


def start_of(recipe: Recipe, data: Path) -> dict[str, torch.Tensor]:
    body = make_body(recipe.body, load_data(recipe, data, 0).inputs, 2)
    return {f"body.{name}": value for name, value in body.state_dict().items() if name.startswith("encoder")}


@pytest.mark.parametrize("frozen", [0, 1, -1])
@pytest.mark.parametrize("name", RECIPES)
def test_a_stopped_run_goes_on_bit_for_bit(name: str, frozen: int, saved: Callable, tmp_path: Path) -> None:
    recipe, data = saved(name, f"body.frozen_epochs={frozen}", "body.dropout=0.2", "train.epochs=2")
    train_run(recipe, METHOD, 0, data, tmp_path / "whole")
    for step in (1, 3):
        stop = StopAt(step)
        with pytest.raises(Interrupted):
            train_run(
                recipe,
                METHOD,
                0,
                data,
                tmp_path / "parts",
                options=every_update_saved(),
                report=stop.hear,
                stop=stop,
            )
    train_run(recipe, METHOD, 0, data, tmp_path / "parts")
    assert_same_run(tmp_path / "whole", tmp_path / "parts")


@pytest.mark.parametrize("name", RECIPES)
def test_a_frozen_encoder_stays_as_it_was_and_a_trained_one_does_not(
    name: str, saved: Callable, tmp_path: Path
) -> None:
    for frozen in (-1, 3, 1):
        recipe, data = saved(name, f"body.frozen_epochs={frozen}", "train.epochs=2")
        train_run(recipe, METHOD, 0, data, tmp_path / str(frozen))
        found, start = encoder_of(tmp_path / str(frozen)), start_of(recipe, data)
        same = [torch.equal(found[key], start[key]) for key in found]
        assert found.keys() == start.keys()
        assert all(same) if frozen != 1 else not all(same)


def test_kept_features_and_a_frozen_encoder_in_every_update_give_the_same_run(saved: Callable, tmp_path: Path) -> None:
    same = ("body.dropout=0", "train.epochs=4", "train.schedule=constant")
    later, data = saved("text-minilm", "body.frozen_epochs=3", *same)
    once, _ = saved("text-minilm", "body.frozen_epochs=-1", *same)
    for run, each in (("later", later), ("once", once)):
        train_run(each, "plain", 0, data, tmp_path / run)
    losses = {
        run: [json.loads(line)["loss"] for line in (tmp_path / run / "metrics.jsonl").read_text().splitlines()]
        for run in ("later", "once")
    }
    assert losses["later"][:3] == pytest.approx(losses["once"][:3], rel=1e-4)
    assert losses["later"][3] != pytest.approx(losses["once"][3], rel=1e-4)


def test_features_are_computed_once_and_again_where_their_file_is_damaged(saved: Callable, tmp_path: Path) -> None:
    recipe, data = saved("cifar100-pretrained")
    said: list[str] = []
    for seed in (0, 1):
        train_run(recipe, "plain", seed, data, tmp_path / str(seed), warn=said.append)
    assert [text.partition(";")[0] for text in said] == [
        f"computing the features of {count} examples" for count in (190, 10, 100)
    ]
    kept = sorted((tmp_path / "cache" / "labelemb" / FOLDER).glob("*.safetensors"))
    assert len(kept) == 3
    kept[0].write_bytes(b"damaged")
    train_run(recipe, "plain", 0, data, tmp_path / "again", warn=said.append)
    assert len(said) == 4
    [worst, *_] = json.loads((tmp_path / "0" / "worst.json").read_text())
    assert worst["picture"], "features hide the images from the report"
    assert_same_run(tmp_path / "0", tmp_path / "again")


@pytest.mark.parametrize("name", RECIPES)
def test_a_run_is_used_without_the_weights_it_started_from(name: str, saved: Callable, tmp_path: Path) -> None:
    """Evaluated, asked and exported after the pretrained files are gone."""
    files = tmp_path / "mine"
    recipe = load_recipe(name, ["train.epochs=1", "data.dev_size=10", *recipe_overrides(name, files)])
    _, data = saved(name)
    run = tmp_path / "run"
    result = train_run(recipe, METHOD, 0, data, run)
    shutil.rmtree(files)
    trained = TrainedModel(run)
    assert trained.evaluate(data)["test"].error == result.test_error
    if name in TEXTS:
        (tmp_path / "new.txt").write_text("please tell me about music\n")
        [answer] = trained.predict([tmp_path / "new.txt"])
        assert answer.labels[0] in ("music", "weather")
    assert export_run(run, "torch").difference < 1e-4


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_does_not_depend_on_the_texts_beside_it(name: str, saved: Callable) -> None:
    recipe, data = saved(name)
    dataset = load_data(recipe, data, 0)
    body = make_body(recipe.body, dataset.inputs, 2).eval()
    examples = dataset.inputs.encode(["music", "", "please tell me number 3 about weather"])
    with torch.no_grad():
        [together] = [body(*examples.batch(torch.arange(3))[0])]
        alone = torch.cat([body(*examples.batch(torch.tensor([row]))[0]) for row in range(3)])
    assert torch.isfinite(together).all()
    torch.testing.assert_close(together, alone)


def test_parts_that_were_trained_before_have_a_learning_rate_of_their_own(saved: Callable, tmp_path: Path) -> None:
    recipe, data = saved("text-minilm", "body.learning_rate=1e-30", "body.frozen_epochs=0", "train.weight_decay=0")
    train_run(recipe, "plain", 0, data, tmp_path / "run")
    found, start = encoder_of(tmp_path / "run"), start_of(recipe, data)
    for key in found:
        torch.testing.assert_close(found[key], start[key], rtol=0, atol=1e-20)
    with pytest.raises(UserError, match=r"another recipe \(body.learning_rate"):
        train_run(saved("text-minilm", "body.learning_rate=0.1")[0], "plain", 0, data, tmp_path / "run")


def test_gradient_checkpointing_changes_no_number(saved: Callable, tmp_path: Path) -> None:
    for flag in ("true", "false"):
        recipe, data = saved("text-minilm", f"body.checkpointing={flag}", "body.frozen_epochs=0", "train.epochs=1")
        train_run(recipe, "plain", 0, data, tmp_path / flag)
    found, other = encoder_of(tmp_path / "true"), encoder_of(tmp_path / "false")
    for key in found:
        torch.testing.assert_close(found[key], other[key])


def test_a_run_does_not_go_on_with_other_weights(saved: Callable, tmp_path: Path) -> None:
    files = tmp_path / "mine"
    recipe = load_recipe("text-vectors", ["train.epochs=1", *recipe_overrides("text-vectors", files)])
    _, data = saved("text-vectors")
    train_run(recipe, "plain", 0, data, tmp_path / "run")
    vectors = files / "vectors" / "vectors.safetensors"
    save_file({"other": load_file(vectors)["embedding.weight"] + 1}, vectors)
    with pytest.raises(UserError, match="another body to start from"):
        train_run(recipe, "plain", 0, data, tmp_path / "run")


def test_a_frozen_encoder_is_in_evaluation_mode(saved: Callable) -> None:
    recipe, data = saved("text-minilm")
    body = make_body(recipe.body, load_data(recipe, data, 0).inputs, 2)
    assert isinstance(body, FeatureBody)
    body.freeze(True)
    body.train()
    assert not any(module.training for module in body.encoder.modules())
    assert body.top.training
    body.freeze(False)
    assert all(module.training for module in body.modules())
