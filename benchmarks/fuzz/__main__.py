"""Damage data, recipes, label files, run folders and arguments:  python -m benchmarks.fuzz --cases 10000

Every case runs the command in this process, with all errors but `UserError` raised. A case is wrong if anything else is
raised, if the error is not one printable line, if the output could steer a terminal, if temporary files or empty
folders are left, or if a damaged model gives other scores. `--first N --cases 1` repeats one case. Exit code 1 if any
case was wrong.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tqdm import tqdm

from benchmarks.fuzz.campaign import Outcome, run_campaign
from benchmarks.fuzz.workbench import make_workbench


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=10000, help="how many (default 10000)")
    parser.add_argument("--seed", type=int, default=0, help="of the campaign (default 0)")
    parser.add_argument("--first", type=int, default=0, help="number of the first case (default 0)")
    options = parser.parse_args()
    started, outcome = time.monotonic(), Outcome()
    with tempfile.TemporaryDirectory() as folder:
        bench = make_workbench(Path(folder) / "intact")
        numbers = range(options.first, options.first + options.cases)
        campaign = run_campaign(bench, numbers, options.seed, Path(folder) / "case")
        shown = 0
        for outcome in tqdm(campaign, total=options.cases, disable=not sys.stderr.isatty()):
            for problem in outcome.problems[shown:]:
                print(f"{problem}\n", flush=True)
            shown = len(outcome.problems)
            if (done := outcome.ends.total()) % 500 == 0:
                print(f"{done} cases, {shown} wrong", flush=True)
    for end, count in sorted(outcome.ends.items()):
        print(f"{count:6} {end}")
    seconds = time.monotonic() - started
    print(f"{len(outcome.problems)} of {options.cases} cases are wrong (seed {options.seed}, {seconds:.0f} s)")
    return 1 if outcome.problems else 0


if __name__ == "__main__":
    sys.exit(main())
