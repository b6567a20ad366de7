"""The parser of all subcommands. Errors are one line on standard error with an exit code."""

import argparse
import io
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from labelemb.lab.cli import audit, card, catalogue, choosing, export, labels, report, trained, training, translation
from labelemb.support.errors import UserError
from labelemb.support.interrupts import INTERRUPTED, Interrupted
from labelemb.support.terminal import escaped_output
from labelemb.support.version import __version__
from labelemb.support.wording import did_you_mean

USER_ERROR = 2
LAB_PACKAGES = ("lightning_fabric", "matplotlib", "PIL", "pooch", "scipy", "sklearn", "tqdm")

EXAMPLES = """\
examples:
  labelemb compare digits                                 two methods on handwritten digits, about a minute
  labelemb compare mnist-mlp --data DIR --seeds 20        the paper's first experiment
  labelemb compare text-csv --data intents.csv            your own texts: columns text and label
  labelemb nearest runs/digits/label-embedding/seed-0 8   the labels most similar to 8
  labelemb compare numbers-en-vi --seeds 1                a translation task that needs no file
"""


def run(arguments: Sequence[str] | None) -> int:
    """Parse the arguments and run their verb; returns the exit code: 0, 2 for a user error, 130 after Ctrl-C."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that has no sign for a label shows its number
            stream.reconfigure(errors="backslashreplace")
    try:
        with escaped_output():
            return execute(arguments)
    except UserError as error:
        return _fail(str(error))
    except MemoryError:
        return _fail("not enough memory: use less data, a smaller model, or a machine with more of it")
    except Interrupted as stopped:
        return _fail(str(stopped), stopped.exit_code)
    except KeyboardInterrupt:
        return _fail("interrupted", INTERRUPTED)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in LAB_PACKAGES:
            raise
        return _fail(f"this needs the package {error.name}: pip install 'labelemb[lab]'")
    except BrokenPipeError:
        # the reader, such as `head`, has read enough; Python would complain once more when it closes the stream
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def execute(arguments: Sequence[str] | None) -> int:
    """Parse the arguments and run their verb. What the user has to correct is raised as `UserError`."""
    options = build_parser().parse_args(arguments)
    code: int = options.run(options)
    sys.stdout.flush()
    return code


class OneLineParser(argparse.ArgumentParser):
    """A parser whose errors are one line, as all errors of the command are. Its verbs inherit that."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message} (see `{self.prog} --help`)")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuses a value that is no choice, in the same words in all versions of Python.

        Suggests the nearest verb for one that does not exist. The values of an option are few and listed, and the
        nearest may be the opposite: cpu for gpu.
        """
        if action.choices is None or value in action.choices:
            return
        choices = [str(choice) for choice in action.choices]
        near = "" if action.option_strings else did_you_mean(str(value), choices)
        message = f"invalid choice: {str(value)!r} (choose from {', '.join(choices)}){near}"
        raise argparse.ArgumentError(action, message)


def build_parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog="labelemb",
        description="Train classifiers with soft labels, learn how similar the labels are, and compare methods.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"labelemb {__version__}")
    verbs = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for group in (training, choosing, audit, trained, translation, labels, report, card, export, catalogue):
        group.add_verbs(verbs)
    return parser


def _fail(message: str, code: int = USER_ERROR) -> int:
    print(f"labelemb: {message}", file=sys.stderr)
    return code
