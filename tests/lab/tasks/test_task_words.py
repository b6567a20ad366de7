"""Which task it is, only the tasks, the recipes and the help texts know."""

import ast
import re
from pathlib import Path

import pytest

from labelemb.lab.tasks.registry import TASKS
from tests.helpers.pages import ROOT

LAB = ROOT / "src" / "labelemb" / "lab"
FILES = [
    path.relative_to(LAB)
    for path in sorted(LAB.rglob("*.py"))
    if path.relative_to(LAB).parts[0] not in ("tasks", "recipes", "cli")
]
NAMES = re.compile("|".join(task.name for task in TASKS), re.IGNORECASE)


@pytest.mark.parametrize("file", FILES, ids=str)
def test_no_other_folder_names_a_task(file: Path) -> None:
    assert NAMES.findall((LAB / file).read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("file", sorted((LAB / "cli").glob("*.py")), ids=lambda path: path.name)
def test_the_command_names_tasks_in_help_texts_only(file: Path) -> None:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Compare | ast.Match):
            assert NAMES.findall(ast.unparse(node)) == []
        assert not (isinstance(node, ast.Attribute) and ast.unparse(node).endswith("recipe.task"))
