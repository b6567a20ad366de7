"""What data there is, for `labelemb data`."""

from pathlib import Path

from labelemb.lab.data.cifar import LAYOUTS, find_cifar
from labelemb.lab.data.fetch import SOURCES, fetch_root
from labelemb.lab.data.find import ENVIRONMENT_VARIABLE, data_roots, find_data
from labelemb.lab.data.idx import holds_idx
from labelemb.lab.errors import LabError

FOLDERS = {
    "mnist": ("mnist", "MNIST", "MNIST/raw"),
    "fashion-mnist": ("fashion-mnist", "FashionMNIST", "FashionMNIST/raw"),
    "cifar10": ("cifar-10-batches-bin", "cifar10", "cifar-10"),
    "cifar100": ("cifar-100-binary", "cifar100", "cifar-100"),
}


def describe_data(path: Path | None = None) -> str:
    """Lines to print: each published set with its place or how to get it, and where sets are looked for."""
    width = max(map(len, SOURCES))
    lines = [f"{'digits':<{width}}  always there (ships with scikit-learn)"]
    for name in SOURCES:
        place = find_published(name, path)
        lines.append(f"{name:<{width}}  {place or f'not found; `labelemb data fetch {name}` downloads it'}")
    roots = [path] if path is not None else data_roots()
    lines += [
        "",
        f"looked for in: {', '.join(map(str, roots))} (change with --data or ${ENVIRONMENT_VARIABLE})",
        f"downloads go to: {fetch_root()}",
        "your own images or texts: recipes image-folder and text-csv with --data PATH",
    ]
    return "\n".join(lines)


def find_published(name: str, path: Path | None = None) -> Path | None:
    """Where a published set is, or None."""
    folders = FOLDERS[name]

    def holds(place: Path) -> bool:
        # idx files look the same for every set, so the folder's name has to tell
        return holds_idx(place) and any(place.parts[-len(Path(own).parts) :] == Path(own).parts for own in folders)

    try:
        return find_cifar(LAYOUTS[name], folders, path) if name in LAYOUTS else find_data(path, folders, holds, name)
    except LabError:
        return None
