"""One version everywhere, and kept runs that this version goes on with."""

from __future__ import annotations

import json
import re
import tomllib

from labelemb.lab.runs.folder import comparable
from tests.helpers.pages import ROOT, text_of

VERSION: str = tomllib.loads(text_of("pyproject.toml"))["project"]["version"]


def test_the_citation_and_the_changelog_name_the_version() -> None:
    assert re.findall(r"^version: (.+)$", text_of("CITATION.cff"), re.MULTILINE) == [VERSION]
    assert re.findall(r"^## (\d\S*)", text_of("CHANGELOG.md"), re.MULTILINE)[0] == VERSION


def test_kept_runs_can_be_compared_with_new_ones() -> None:
    results = list((ROOT / "results" / "runs").rglob("result.json"))
    assert results
    versions = {json.loads(file.read_text(encoding="utf-8"))["version"] for file in results}
    assert all(comparable(version, VERSION) for version in versions), versions
