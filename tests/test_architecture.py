"""The folders are the architecture: who may import whom, no cycles, and files of a size that one can read."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from docs import architecture_tree
from tests.helpers.import_graph import LAZY, PACKAGE, SOURCE, ImportGraph, ImportOf

LAYERS = (
    *("support", "labelspace", "embeddings", "losses", "heads", "findings", "integrations"),
    *(f"lab.{folder}" for folder in ("recipes", "pretrained", "data", "bodies", "methods", "tasks", "runs", "trained")),
    *(f"lab.{folder}" for folder in ("comparison", "search", "report", "jobs", "cli")),
)
"""A folder imports only from itself and from folders before it."""
SLOW_PACKAGES = {
    *("matplotlib", "onnx", "onnxruntime", "onnxscript", "PIL", "pooch", "sacrebleu", "scipy", "sentencepiece"),
    *("sklearn", "torch", "tqdm"),
}
"""Third-party packages that may be imported inside functions, to keep them out of start-up."""
MOST_LINES = 350


@pytest.fixture(scope="module")
def graph() -> ImportGraph:
    return ImportGraph()


def layer_of(module: str) -> int:
    """The place of a module's folder in `LAYERS`."""
    inner = module.removeprefix(f"{PACKAGE}.")
    for number, folder in enumerate(LAYERS):
        if inner == folder or inner.startswith(f"{folder}."):
            return number
    raise AssertionError(f"{module} is in none of the folders {', '.join(LAYERS)}")


def wrong_direction(found: ImportOf) -> bool:
    return found.imported in LAZY or layer_of(found.imported) > layer_of(found.importer)


def misplaced(found: ImportOf) -> bool:
    """Whether an import inside a function has no reason to stand there."""
    root = found.imported.partition(".")[0]
    if not found.in_function or root in SLOW_PACKAGES:
        return False
    return root != PACKAGE or not found.importer.startswith(f"{PACKAGE}.lab.cli")


def test_every_module_is_in_a_layer(graph: ImportGraph) -> None:
    for module in graph.files:
        assert module in LAZY or layer_of(module) >= 0


def test_a_folder_imports_only_from_folders_before_it(graph: ImportGraph) -> None:
    wrong = {str(found) for found in graph.own_imports() if wrong_direction(found)}
    assert wrong == set()


def test_no_modules_import_each_other(graph: ImportGraph) -> None:
    assert graph.cycles() == []


def test_imports_stand_at_the_top_of_a_module(graph: ImportGraph) -> None:
    wrong = {f"{found} (line {found.line})" for found in graph.imports if misplaced(found)}
    assert wrong == set()


def test_no_file_is_too_long(graph: ImportGraph) -> None:
    lines = {module: len(path.read_text(encoding="utf-8").splitlines()) for module, path in graph.files.items()}
    assert {module: count for module, count in lines.items() if count > MOST_LINES} == {}


def test_no_file_or_folder_has_the_name_of_a_public_function(graph: ImportGraph) -> None:
    for package in LAZY:
        __import__(package)
        public = {name for name in sys.modules[package].__all__ if name != "__version__"}
        folder = SOURCE / Path(*package.split("."))
        assert not public & {path.stem for path in folder.iterdir()}


IMPORTS = {
    "from labelemb.heads.plain import PlainHead": "labelemb.heads.plain",
    "from labelemb.heads import plain": "labelemb.heads.plain",
    "from labelemb import PlainHead": "labelemb.heads.plain",
    "def f():\n    from labelemb import PlainHead": "labelemb.heads.plain",
    "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import labelemb.heads.plain": "labelemb.heads.plain",
    'run("labelemb.heads.plain")': "labelemb.heads.plain",
}


@pytest.mark.parametrize("text", IMPORTS)
def test_an_import_counts_wherever_and_however_it_is_written(text: str, tmp_path: Path) -> None:
    for name, content in {
        "__init__": 'HOMES = {"PlainHead": "labelemb.heads.plain"}\n',
        "support/__init__": "",
        "support/files": text + "\n",
        "heads/__init__": "",
        "heads/plain": "from labelemb.support.files import f\n",
    }.items():
        path = tmp_path / PACKAGE / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    graph = ImportGraph(tmp_path)
    wrong = [found.imported for found in graph.own_imports() if wrong_direction(found)]
    assert wrong == [IMPORTS[text]]
    assert graph.cycles() == [["labelemb.heads.plain", "labelemb.support.files"]]


def test_the_tree_of_the_page_is_the_source() -> None:
    text = architecture_tree.PAGE.read_text(encoding="utf-8")
    assert text == architecture_tree.page_with(architecture_tree.tree()), "run python docs/architecture_tree.py"


def test_the_tree_has_the_folders_in_the_order_of_the_layers() -> None:
    folders = [folder for folder in architecture_tree.LAYERS if folder != "lab"]
    assert folders == [layer.removeprefix("lab.") for layer in LAYERS]


def test_the_walks_of_the_page_visit_existing_files_once() -> None:
    walks = architecture_tree.PAGE.read_text(encoding="utf-8").partition("## Three walks")[2].split("**")[2::2]
    assert len(walks) == 3
    for walk in walks:
        files = re.findall(r"^\d+\. `([^`]+)`", walk, re.MULTILINE)
        assert len(files) > 4
        assert len(set(files)) == len(files)
        assert all((SOURCE / PACKAGE / file).is_file() for file in files), files
