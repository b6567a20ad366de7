"""`write_report`: writes a self-contained HTML page from template, style, scripts and data."""

import json
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from labelemb.lab.comparison.summary import FolderResults
from labelemb.lab.report.gather import gather, read_folder
from labelemb.support.errors import UserError
from labelemb.support.files import write_text

SCRIPTS = (
    "base.js",
    "chart.js",
    "methods.js",
    "pictures.js",
    "summary.js",
    "curves.js",
    "calibration.js",
    "space.js",
    "search.js",
    "map.js",
    "matrices.js",
    "pairs.js",
    "errors.js",
    "page.js",
)
"""In the order in which they go into the page; each uses only names of those before it when it is read."""


def write_report(folder: Path | str, out: Path | str | None = None) -> Path:
    """Write the page of a run or a comparison, by default report.html in its folder, and return the file.

    If no run is finished, the page shows what there is, and then a `UserError` says what is missing.
    """
    found = read_folder(Path(folder))
    path = Path(folder) / "report.html" if out is None else Path(out)
    write_page(found, path)
    if not found.finished:
        raise UserError(f"{folder} has no finished run: {path} shows what there is")
    return path


def write_page(found: FolderResults, path: Path) -> None:
    """Write the page for the results of a folder."""
    write_text(path, page(gather(found)))


def page(data: dict[str, Any]) -> str:
    """The page that shows this data."""
    return assemble("page.html", SCRIPTS, data)


def assemble(
    template: str, scripts: Sequence[str], data: dict[str, Any], styles: Sequence[str] = ("style.css",)
) -> str:
    """A page of one file: a template with the style, the scripts and the data inside it."""
    parts = resources.files(__package__) / "page"
    html = (parts / template).read_text(encoding="utf-8")
    style = "\n".join((parts / name).read_text(encoding="utf-8") for name in styles)
    script = "\n".join((parts / name).read_text(encoding="utf-8") for name in scripts)
    # the data goes in last, so that nothing in it can be taken for a marker of the template
    for place, text in (("STYLE", style), ("SCRIPT", script), ("DATA", embedded_json(data))):
        before, after = html.split(f"/*{place}*/")
        html = before + text + after
    return html


def embedded_json(data: Any) -> str:
    """JSON that can stand inside a script element: no text in it can end the element or begin another."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
