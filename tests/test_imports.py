"""The core needs torch, numpy and safetensors, and nothing of the lab."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

import pytest

ALLOWED = ("torch", "numpy", "safetensors")

PROGRAM = '''
import sys
from importlib.machinery import PathFinder

FOREIGN = frozenset(sys.argv[1].split(","))


class Without(PathFinder):
    """Finds what is installed, except these packages and the lab."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.partition(".")[0] in FOREIGN or name == "labelemb.lab":
            return None
        return PathFinder.find_spec(name, path, target)


sys.meta_path[:] = [Without if finder is PathFinder else finder for finder in sys.meta_path]
for blocked in ("sklearn", "labelemb.lab"):
    try:
        __import__(blocked)
    except ImportError:
        continue
    raise SystemExit(f"{blocked} is not blocked")

import torch
from labelemb import LabelEmbeddingHead, LabelSpace, Objective, PlainHead, SoftTargetLoss, attach, fit_temperature

torch.manual_seed(0)
x, y = torch.randn(40, 5), torch.randint(4, (40,))
rising = {"embedding": "running", "objective": Objective.rising_floor()}
for options in ({}, {"embedding": "compressed", "rank": 2}, rising, {"impl": "autograd"}):
    model = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
    model = attach(model, "2", **options)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    losses = []
    for step in range(30):
        optimizer.zero_grad()
        out = model(x, targets=y, progress=step / 30)
        out.loss.backward()
        optimizer.step()
        losses.append(out.terms.hard.item())
    assert losses[-1] < losses[0], (options, losses)
    model[2].calibrate([torch.randn(10, 8)])
space = model[2].label_space(["a", "b", "c", "d"])
space.save(sys.argv[2])
space = LabelSpace.load(sys.argv[2])
space.nearest("a"), space.to_csv(sys.argv[2] + ".csv"), space.to_word2vec(sys.argv[2] + ".txt")
SoftTargetLoss(space)(model(x), y)
fit_temperature(model(x), y)
print("trained")
'''


def required(distributions: Iterable[str]) -> set[str]:
    """These distributions and all that they need themselves, without their extras."""
    found: set[str] = set()
    waiting = list(distributions)
    while waiting:
        name = waiting.pop().lower().replace("_", "-")
        if name in found:
            continue
        found.add(name)
        try:
            needs = metadata.requires(name) or []
        except metadata.PackageNotFoundError:  # for another platform
            continue
        waiting += [re.split(r"[^\w.-]", need, maxsplit=1)[0] for need in needs if "extra ==" not in need]
    return found


def foreign_packages() -> set[str]:
    """Every importable top-level name of the environment that the core does not need."""
    needed = required(ALLOWED)
    return {
        package
        for package, distributions in metadata.packages_distributions().items()
        if not needed & {name.lower().replace("_", "-") for name in distributions} and package != "labelemb"
    }


def test_the_core_trains_and_saves_with_torch_numpy_and_safetensors_alone(tmp_path: Path) -> None:
    foreign = foreign_packages()
    assert {"sklearn", "matplotlib", "tqdm"} <= foreign  # the test would prove nothing without them
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, ",".join(sorted(foreign)), str(tmp_path / "space.safetensors")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "trained"


def test_everything_that_is_public_exists_and_is_documented() -> None:
    import labelemb

    for name in labelemb.__all__:
        value = getattr(labelemb, name)
        assert name == "__version__" or (value.__doc__ or "").strip(), name


@pytest.mark.parametrize("package", ["labelemb", "labelemb.lab"])
def test_type_checkers_see_the_public_names_where_they_are_loaded_from(package: str) -> None:
    module = importlib.import_module(package)
    tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
    typed = {
        alias.name: node.module
        for block in tree.body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert typed == module.HOMES
    assert set(module.__all__) <= set(dir(module))
    for name in module.__all__:
        value = getattr(module, name)
        assert getattr(value, "__module__", module.HOMES[name]) == module.HOMES[name], name


def test_an_unknown_name_is_an_attribute_error() -> None:
    import labelemb

    with pytest.raises(AttributeError, match="module 'labelemb' has no attribute 'Nothing'"):
        labelemb.Nothing  # type: ignore[attr-defined]  # noqa: B018  that is the test
