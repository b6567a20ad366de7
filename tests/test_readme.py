"""What the pages say works: python blocks run, commands parse, links and files exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parent.parent
PAGES = [
    "README.md",
    "docs/method.md",
    "docs/drop-in.md",
    "docs/many-labels.md",
    "docs/options.md",
    "docs/translation.md",
]


def blocks(page: str, languages: str) -> list[tuple[int, str]]:
    """The fenced blocks of a page in some languages ("python", "sh|bash"), each with the line it starts at."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = re.finditer(rf"^```(?:{languages})\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [(text.count("\n", 0, match.start(1)), match.group(1)) for match in found]


@pytest.mark.parametrize("page", PAGES)
def test_the_python_blocks_of_a_page_run_one_after_the_other(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where pages save files
    torch.manual_seed(0)
    namespace: dict[str, object] = {"__name__": page}
    code = blocks(page, "python")
    assert code, f"{page} has no python block"
    for line, source in code:
        # the empty lines make tracebacks point into the page
        exec(compile("\n" * line + source, str(ROOT / page), "exec"), namespace)


def commands() -> list[tuple[str, str]]:
    found = []
    for page in PAGES:
        for _, text in blocks(page, "sh|bash"):
            lines = (line.partition("  #")[0].strip() for line in text.replace("\\\n", " ").splitlines())
            found += [(page, line) for line in lines if line and not line.startswith("#")]
    return found


@pytest.mark.parametrize(("page", "command"), commands())
def test_the_commands_of_a_page_exist(page: str, command: str) -> None:
    program, *arguments = (word for word in shlex.split(command) if not re.match(r"[A-Z_]+=", word))
    if program == "make":
        targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        assert set(arguments) <= set(targets)
    elif program == "labelemb":
        from labelemb.lab.cli.main import build_parser
        from labelemb.lab.methods import parse_methods
        from labelemb.lab.recipe import load_recipe

        options = build_parser().parse_args(arguments)
        if getattr(options, "recipe", None):
            load_recipe(options.recipe)
        parse_methods(getattr(options, "methods", None) or getattr(options, "method", None) or "plain")
    elif program.endswith("python") or program.startswith("python"):
        scripts = [argument for argument in arguments if argument.endswith(".py")]
        assert all((ROOT / script).exists() for script in scripts)
        assert scripts or arguments[:1] == ["-m"]
    else:
        assert program in ("pip", "git"), f"{page} names the unknown command {program}"


def anchors(page: Path) -> set[str]:
    """What a link to a heading of the page may say after its #."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES)
def test_the_files_and_headings_that_a_page_names_exist(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for target, anchor in re.findall(r"\]\(([^)#\s]+)(?:#([^)]*))?\)", text):
        if "://" in target or "results/" in target:  # the tables in results are written by runs
            continue
        linked = (ROOT / page).parent / target
        assert linked.exists(), target
        assert not anchor or anchor in anchors(linked), f"{target}#{anchor}"
    for path in re.findall(r"`((?:src|tests|examples|docs)/[\w./-]+\.\w+)`", text):
        assert (ROOT / path).exists(), path


def test_the_readme_lists_every_option_of_the_objective() -> None:
    from dataclasses import fields

    from labelemb import Objective

    text = (ROOT / "README.md").read_text(encoding="utf-8")
    missing = [field.name for field in fields(Objective) if f"`{field.name}`" not in text]
    assert not missing


@pytest.mark.parametrize("page", ["README.md", "docs/options.md"])
def test_the_defaults_in_the_option_tables_are_the_objectives(page: str) -> None:
    """A row of such a table starts with the option's name and its default."""
    from dataclasses import fields

    from labelemb import Objective

    text = (ROOT / page).read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", text, re.MULTILINE))
    for field in fields(Objective):
        assert rows[field.name].strip('"') == str(field.default), field.name
