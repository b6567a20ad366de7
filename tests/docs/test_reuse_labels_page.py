"""docs/reuse-labels.md: its trainings and its python run on small data, its comparisons are understood."""

import re
import shlex
from pathlib import Path

import pytest

from labelemb.lab.cli import main
from labelemb.lab.cli.command import build_parser
from labelemb.lab.methods.method import parse_methods
from tests.helpers.pages import ROOT
from tests.helpers.quick_runs import quick_run
from tests.helpers.tiny_data import text_rows, write_csv, write_mnist

PAGE = ROOT / "docs" / "reuse-labels.md"
SMALL = {
    "mnist-mlp": ["data.dev_size=20", "body.hidden=[16]"],
    "mnist-cnn": ["data.dev_size=20", "body.width=0.1", "body.hidden=[16]"],
    "text-csv": ["body.hidden=[16]", "data.dev_size=0.2"],
    "digits": ["body.hidden=[16]"],
}


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.fixture
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The data and the run that the page takes for granted."""
    monkeypatch.chdir(tmp_path)
    write_mnist(Path("mnist"), train=80)
    intents = ["play_music", "play_radio", "weather"]
    write_csv(Path("intents.csv"), text_rows(labels=intents))
    write_csv(Path("some-intents.csv"), text_rows(labels=intents[1:]))
    (table,) = blocks("csv")
    Path("similarities.csv").write_text(table)
    quick_run(Path("runs/digits/label-embedding/seed-0"))


@pytest.mark.usefixtures("prepared")
def test_the_page_runs() -> None:
    commands = [shlex.split(line)[1:] for block in blocks("sh") for line in block.splitlines()]
    assert {command[0] for command in commands} == {"train", "compare"}
    for command in commands:
        if command[0] == "compare":
            parse_methods(build_parser().parse_args(command).methods)
        else:
            small = [word for setting in (*SMALL[command[1]], "train.epochs=1") for word in ("--set", setting)]
            assert main([*command, *small]) == 0, command
    for run in ("mnist-cnn/reused-labels/seed-0", "some", "digits/reused-labels@warm-start/seed-0", "expert"):
        assert Path("runs", run, "result.json").exists(), run
    for source in blocks("python"):
        exec(compile(source, str(PAGE), "exec"), {})
    assert main(["heatmap", "similarities.csv"]) == 0


def test_the_options_of_the_table_exist() -> None:
    _, _, after = PAGE.read_text(encoding="utf-8").partition("## Options")
    cells = [row.split("|")[1] for row in after.split("\n\n")[1].splitlines()[2:]]
    options = [option for cell in cells for option in re.findall(r"`([^`]+)`", cell)]
    assert len(options) >= 8
    for option in options:
        parse_methods(f"reused-labels@{option}0.5" if option.endswith("=") else f"reused-labels@{option}")
