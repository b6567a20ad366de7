"""What the pages say works: examples run, commands parse, links, pictures and files exist."""

from __future__ import annotations

import doctest
import importlib
import re
import shlex
from pathlib import Path
from unittest.mock import patch

import pytest
import torch

from tests.helpers.pages import PAGES, ROOT, Block, anchors, blocks, text_of, words_of

OTHER_TESTS = [
    file for file in sorted((ROOT / "tests").rglob("test_*.py")) if file.name not in ("test_docs.py", "test_readme.py")
]


def has_test_of_its_own(page: str) -> bool:
    """Examples that need something prepared are run by a test that names the page."""
    name = Path(page).name
    return name != "README.md" and any(name in file.read_text(encoding="utf-8") for file in OTHER_TESTS)


def has_examples(page: str) -> bool:
    return any(block.language == "python" or block.marked for block in blocks(page))


EXAMPLE_PAGES = [page for page in PAGES if has_examples(page) and not has_test_of_its_own(page)]


# those of integrations speak of models and trainers of the reader's; tests of their own run what they show
MODULES = [
    ".".join(file.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")
    for file in sorted((ROOT / "src").rglob("*.py"))
    if ">>> " in file.read_text(encoding="utf-8") and "integrations" not in file.parts
]


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_in_docstrings_give_what_they_say(module: str) -> None:
    outcome = doctest.testmod(
        importlib.import_module(module), extraglobs={"torch": torch}, optionflags=doctest.ELLIPSIS
    )
    assert outcome.attempted > 0
    assert outcome.failed == 0


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to save files in, in which pages find the results that the repository keeps, and no data of the user."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").symlink_to(ROOT / "results")
    monkeypatch.setenv("LABELEMB_DATA", str(tmp_path / "nowhere"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


@pytest.mark.parametrize("page", EXAMPLE_PAGES)
def test_the_examples_of_a_page_run_one_after_the_other(page: str, place: Path) -> None:
    torch.manual_seed(0)
    namespace: dict[str, object] = {"__name__": page}
    for block in blocks(page):
        if block.language == "python":
            # the empty lines make tracebacks point into the page
            exec(compile("\n" * block.line + block.code, str(ROOT / page), "exec"), namespace)
        elif block.marked:
            run_commands(block)


def run_commands(block: Block) -> None:
    from labelemb.lab.cli import main

    assert block.is_shell
    for command in block.commands():
        program, *arguments = words_of(command)
        assert program == "labelemb", command
        assert main(arguments) == 0, command


def commands() -> list[tuple[str, str]]:
    return [
        (page, command) for page in PAGES for block in blocks(page) if block.is_shell for command in block.commands()
    ]


@pytest.mark.parametrize(("page", "command"), commands())
def test_the_commands_of_a_page_exist(page: str, command: str) -> None:
    program, *arguments = words_of(command)
    if program == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        assert set(arguments) <= set(targets)
    elif program == "labelemb":
        parse_command(arguments)
    elif program == "torchrun":
        start = arguments.index("labelemb.lab.cli") if "labelemb.lab.cli" in arguments else None
        if start is not None:
            parse_command(arguments[start + 1 :])
    elif program.endswith("python") or program.startswith("python"):
        scripts = [argument for argument in arguments if argument.endswith(".py")]
        assert all((ROOT / script).exists() for script in scripts)
        assert scripts or arguments[:1] == ["-m"]
    else:
        assert program in ("pip", "git", "echo"), f"{page} names the unknown command {program}"


def parse_command(arguments: list[str]) -> None:
    from labelemb.lab.cli.command import build_parser
    from labelemb.lab.methods.method import parse_methods
    from labelemb.lab.recipes.recipe import load_recipe

    with patch("labelemb.lab.cli.arguments.Path.exists", return_value=True):  # runs are the reader's
        options = build_parser().parse_args(arguments)
    recipe = getattr(options, "recipe", None)
    if recipe and recipe != "apply" and not recipe.endswith(".toml"):  # `audit apply` has no recipe
        load_recipe(recipe, getattr(options, "set", None) or [])
    parse_methods(getattr(options, "methods", None) or getattr(options, "method", None) or "plain")


def test_commands_in_running_text_exist() -> None:
    """Inline code that is a whole command; names in capitals stand for something of the reader's."""
    for page in PAGES:
        for command in re.findall(r"`(labelemb (?:compare|train|recipes|report) [^`\n]+)`", text_of(page)):
            arguments = shlex.split(command)[1:]
            if not {"RECIPE", "RUN", "FOLDER", "..."} & set(arguments):
                parse_command(arguments)


@pytest.mark.parametrize("page", PAGES)
def test_the_links_pictures_and_files_of_a_page_exist(page: str) -> None:
    text, folder = text_of(page), (ROOT / page).parent
    links = re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", text)
    pictures = [(target, "") for target in re.findall(r'(?:src|srcset)="([^"]+)"', text)]
    for target, anchor in [*links, *pictures]:
        if "://" in target:
            continue
        linked = folder / target if target else ROOT / page
        assert linked.exists(), target
        assert not anchor or anchor in anchors(linked), f"{target}#{anchor}"
    for path in re.findall(r"`((?:src|tests|examples|docs|benchmarks|results)/[\w@./-]+\w)`", text):
        assert (ROOT / path).exists(), path
