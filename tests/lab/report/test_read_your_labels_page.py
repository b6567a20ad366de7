"""docs/read-your-labels.md: its commands and its python run on a comparison."""

import re
import shlex
from pathlib import Path

import pytest

from labelemb.lab.cli import main
from labelemb.lab.cli.command import build_parser
from tests.helpers.pages import ROOT
from tests.helpers.quick_runs import quick_run

PAGE = ROOT / "docs" / "read-your-labels.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for method in ("plain", "label-embedding"):
        quick_run(Path("runs/digits") / method / "seed-0", method=method)
    commands = [shlex.split(line)[1:] for block in blocks("sh") for line in block.splitlines()]
    assert {command[0] for command in commands} == {"compare", "report", "nearest", "heatmap", "map"}
    for command in commands:
        if command[0] == "compare":  # what it would train is there already, in small
            assert build_parser().parse_args(command).out == Path("runs/digits")
        else:
            assert main(command) == 0, command
    for file in ("runs/digits/report.html", "digits.html", "some.svg", "map.svg"):
        assert Path(file).exists(), file
    quick_run(Path("runs/digits/label-embedding/seed-1"), seed=1)
    namespace: dict[str, object] = {}
    for source in blocks("python"):
        exec(compile(source, str(PAGE), "exec"), namespace)


def test_the_pictures_of_the_page_exist() -> None:
    pictures = re.findall(r"!\[[^]]+\]\(([^)]+)\)", PAGE.read_text(encoding="utf-8"))
    assert pictures
    assert all((PAGE.parent / picture).exists() for picture in pictures)
