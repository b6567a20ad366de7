"""The site that `make docs` builds: complete, whole, and loading nothing from other servers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import labelemb
from tests.helpers.pages import PAGES, ROOT

pytestmark = pytest.mark.slow
pytest.importorskip("mkdocs", reason="needs the extra [docs]")
pytest.importorskip("markdown_it", reason="needs the extra [docs]")

LOADED = {("script", "src"), ("img", "src"), ("source", "srcset"), ("link", "href"), ("iframe", "src")}
COUNTED = ("li", "tr", "pre", "h2", "h3")


@dataclass
class Elements(HTMLParser):
    """What a page of the site links to, loads and can be linked at."""

    tags: list[str] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.add(value or "")
            elif (tag, name) in LOADED:
                self.loaded.append(value or "")
            elif (tag, name) == ("a", "href"):
                self.links.append(value or "")


def elements(text: str) -> Elements:
    parser = Elements()
    parser.feed(text)
    return parser


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    built = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr[-3000:]
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Elements]:
    return {file: elements(file.read_text(encoding="utf-8")) for file in site.rglob("*.html")}


def test_every_public_name_has_an_entry_in_the_reference(site: Path, pages: dict[Path, Elements]) -> None:
    entries = {name for file, page in pages.items() if file.parent == site / "api" for name in page.ids}
    assert not sorted({f"labelemb.{name}" for name in labelemb.__all__} - entries)


def test_links_lead_to_pages_and_headings_that_exist(site: Path, pages: dict[Path, Elements]) -> None:
    broken = []
    for file, page in pages.items():
        if file.name == "404.html":  # its links are from the root of a server
            continue
        for link in [*page.links, *page.loaded]:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            target = target / "index.html" if target.is_dir() else target
            anchor = unquote(parts.fragment)
            known = target not in pages or not anchor or anchor in pages[target].ids
            if not target.is_file() or not known:
                broken.append((file.relative_to(site).as_posix(), link))
    assert not broken


def test_nothing_is_loaded_from_other_servers(site: Path, pages: dict[Path, Elements]) -> None:
    loaded = {link for page in pages.values() for link in page.loaded}
    assert loaded
    assert not [link for link in loaded if urlsplit(link).netloc]
    styles = "".join(file.read_text(encoding="utf-8") for file in site.rglob("*.css"))
    assert not re.findall(r"url\(['\"]?https?:[^)]*", styles)


def page_files() -> Iterator[tuple[str, str]]:
    special = {"README.md": "about.html", "results/README.md": "results/index.html", "docs/README.md": "index.html"}
    return ((page, special.get(page, f"{Path(page).stem}.html")) for page in PAGES)


@pytest.mark.parametrize(("page", "file"), list(page_files()))
def test_lists_tables_and_headings_are_those_that_the_page_has_elsewhere(page: str, file: str, site: Path) -> None:
    """Two dialects of Markdown read one page: the site's, and CommonMark with tables, which hosts of code show."""
    from markdown_it import MarkdownIt

    expected = elements(MarkdownIt("commonmark").enable("table").render((ROOT / page).read_text(encoding="utf-8")))
    article = (site / file).read_text(encoding="utf-8").partition("<article")[2].partition("</article>")[0]
    found = elements(article)
    assert {tag: found.tags.count(tag) for tag in COUNTED} == {tag: expected.tags.count(tag) for tag in COUNTED}


def test_equations_are_written_without_a_script(site: Path) -> None:
    method = (site / "method.html").read_text(encoding="utf-8")
    assert "<math" in method
    assert "arithmatex" not in method


def test_search_knows_the_pages_and_the_reference(site: Path) -> None:
    index = (site / "search" / "search_index.json").read_text(encoding="utf-8")
    assert "method.html" in index
    assert "api/heads.html#labelemb.heads" in index
