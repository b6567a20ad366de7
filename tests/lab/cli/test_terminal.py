"""Names and texts of a stranger's file do not steer the terminal that shows them."""

import csv
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from labelemb import LabelSpace
from labelemb.lab.cli import main, trained, translation
from labelemb.lab.data.dataset import InputPlace
from labelemb.lab.jobs.progress import print_line
from labelemb.lab.tasks.task import Prediction
from labelemb.lab.trained.model import TrainedModel
from tests.helpers.command import Capture, error_line

HOSTILE = ["cat\x1b]0;owned\x07", "\u202egod", "plain\nline", "中文"]


@pytest.fixture
def space_file(tmp_path: Path) -> str:
    file = tmp_path / "hostile.safetensors"
    LabelSpace.from_matrix([[0.4, 0.3, 0.2, 0.1]] * 4, HOSTILE).save(file)
    return str(file)


def is_safe(text: str) -> bool:
    return all(line.replace("\t", "").isprintable() for line in text.split("\n"))


def test_nearest_escapes_names(space_file: str, capsys: Capture) -> None:
    assert main(["nearest", space_file, HOSTILE[0], HOSTILE[3]]) == 0
    text = capsys.readouterr().out
    assert is_safe(text)
    assert "nearest to cat\\x1b]0;owned\\x07:" in text
    assert "\\u202egod" in text
    assert "中文" in text


def test_nearest_as_json_has_the_names_as_they_are(space_file: str, capsys: Capture) -> None:
    assert main(["nearest", space_file, HOSTILE[0], "--json"]) == 0
    text = capsys.readouterr().out
    assert is_safe(text)
    assert {near["name"] for near in json.loads(text)[HOSTILE[0]]} == set(HOSTILE[1:])


def test_an_unknown_name_is_escaped_in_the_error(space_file: str, capsys: Capture) -> None:
    assert is_safe(error_line(capsys, "nearest", space_file, "\u202ecat\x1b"))


def predict_always(monkeypatch: pytest.MonkeyPatch, found: list[Prediction]) -> None:
    """Any run is finished and calibrated, and its model predicts this."""
    monkeypatch.setattr(TrainedModel, "__init__", lambda self, folder: None)
    monkeypatch.setattr(TrainedModel, "is_calibrated", True)
    monkeypatch.setattr(trained, "require_finished", lambda folder: None)
    monkeypatch.setattr(TrainedModel, "predict", lambda self, files, k: found)


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_predict_escapes_labels_and_texts(
    options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    found = Prediction(InputPlace("a.txt", 1, HOSTILE[1]), HOSTILE, [0.4, 0.3, 0.2, 0.1])
    predict_always(monkeypatch, [found])
    assert main(["predict", ".", __file__, *options]) == 0
    text = capsys.readouterr().out
    assert is_safe(text)
    assert len(text.splitlines()) == 1
    if options:
        assert json.loads(text)["label"] == HOSTILE[0]


def test_every_alternative_in_a_csv_file_is_defused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    labels = ["cat", "=1+1", "dog", "@SUM(A1)"]
    found = [Prediction(InputPlace("a.txt", 1, "a"), labels[:count], [0.4, 0.3, 0.2, 0.1][:count]) for count in (4, 1)]
    predict_always(monkeypatch, found)
    assert main(["predict", ".", __file__, "-o", str(tmp_path / "out.csv")]) == 0
    rows = csv.DictReader((tmp_path / "out.csv").read_text(encoding="utf-8-sig").splitlines())
    assert [row["alternatives"] for row in rows] == ["'=1+1 0.300; dog 0.200; '@SUM(A1) 0.100", ""]


@pytest.mark.parametrize("terminal", [True, False])
def test_translate_escapes_for_a_terminal_and_not_for_a_file(
    terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    def translate(*arguments: Any, **keywords: Any) -> list[list[SimpleNamespace]]:
        return [[SimpleNamespace(text=HOSTILE[1])]]

    monkeypatch.setattr(TrainedModel, "__init__", lambda self, folder: None)
    monkeypatch.setattr(translation, "require_finished", lambda folder: None)
    monkeypatch.setattr(TrainedModel, "search_options", lambda self, **options: None)
    monkeypatch.setattr(TrainedModel, "translate", translate)
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: False, buffer=None))
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
    assert main(["translate", "."]) == 0
    assert capsys.readouterr().out == ("\\u202egod\n" if terminal else "\u202egod\n")


def test_whatever_is_printed_on_a_terminal_is_escaped(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    def show(arguments: list[str]) -> int:
        print(f"| {HOSTILE[0]} |\t{HOSTILE[1]}\n中文")
        return 0

    monkeypatch.setattr("labelemb.lab.cli.command.execute", show)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert main([]) == 0
    assert capsys.readouterr().out == "| cat\\x1b]0;owned\\x07 |\t\\u202egod\n中文\n"


def test_warnings_are_escaped(capsys: Capture) -> None:
    print_line(f"labelemb: {HOSTILE[0]}")
    assert is_safe(capsys.readouterr().err)


def test_predict_prints_long_texts_and_labels_short(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    text, labels = "a long question " * 40, ["long label " * 30, "b", "c"]
    found = Prediction(InputPlace("a.txt", 1, text, "a.txt, line 1"), labels, [0.5, 0.3, 0.2])
    predict_always(monkeypatch, [found])
    assert main(["predict", ".", __file__]) == 0
    assert len(capsys.readouterr().out) < 160
    assert main(["predict", ".", __file__, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["text"], printed["label"]) == (text, labels[0]), "programs get them whole"
