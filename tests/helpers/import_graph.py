"""The imports of the package as its source text says them, wherever they stand."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.helpers.pages import ROOT

SOURCE = ROOT / "src"
PACKAGE = "labelemb"
LAZY = (PACKAGE, f"{PACKAGE}.lab")
"""Packages whose public names are loaded when they are first used: an import of a name is one of its own module."""


@dataclass(frozen=True)
class ImportOf:
    """One import: which module imports which, and where it stands."""

    importer: str
    imported: str
    in_function: bool
    line: int

    def __str__(self) -> str:
        return f"{self.importer} -> {self.imported}"


class ImportGraph:
    """All modules below a folder that holds the package, and their imports."""

    def __init__(self, source: Path = SOURCE) -> None:
        self.files = {_module_name(path, source): path for path in sorted((source / PACKAGE).rglob("*.py"))}
        self._trees = {module: ast.parse(path.read_text(encoding="utf-8")) for module, path in self.files.items()}
        self._homes = {package: _homes(self._trees[package]) for package in LAZY if package in self._trees}
        self.imports = [found for module in self.files for found in self._imports_of(module)]

    def own_imports(self) -> Iterator[ImportOf]:
        """Imports of modules of the package, without the tables of public names."""
        return (found for found in self.imports if found.imported in self.files and found.importer not in LAZY)

    def cycles(self, without: Collection[str] = ()) -> list[list[str]]:
        """Sets of modules that import each other, directly or through others, without some imports."""
        edges: dict[str, set[str]] = {module: set() for module in self.files}
        for found in self.own_imports():
            if str(found) in without:
                continue
            edges[found.importer].add(found.imported)
        reachable = {module: _reachable(edges, module) for module in edges}
        groups = {
            tuple(sorted(other for other in reachable[module] if module in reachable[other]))
            for module in edges
            if module in reachable[module]
        }
        return sorted(map(list, groups))

    def _imports_of(self, module: str) -> Iterator[ImportOf]:
        tree = self._trees[module]
        documentation = {
            id(node.body[0].value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and node.body
            and isinstance(node.body[0], ast.Expr)
        }
        inside = {
            id(node)
            for function in ast.walk(tree)
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
            for node in ast.walk(function)
        }
        for node in ast.walk(tree):
            for name in self._imported_by(module, node, documentation):
                if name != module:
                    yield ImportOf(module, name, id(node) in inside, getattr(node, "lineno", 0))

    def _imported_by(self, module: str, node: ast.AST, documentation: set[int]) -> Iterator[str]:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: imports are absolute"
            assert node.module
            for alias in node.names:
                yield self._home(node.module, alias.name)
        elif isinstance(node, ast.Constant) and id(node) not in documentation and node.value in self.files:
            # a module path in a string, such as that of a worker process; a folder's own name finds its data files
            own_folder = module == node.value or module.startswith(f"{node.value}.")
            if node.value != PACKAGE and not own_folder:
                yield node.value

    def _home(self, package: str, name: str) -> str:
        """The module that an imported name is in."""
        if f"{package}.{name}" in self.files:
            return f"{package}.{name}"
        return self._homes.get(package, {}).get(name, package)


def _module_name(path: Path, source: Path) -> str:
    parts = path.relative_to(source).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _homes(tree: ast.Module) -> dict[str, str]:
    """The table `HOMES` of a package."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "HOMES":
            table: dict[str, str] = ast.literal_eval(node.value)
            return table
    return {}


def _reachable(edges: dict[str, set[str]], start: str) -> set[str]:
    """What can be reached from a module by at least one import."""
    found: set[str] = set()
    waiting = list(edges[start])
    while waiting:
        module = waiting.pop()
        if module not in found:
            found.add(module)
            waiting += edges[module]
    return found
