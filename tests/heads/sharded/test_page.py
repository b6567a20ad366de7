"""docs/many-processes.md says what is true: its script runs in two processes."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.helpers.forked import run_as_torchrun
from tests.helpers.pages import ROOT

PAGE = ROOT / "docs" / "many-processes.md"


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The python blocks of the page in one file, in the folder where they run."""
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    (tmp_path / "script.py").write_text("\n".join(blocks), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return "script.py"


def check(printed: str) -> None:
    assert "process 0 holds labels 0 to 5000: torch.Size([5001, 64])" in printed
    assert "process 1 holds labels 5001 to 10000: torch.Size([5000, 64])" in printed
    assert Path("labels.safetensors").exists()


def test_the_python_blocks_are_a_script_for_two_processes(script: str) -> None:
    done = run_as_torchrun(2, partial(run_script, script))
    assert done.codes == [0, 0], done.stderr
    check(done.stdout)


def run_script(script: str) -> None:
    runpy.run_path(script, run_name="__main__")


@pytest.mark.slow
def test_torchrun_starts_the_script(script: str) -> None:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run([*launcher, script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    check(done.stdout)
