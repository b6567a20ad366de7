"""Kill trainings at every phase and compare what comes of them:  python -m benchmarks.kills --count 1000

A training saves after every update. A kill (SIGKILL to the whole process group) comes before or after a file operation,
an update or a gradient; a third of them fall after the last update, while the last files are written. A training is
killed up to twelve times and then let run to its end. Every file must then equal, byte by byte, that of a training
which nobody killed (of JSON files everything but times), and nothing may be left over. Exit code 1 if anything differs.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tqdm import tqdm

from benchmarks.kills.campaign import Outcome, run_campaign


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kills", description=__doc__)
    parser.add_argument("--count", type=int, default=1000, help="kills (default 1000)")
    parser.add_argument("--seed", type=int, default=0, help="of the moments (default 0)")
    options = parser.parse_args()
    started, outcome, shown = time.monotonic(), Outcome(), 0
    with (
        tempfile.TemporaryDirectory() as folder,
        tqdm(total=options.count, unit="kill", disable=not sys.stderr.isatty()) as bar,
    ):
        for outcome in run_campaign(options.count, options.seed, Path(folder)):
            bar.update(outcome.kills - bar.n)
            for problem in outcome.problems[shown:]:
                print(problem, flush=True)
            shown = len(outcome.problems)
            if outcome.trainings % 5 == 0:
                print(f"{outcome.kills} kills, {len(outcome.problems)} differences", flush=True)
    print(
        f"{outcome.kills} kills of {outcome.trainings} trainings, {outcome.after_training} while the last files were "
        f"written: {len(outcome.problems)} differences (seed {options.seed}, {time.monotonic() - started:.0f} s)"
    )
    return 1 if outcome.problems else 0


if __name__ == "__main__":
    sys.exit(main())
