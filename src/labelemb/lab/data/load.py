"""From a recipe and a place to a dataset."""

from pathlib import Path

from labelemb.lab.data.digits import read_digits
from labelemb.lab.data.examples import Dataset
from labelemb.lab.errors import LabError
from labelemb.lab.recipe import Recipe


def load_data(recipe: Recipe, path: Path | None, seed: int) -> Dataset:
    """Read, check and split the data of a recipe.

    `path` is a file or folder, or None to look in the usual places. `seed` is the run's: it decides a random split
    unless data.split_seed does.
    """
    settings = recipe.data
    splits = read_digits(settings).complete(settings, seed)
    if recipe.train.dev and splits.dev is None:
        raise LabError(f"train.dev = true needs development examples, {splits.source} has none: set data.dev_size")
    assert splits.test is not None
    preprocessing = {
        "kind": "image",
        "channels": splits.train.images.shape[1],
        "size": list(splits.train.images.shape[2:]),
        "mean": list(splits.train.mean),
        "std": list(splits.train.std),
    }
    return Dataset(splits.train, splits.dev, splits.test, splits.label_names, splits.groups, None, preprocessing)
