"""Options with their defaults, headline numbers that are in the results, and a README of a few screens."""

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


def test_the_readme_is_read_in_a_few_minutes() -> None:
    assert len(text_of("README.md").splitlines()) <= 180


def test_the_table_of_options_has_every_one_of_the_objective_with_its_default() -> None:
    """A row of the table starts with the option's name and its default."""
    rows = dict(re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", text_of("docs/options.md"), re.MULTILINE))
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
