"""What `make docs` adds to the pages of docs/: the repository's other pages, the API reference, equations.

A link that leaves docs/ ("../results/README.md") works on the site too: the file it names becomes a page or a file of
the site, at its path in the repository. The menu is the tables of docs/README.md; the API reference is from `__all__`.
"""

from __future__ import annotations

import html
import importlib
import json
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
HOME = ROOT / "README.md"
PROJECT_PAGES = (HOME, ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md")
LINK = re.compile(r'(?P<before>\]\(|(?:src|srcset)=")(?P<target>[^)\s#":]+)(?P<anchor>#[^)\s"]*)?(?P<after>\)|")')
PUBLIC_MODULES = (
    "labelemb",
    "labelemb.heads.sharded",
    "labelemb.lab",
    "labelemb.integrations.sklearn",
    "labelemb.integrations.transformers",
    "labelemb.integrations.lightning",
)
"""Modules that a user imports names from. A name that an earlier one has is not listed again."""

sys.path.insert(0, str(ROOT / "src"))


def source_of(uri: str) -> Path:
    """The file in the repository that a page of the site is made from."""
    for project_page in PROJECT_PAGES:
        if uri == uri_of(project_page):
            return project_page
    inside = DOCS / uri
    notebook = (ROOT / uri).with_suffix(".ipynb")
    return inside if inside.exists() else notebook if notebook.exists() else ROOT / uri


def uri_of(source: Path) -> str:
    """Where a file of the repository stands on the site."""
    if source == HOME:
        return "about.md"
    uri = source.relative_to(DOCS if source.is_relative_to(DOCS) else ROOT)
    return uri.with_suffix(".md").as_posix() if source.suffix == ".ipynb" else uri.as_posix()


def linked_files(text: str, source: Path) -> set[Path]:
    """The files of the repository that a page links to, or shows."""
    targets = (Path(os.path.normpath(source.parent / found["target"])) for found in LINK.finditer(text))
    return {target for target in targets if target.is_file() and target.is_relative_to(ROOT)}


def outside_files() -> list[Path]:
    """The project's pages and what can be reached from docs/ and from them by links, without docs/ itself."""
    pending = {*DOCS.glob("*.md"), *(page for page in PROJECT_PAGES if page.exists())}
    found: set[Path] = set()
    while pending:
        source = pending.pop()
        found.add(source)
        if source.suffix == ".md":
            pending |= linked_files(source.read_text(encoding="utf-8"), source) - found
    return sorted(source for source in found if not source.is_relative_to(DOCS))


def site_links(text: str, uri: str) -> str:
    """The page with links as they must be on the site; of a link to a folder only the words stay."""
    source = source_of(uri)

    def replace(found: re.Match[str]) -> str:
        target = Path(os.path.normpath(source.parent / found["target"]))
        if not target.is_file() or not target.is_relative_to(ROOT):
            return found[0]
        link = Path(os.path.relpath(uri_of(target), Path(uri).parent)).as_posix()
        return f"{found['before']}{link}{found['anchor'] or ''}{found['after']}"

    def drop_folder(found: re.Match[str]) -> str:
        return found["words"] if (source.parent / found["target"]).is_dir() else found[0]

    return LINK.sub(replace, re.sub(r"\[(?P<words>[^\]]+)\]\((?P<target>[^)\s#:]+)\)", drop_folder, text))


def github_lists(text: str) -> str:
    """Lists as GitHub reads them: directly after a paragraph, with further paragraphs of an item indented by 2.

    Python-Markdown wants an empty line before a list, and 4 spaces.
    """
    lines: list[str] = []
    fence_shift: int | None = None  # inside of a fenced block: by how much its lines move
    in_later_paragraph = False  # of a list item
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip(" "))
        shift = fence_shift if fence_shift is not None else 4 - indent if 2 <= indent < 4 else 0
        if line.lstrip().startswith("```"):
            fence_shift = shift if fence_shift is None else None
        elif fence_shift is None and re.match(r"[-*] |1\. ", line) and lines:
            after_text = re.match(r"[^\s|#<*\d-]|\*\*", lines[-1])
            if after_text or (in_later_paragraph and lines[-1]):
                lines.append("")
        if line:
            in_later_paragraph = indent >= 2 and (in_later_paragraph or not lines or not lines[-1])
        lines.append(" " * shift + line if line else line)
    return "\n".join(lines) + "\n"


