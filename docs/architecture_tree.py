"""Writes the tree of docs/architecture.md from the source: `python docs/architecture_tree.py`.

Each line has a file or folder and the first line of its docstring. A test compares the page with the source.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"
SOURCE = ROOT / "src" / "labelemb"
FENCE = "```text\n"
LAYERS = (
    *("support", "labelspace", "embeddings", "losses", "heads", "findings", "integrations", "lab"),
    *("recipes", "pretrained", "data", "bodies", "methods", "tasks", "runs", "trained", "comparison"),
    *("search", "report", "jobs", "cli"),
)
"""Folders in the order in which they may import each other."""
DATA_FOLDERS = {"shipped": "the recipes in the package", "page": "template, style and scripts of the page"}


def tree() -> str:
    """The tree as text."""
    lines = list(_lines(SOURCE, 0))
    width = max(len(name) for name, _ in lines) + 2
    return "\n".join(f"{name:<{width}}{about}" for name, about in lines) + "\n"


def page_with(text: str) -> str:
    """The page with another tree."""
    page = PAGE.read_text(encoding="utf-8")
    start = page.index(FENCE) + len(FENCE)
    return page[:start] + text + page[page.index("```", start) :]


def _lines(folder: Path, depth: int) -> Iterator[tuple[str, str]]:
    yield f"{'  ' * depth}{folder.name}/", _first_line(folder / "__init__.py")
    files = sorted(path for path in folder.glob("*.py") if path.name != "__init__.py")
    for path in files:
        yield f"{'  ' * (depth + 1)}{path.name}", _first_line(path)
    for inner in sorted((path for path in folder.iterdir() if path.is_dir()), key=_order):
        if (inner / "__init__.py").exists():
            yield from _lines(inner, depth + 1)
        elif inner.name in DATA_FOLDERS:
            yield f"{'  ' * (depth + 1)}{inner.name}/", DATA_FOLDERS[inner.name]


def _order(folder: Path) -> tuple[int, str]:
    is_layer = folder.name in LAYERS and folder.parent in (SOURCE, SOURCE / "lab")
    return (LAYERS.index(folder.name) if is_layer else len(LAYERS)), folder.name


def _first_line(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0].removesuffix(".")


if __name__ == "__main__":
    PAGE.write_text(page_with(tree()), encoding="utf-8")
