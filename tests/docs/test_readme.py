"""What the README says is there: the options with their defaults, and headline numbers that are in the results."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest

from labelemb import Objective
from tests.helpers.pages import ROOT


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def section(text: str, heading: str) -> str:
    """What stands between a heading and the next one of its kind."""
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, heading
    return found.group(1)


def test_the_readme_lists_every_option_of_the_objective() -> None:
    missing = [field.name for field in fields(Objective) if f"`{field.name}`" not in text_of("README.md")]
    assert not missing


@pytest.mark.parametrize("page", ["README.md", "docs/options.md"])
def test_the_defaults_in_the_option_tables_are_the_objectives(page: str) -> None:
    """A row of such a table starts with the option's name and its default."""
    rows = dict(re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", text_of(page), re.MULTILINE))
    for field in fields(Objective):
        assert rows[field.name].strip('"') == str(field.default), field.name


def test_every_headline_number_stands_in_the_results_with_its_spread() -> None:
    numbers = re.findall(r"\d+\.\d\d ± \d+\.\d\d", section(text_of("README.md"), "Results"))
    assert numbers
    results = text_of("results/README.md")
    assert not [number for number in numbers if number not in results]


@pytest.mark.parametrize("contents", ["README.md", "docs/README.md"])
def test_every_page_is_listed_in_the_tables_of_contents(contents: str) -> None:
    folder = (ROOT / contents).parent
    linked = {(folder / target).resolve() for target in re.findall(r"\]\(([^)#\s]+\.md)", text_of(contents))}
    pages = set((ROOT / "docs").glob("*.md")) - {ROOT / contents}
    assert not sorted(page.name for page in pages if page.resolve() not in linked)
