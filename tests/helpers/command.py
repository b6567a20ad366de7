"""The command in tests: settings of a short run, and what a mistake must look like."""

import pytest

from labelemb.lab.cli import main

SMALL = ("--set", "train.epochs=2", "--set", "body.hidden=[16]", "--set", "train.lr=0.01")

Capture = pytest.CaptureFixture[str]


def error_line(capsys: Capture, *arguments: str, code: int = 2) -> str:
    """Runs the command, which must fail with one line on standard error."""
    assert main(arguments) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.splitlines()
    assert len(lines) == 1, captured.err
    assert lines[0].startswith("labelemb: ")
    return lines[0]
