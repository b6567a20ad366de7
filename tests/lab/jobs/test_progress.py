"""What a run and a comparison print while they run."""

from pathlib import Path

import pytest

from labelemb.lab.comparison.protocol import Warned
from labelemb.lab.comparison.run_order import PlannedRun, RunEvent
from labelemb.lab.jobs import progress as progress_module
from labelemb.lab.jobs.progress import ComparisonProgress, RunBar
from labelemb.lab.runs.messages import Progress
from tests.helpers.command import Capture


def test_a_warning_that_holds_for_all_runs_is_printed_once(capsys: Capture) -> None:
    progress = ComparisonProgress(runs=3, finished=0, jobs=1)
    for seed, message in enumerate(["this CPU is slow", "this CPU is slow", "its checkpoint is damaged"]):
        progress.show(RunEvent(0, PlannedRun("plain", seed, Path(str(seed))), Warned(message)))
    progress.close()
    printed = capsys.readouterr().err.splitlines()
    assert printed == ["plain seed 0: this CPU is slow", "plain seed 2: its checkpoint is damaged"]


@pytest.mark.parametrize("method", ["plain", "label-embedding@rising-floor+tau=1.5+rank=100"])
def test_the_score_is_visible_in_a_terminal_of_80_columns(
    method: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr(progress_module, "_live", lambda: True)
    bar = RunBar(f"{method} seed 0")
    bar.bar.ncols = 80
    bar.update(Progress(step=40_000, total_steps=1_000_000, epoch=99, epochs=100, score=12.79))
    line = capsys.readouterr().err.split("\r")[-1]
    bar.close()
    assert "epoch 100/100, dev error 12.79 %" in line
    assert line.startswith("  4%")
