"""`body.start`: a training that begins with the body of a finished run."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from labelemb.lab.methods.method import parse_method
from labelemb.lab.recipes.recipe import Recipe, load_recipe
from labelemb.lab.runs.loop import train_run
from labelemb.support.errors import UserError
from tests.helpers.quick_runs import quick_recipe

PLAIN = parse_method("plain")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("start") / "run"
    train_run(quick_recipe(), PLAIN, 0, None, folder)
    return folder


def body_weights(run: Path) -> torch.Tensor:
    tensors = load_file(run / "model.safetensors")
    return torch.cat([value.flatten() for name, value in sorted(tensors.items()) if name.startswith("body.")])


def barely_trained(start: str) -> Recipe:
    return quick_recipe("train.epochs=1", "train.lr=1e-12", "train.dev=false", f"body.start={start}")


def test_the_training_begins_with_the_weights_of_that_run(finished: Path, tmp_path: Path) -> None:
    train_run(barely_trained(str(finished)), PLAIN, 5, None, tmp_path / "from")
    torch.testing.assert_close(body_weights(tmp_path / "from"), body_weights(finished))


def test_the_start_is_part_of_the_runs_identity(finished: Path, tmp_path: Path) -> None:
    start = tmp_path / "start"
    shutil.copytree(finished, start)
    recipe = barely_trained(str(start))
    train_run(recipe, PLAIN, 0, None, tmp_path / "run")
    with pytest.raises(UserError, match=r"body.start is .* there and .* here"):
        train_run(barely_trained(str(finished)), PLAIN, 0, None, tmp_path / "run")
    tensors = load_file(start / "model.safetensors")
    save_file({name: value + 1 for name, value in tensors.items()}, start / "model.safetensors")
    with pytest.raises(UserError, match="another body to start from"):
        train_run(recipe, PLAIN, 0, None, tmp_path / "run")


def test_what_is_no_finished_run_or_does_not_fit_is_refused(
    finished: Path, tmp_path: Path, tiny_data: Callable[[str], Path | None]
) -> None:
    with pytest.raises(UserError, match=r"body.start = nowhere is not the folder of a finished run with its model"):
        train_run(barely_trained("nowhere"), PLAIN, 0, None, tmp_path / "a")
    wider = quick_recipe("body.hidden=[7]", f"body.start={finished}")
    with pytest.raises(UserError, match=r"its body (has another shape|is another network)"):
        train_run(wider, PLAIN, 0, None, tmp_path / "b")
    texts = load_recipe("text-csv", [f"body.start={finished}"])
    with pytest.raises(UserError, match="it reads images, this data has texts"):
        train_run(texts, PLAIN, 0, tiny_data("text-csv"), tmp_path / "c")
