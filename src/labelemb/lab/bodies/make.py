"""From a recipe and its data to a body."""

import math

from torch import nn

from labelemb.lab.bodies.initial import truncated_normal
from labelemb.lab.bodies.mlp import MLP
from labelemb.lab.data import Dataset
from labelemb.lab.recipe import Recipe


def make_body(recipe: Recipe, dataset: Dataset) -> nn.Module:
    """The body that the recipe names, for inputs as the dataset has them. Weights come from torch's global generator."""
    settings = recipe.body
    shape = dataset.preprocessing
    body = MLP(shape["channels"] * math.prod(shape["size"]), settings.hidden, settings.dropout)
    if settings.init == "truncated_normal":
        truncated_normal(body, settings.init_std)
    return body
