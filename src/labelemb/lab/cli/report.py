"""The subcommand report: writes the HTML page of a run or a comparison."""

import argparse
import webbrowser

from labelemb.lab.cli.arguments import Verbs, a_path, add_verb, existing, say_written
from labelemb.support.interrupts import importing

EXAMPLES = """\
  labelemb report runs/digits --open
  labelemb report runs/digits/label-embedding/seed-0 -o digits.html
"""


def add_verbs(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    report = add_verb(verbs, "report", "write a page with curves, calibration, confusions and labels", EXAMPLES)
    report.add_argument("folder", type=existing("folder"), metavar="FOLDER", help="folder of a comparison or of a run")
    report.add_argument(
        "-o", "--out", type=a_path, metavar="FILE", help="page to write (default: report.html in the folder)"
    )
    report.add_argument("--open", action="store_true", help="open it in the browser")
    report.set_defaults(run=_report)


def _report(options: argparse.Namespace) -> int:
    with importing():
        from labelemb.lab.report import write_report

    path = write_report(options.folder, options.out)
    say_written(path)
    if options.open:
        webbrowser.open(path.resolve().as_uri())
    return 0