def page_of_notebook(file: Path) -> str:
    """A notebook with its outputs as Markdown."""
    parts = []
    for cell in json.loads(file.read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
        parts.extend(_output_of_cell(output) for output in cell.get("outputs", []))
    return "\n\n".join(parts) + "\n"


def _output_of_cell(output: dict[str, Any]) -> str:
    data = output.get("data", {})
    if "image/png" in data:
        picture = "".join(data["image/png"]).replace("\n", "")
        return f'<img alt="output" src="data:image/png;base64,{picture}">'
    if "text/html" in data:
        lines = (line.strip() for line in "".join(data["text/html"]).splitlines())
        return "<div>" + " ".join(line for line in lines if line) + "</div>"
    return "```text\n" + "".join(output.get("text", data.get("text/plain", ""))).rstrip() + "\n```"


@dataclass(frozen=True)
class PublicName:
    """A name to import, where it is defined, and the page of the reference that it stands on."""

    name: str
    module: str
    defined: str
    summary: str

    @property
    def section(self) -> str:
        """The folder of the package for names of `labelemb`, else the module."""
        return self.defined.split(".")[1] if self.module == "labelemb" else self.module.removeprefix("labelemb.")

    @property
    def anchor(self) -> str:
        return f"{self.module}.{self.name}"

    def entry(self) -> str:
        if self.name.startswith("__"):
            return f'<h2 id="{self.anchor}"><code>{self.name}</code></h2>\n\n{self.summary}\n'
        options = f'    options:\n      heading: "{self.name}"\n      toc_label: "{self.name}"\n'
        return f"[](){{ #{self.anchor} }}\n\n::: {self.defined}\n{options}"


def public_names() -> list[PublicName]:
    """All names that the documentation promises, in the order of `PUBLIC_MODULES`."""
    names: dict[str, PublicName] = {}
    for module in map(importlib.import_module, PUBLIC_MODULES):
        own = [name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
        listed = getattr(module, "__all__", [name for name in own if not name.startswith("_")])
        for name in listed:
            value = getattr(module, name)
            defined = _definition(module.__name__, name, value)
            names.setdefault(defined, PublicName(name, module.__name__, defined, _summary(name, value)))
    return list(names.values())


def _definition(module: str, name: str, value: object) -> str:
    if name == "__version__":
        return "labelemb.support.version.__version__"
    return f"{getattr(value, '__module__', module)}.{getattr(value, '__qualname__', name)}"


def _summary(name: str, value: object) -> str:
    if name == "__version__":
        return "The version that is installed."
    return (getattr(value, "__doc__", None) or "").strip().partition("\n")[0]


def api_pages() -> dict[str, str]:
    """The pages of the reference by their uri: one a section, and a list of all names."""
    sections: dict[str, list[PublicName]] = {}
    for public in public_names():
        sections.setdefault(public.section, []).append(public)
    pages = {f"api/{section}.md": _section_page(section, names) for section, names in sections.items()}
    contents = ["# API reference", "Every public name, from the docstrings."]
    for section, names in sections.items():
        rows = [f"| [`{public.name}`]({section}.md#{public.anchor}) | {public.summary} |" for public in names]
        contents.append("\n".join([f"## {section}", "", "| name | |", "| --- | --- |", *rows]))
    return {"api/README.md": "\n\n".join(contents) + "\n", **pages}


def _section_page(section: str, names: list[PublicName]) -> str:
    about = (importlib.import_module(f"labelemb.{section}").__doc__ or "").strip().partition("\n")[0]
    imports = ", ".join(public.name for public in names)
    code = f"```python\nfrom {names[0].module} import {imports}\n```" if len(names) < 4 else ""
    source = f"`from {names[0].module} import ...`"
    return "\n\n".join([f"# {section}", about, code or source, *(public.entry() for public in names)])


def menu() -> list[Any]:
    """The tables of docs/README.md as sections of the menu, then the reference and the project's pages."""
    contents = (DOCS / "README.md").read_text(encoding="utf-8")
    sections: list[Any] = ["README.md"]
    for table in re.findall(r"(?:^\|.*\n)+", contents, re.MULTILINE):
        title = table.split("|")[1].strip()
        targets = re.findall(r"\]\(([^)\s#]+\.md)\)", table)
        pages = dict.fromkeys(uri_of(Path(os.path.normpath(DOCS / target))) for target in targets)
        pages.pop(uri_of(HOME), None)
        sections.append({title[:1].upper() + title[1:]: list(pages)})
    sections.append({"Examples": [uri_of(file) for file in outside_files() if file.suffix == ".ipynb"]})
    project = [uri_of(page) for page in PROJECT_PAGES if page.exists()]
    return [*sections, {"API reference": list(api_pages())}, {"Project": [{"About": project[0]}, *project[1:]]}]


def on_config(config: MkDocsConfig) -> None:
    config.nav = menu()


def on_files(files: Files, config: MkDocsConfig) -> None:
    for uri, content in api_pages().items():
        files.append(File.generated(config, uri, content=content))
    for source in outside_files():
        made = source.suffix == ".ipynb"
        content = {"content": page_of_notebook(source)} if made else {"abs_src_path": str(source)}
        files.append(File.generated(config, uri_of(source), **content))


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    if page.file.src_uri.startswith("api/"):
        return markdown
    # Markdown inside of HTML tables, as GitHub reads it
    markdown = re.sub(r"<(table|tr|t[dh])>", r'<\1 markdown="1">', markdown)
    return site_links(github_lists(markdown), page.file.src_uri)


def on_page_content(html_text: str, **_: Any) -> str:
    return re.sub(r'<(span|div) class="arithmatex">(.*?)</\1>', _equation, html_text, flags=re.DOTALL)


def _equation(found: re.Match[str]) -> str:
    latex = html.unescape(found[2]).strip()[2:-2]
    return convert(latex, display="block" if found[1] == "div" else "inline")
