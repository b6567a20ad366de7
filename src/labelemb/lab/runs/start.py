"""Initialises the body from a finished run (`body.start`)."""

from pathlib import Path

from torch import nn

from labelemb.lab.bodies import start_from
from labelemb.lab.data import InputForm, input_form
from labelemb.lab.pretrained.places import weights_digest
from labelemb.lab.recipes.recipe import Recipe
from labelemb.lab.runs.folder import RunFolder
from labelemb.support.errors import UserError
from labelemb.support.files import file_digest


def start_digest(recipe: Recipe) -> str | None:
    """SHA-256 of the weights that the body starts from: `body.start`, or a pretrained body's; None for new ones."""
    if not recipe.body.start:
        return weights_digest(recipe.body)
    return file_digest(_run(recipe).model_file)


def load_start(body: nn.Module, recipe: Recipe, inputs: InputForm) -> None:
    """Give a body the weights that `body.start` names, if it names any."""
    if not recipe.body.start:
        return
    tensors, about = _run(recipe).read_model()
    if difference := inputs.difference(input_form(about.preprocessing)):
        raise UserError(f"body.start = {recipe.body.start}: {difference}")
    start_from(body, tensors, recipe.body.start)


def _run(recipe: Recipe) -> RunFolder:
    run = RunFolder(Path(recipe.body.start))
    if not run.result_file.exists() or not run.model_file.exists():
        raise UserError(f"body.start = {recipe.body.start} is not the folder of a finished run with its model")
    return run
