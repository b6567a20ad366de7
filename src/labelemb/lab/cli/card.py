"""The subcommand card: writes the model card of a run."""

import argparse

from labelemb.lab.cli.arguments import Verbs, a_path, add_verb, existing, say_written
from labelemb.support.interrupts import importing

EXAMPLES = """\
  labelemb card runs/digits/label-embedding/seed-0
  labelemb card runs/digits/label-embedding/seed-0 -o digits.md
"""


def add_verbs(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    card = add_verb(verbs, "card", "write a model card, in the Markdown format of model hubs", EXAMPLES)
    card.add_argument("run_folder", type=existing("run folder"), metavar="RUN", help="folder of a finished run")
    card.add_argument(
        "-o", "--out", type=a_path, metavar="FILE", help="file to write (default: README.md in the run's folder)"
    )
    card.set_defaults(run=_card)


def _card(options: argparse.Namespace) -> int:
    with importing():
        from labelemb.lab.report.model_card import write_card

    say_written(write_card(options.run_folder, options.out))
    return 0
