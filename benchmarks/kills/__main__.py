"""Kill commands at every phase and compare what comes of them:  python -m benchmarks.kills --count 1000

Commands that train (train, compare, audit, choose) save after every update. A kill (SIGKILL) comes before or after a
file operation, an update or a gradient of the command or of one of its workers; a third of them are aimed at the end,
where the last files are written. It hits the command with all of its workers, one worker, or the command alone, whose
workers must then end by themselves. A command is killed up to twelve times and then let run to its end. Every file must
then equal, byte by byte, that of a command which nobody killed (but Optuna's journal), and nothing may be left over:
no file, no folder, no process. The clocks of trainings are stopped, so that their files hold no times. Exit code 1 if
anything differs.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tqdm import tqdm

from benchmarks.kills.campaign import Outcome, run_campaign
from benchmarks.kills.commands import VERBS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kills", description=__doc__)
    parser.add_argument("--count", type=int, default=1000, help="kills (default 1000)")
    parser.add_argument("--seed", type=int, default=0, help="of the moments (default 0)")
    parser.add_argument("--verbs", default=",".join(VERBS), help="which commands (default all)")
    options = parser.parse_args()
    started, outcome, shown = time.monotonic(), Outcome(), 0
    with (
        tempfile.TemporaryDirectory() as folder,
        tqdm(total=options.count, unit="kill", disable=not sys.stderr.isatty()) as bar,
    ):
        for outcome in run_campaign(options.count, options.seed, Path(folder), options.verbs.split(",")):
            bar.update(outcome.kills.total() - bar.n)
            for problem in outcome.problems[shown:]:
                print(problem, flush=True)
            shown = len(outcome.problems)
            if outcome.finished.total() % 5 == 0:
                print(f"{outcome.kills.total()} kills, {shown} differences", flush=True)
    for name, count in sorted(outcome.kills.items()):
        print(f"{count:6} {name}")
    print(
        f"{outcome.kills.total()} kills of {outcome.finished.total()} commands, {outcome.late} aimed at the last "
        f"files: {shown} differences (seed {options.seed}, {time.monotonic() - started:.0f} s)"
    )
    return 1 if outcome.problems else 0


if __name__ == "__main__":
    sys.exit(main())
