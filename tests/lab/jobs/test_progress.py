"""What a comparison prints while it runs."""

from pathlib import Path

from labelemb.lab.comparison.pool import PlannedRun, RunEvent
from labelemb.lab.comparison.protocol import Warned
from labelemb.lab.jobs.progress import ComparisonProgress
from tests.helpers.command import Capture


def test_a_warning_that_holds_for_all_runs_is_printed_once(capsys: Capture) -> None:
    progress = ComparisonProgress(runs=3, finished=0, jobs=1)
    for seed, message in enumerate(["this CPU is slow", "this CPU is slow", "its checkpoint is damaged"]):
        progress.show(RunEvent(0, PlannedRun("plain", seed, Path(str(seed))), Warned(message)))
    progress.close()
    printed = capsys.readouterr().err.splitlines()
    assert printed == ["plain seed 0: this CPU is slow", "plain seed 2: its checkpoint is damaged"]
