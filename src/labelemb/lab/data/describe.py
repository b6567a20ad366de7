"""Lists the available data sets, for `labelemb data`."""

from pathlib import Path

from labelemb.lab.data.fetch import SOURCES, fetch_root
from labelemb.lab.data.files import ENVIRONMENT_VARIABLE, data_roots, find_data
from labelemb.lab.data.images.cifar import LAYOUTS, find_cifar
from labelemb.lab.data.images.idx import holds_idx
from labelemb.lab.data.pairs.corpus import find_text_pairs
from labelemb.lab.recipes.recipe import load_recipe, recipe_names
from labelemb.lab.recipes.settings import ParallelTextData, TextPairData
from labelemb.support.errors import UserError

FOLDERS = {
    "mnist": ("mnist", "MNIST", "MNIST/raw"),
    "fashion-mnist": ("fashion-mnist", "FashionMNIST", "FashionMNIST/raw"),
    "cifar10": ("cifar-10-batches-bin", "cifar10", "cifar-10"),
    "cifar100": ("cifar-100-binary", "cifar100", "cifar-100"),
}


def describe_data(path: Path | None = None) -> str:
    """Lines to print: each set with its place or how to get it, and where sets are looked for."""
    found = {"digits": "always there (ships with scikit-learn)"}
    for name in SOURCES:
        found[name] = str(find_published(name, path) or f"not found; `labelemb data fetch {name}` downloads it")
    for recipe in map(load_recipe, recipe_names()):
        if isinstance(recipe.data, TextPairData):
            found[recipe.name] = _text_pairs(recipe.data, path)
    width = max(map(len, found))
    lines = [f"{name:<{width}}  {place}" for name, place in found.items()]
    roots = [path] if path is not None else data_roots()
    lines += [
        "",
        f"looked for in: {', '.join(map(str, roots))} (change with --data or ${ENVIRONMENT_VARIABLE})",
        f"downloads go to: {fetch_root()}",
        "your own images or texts: recipes image-folder and text-csv with --data PATH",
    ]
    return "\n".join(lines)


def _text_pairs(settings: TextPairData, path: Path | None) -> str:
    """Text pairs have no common source, so they go by the recipe that reads them."""
    try:
        return str(find_text_pairs(settings, path) or "always there (made when needed)")
    except UserError:
        assert isinstance(settings, ParallelTextData)  # the others need no files
        first = f"{settings.train_files[0]}.{settings.source_suffix}"
        return f"not found; put its files ({first}, ...) in a folder {settings.folders[0]}"


def find_published(name: str, path: Path | None = None) -> Path | None:
    """Where a published set is, or None."""
    folders = FOLDERS[name]

    def holds(place: Path) -> bool:
        # idx files look the same for every set, so the folder's name has to tell
        is_named = any(place.parts[-len(Path(own).parts) :] == Path(own).parts for own in folders)
        return is_named and holds_idx(place, every=True)

    if path is not None and not path.exists():
        raise UserError(f"there is no file or folder {path}")
    try:
        if name not in LAYOUTS:
            return find_data(path, folders, holds, name)
        place = find_cifar(LAYOUTS[name], folders, path)
        # any archive may be renamed for a training, but here its name has to tell
        return place if place.is_dir() or place.name == LAYOUTS[name].archive else None
    except UserError:
        return None
