"""docs/many-processes.md says what is true: its script runs in two processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.helpers.pages import ROOT

PAGE = ROOT / "docs" / "many-processes.md"


def test_the_python_blocks_are_a_script_for_two_processes(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    (tmp_path / "script.py").write_text("\n".join(blocks), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "script.py"],
        cwd=tmp_path,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "process 0 holds labels 0 to 5000: torch.Size([5001, 64])" in done.stdout
    assert "process 1 holds labels 5001 to 10000: torch.Size([5000, 64])" in done.stdout
    assert (tmp_path / "labels.safetensors").exists()
