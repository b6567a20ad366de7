"""Ctrl-C and termination at any moment: one line, the exit code that shells expect, and a checkpoint."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from labelemb.lab.cli import main
from labelemb.lab.jobs import compare as compare_module
from labelemb.lab.runs.checkpoint.file import CURRENT
from labelemb.lab.runs.messages import Progress
from labelemb.support.interrupts import Interrupted
from tests.helpers.command import SMALL, Capture, error_line


def test_ctrl_c_saves_and_exits_with_130(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    def press(bar: object, progress: Progress) -> None:
        if progress.step == 10:
            signal.raise_signal(signal.SIGINT)

    arguments = ("train", "digits", "--out", str(tmp_path), "--checkpoint-seconds", "1000", *SMALL)
    with monkeypatch.context() as patch:
        patch.setattr("labelemb.lab.jobs.progress.RunBar.update", press)
        message = error_line(capsys, *arguments, code=130)
    assert "run the same command again to go on" in message
    assert (tmp_path / CURRENT).exists()
    assert main(arguments) == 0


def test_ctrl_c_before_the_training_exits_with_130(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    def press(*arguments: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(compare_module, "compare", press)
    assert error_line(capsys, "compare", "digits", code=130) == "labelemb: interrupted"


def test_another_ctrl_c_has_nothing_left_to_interrupt() -> None:
    pressed = """
import signal, sys
from unittest.mock import MagicMock
import labelemb.lab.cli

class Pressed:
    def write(self, text):  # standard error, at whose line the hand presses once more
        sys.__stderr__.write(text)
        if text == "\\n":
            signal.raise_signal(signal.SIGINT)

    def flush(self):
        pass

def press(*arguments, **options):
    raise KeyboardInterrupt

for module in ("comparison.tables", "jobs.compare", "methods.method"):  # what compare would import, slowly
    sys.modules[f"labelemb.lab.{module}"] = MagicMock(compare=press)
sys.argv, sys.stderr = ["labelemb", "compare", "digits"], Pressed()
code = labelemb.lab.cli.run_process()
signal.raise_signal(signal.SIGINT)
sys.exit(code)
"""
    ended = subprocess.run([sys.executable, "-c", pressed], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (130, "labelemb: interrupted\n")


@pytest.mark.parametrize("module", ["argparse", "torch"])
def test_ctrl_c_while_something_is_imported_exits_with_130(module: str) -> None:
    pressed = """
import signal, sys
from labelemb.lab.cli import run_process

module, sys.argv = sys.argv[1], ["labelemb", "compare", "digits"]

class Press:
    def find_spec(self, name, *rest):
        if name == module:
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Press())
sys.exit(run_process())
"""
    ended = subprocess.run([sys.executable, "-c", pressed, module], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (130, "labelemb: interrupted\n")


def test_sigterm_exits_as_shells_expect(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    def stop(*arguments: Any, **options: Any) -> None:
        raise Interrupted(signal.SIGTERM)

    monkeypatch.setattr(compare_module, "compare", stop)
    error_line(capsys, "compare", "digits", code=143)
