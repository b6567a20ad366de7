"""The subcommand translate: generates text from lines of text."""

import argparse
import io
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO

from labelemb.lab.cli.arguments import Verbs, add_verb, existing, not_negative, positive
from labelemb.lab.runs.finished import require_finished
from labelemb.support.errors import UserError
from labelemb.support.interrupts import importing
from labelemb.support.wording import escape_text

if TYPE_CHECKING:
    from labelemb.lab.trained.model import Translated

LARGEST_PENALTY = 10
"""Of a length penalty: 0 to 1 is usual."""

EXAMPLES = """\
  echo "nine thousand and five" | labelemb translate runs/numbers-en-vi/plain/seed-0
  labelemb translate RUN --beam 1 < source.txt > target.txt
  labelemb translate RUN --n-best 5 --scores < source.txt      number, text and score, separated by tabs
"""


def add_verbs(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    translate = add_verb(verbs, "translate", "translate lines from standard input to standard output", EXAMPLES)
    translate.add_argument(
        "run_folder", type=existing("run folder"), metavar="RUN", help="folder of a finished translation run"
    )
    translate.add_argument(
        "--beam", type=positive, metavar="N", help="beam size; 1 is greedy search (default: the recipe's)"
    )
    translate.add_argument(
        "--length-penalty",
        type=_penalty,
        metavar="A",
        help="divide log-probabilities by ((5 + length) / 6)^A (default: 0)",
    )
    translate.add_argument(
        "--temperature",
        type=_above_zero,
        metavar="T",
        help="divide the logits by T (default: the one fitted after training; 1 for none)",
    )
    translate.add_argument("--n-best", type=positive, metavar="N", help="hypotheses per line, numbered (default: 1)")
    translate.add_argument("--scores", action="store_true", help="print a tab and the score after each hypothesis")
    translate.add_argument(
        "--alignments",
        action="store_true",
        help="print a tab and the attention as source-target pairs of positions, from 0",
    )
    translate.add_argument(
        "--replace-unknown",
        action=argparse.BooleanOptionalAction,
        help="replace unknown words by the source word with most attention (default: the recipe's)",
    )
    translate.add_argument(
        "--min-length", type=not_negative, metavar="N", help="fewest words of an output (default: 0)"
    )
    translate.add_argument(
        "--max-length", type=positive, metavar="N", help="most words of an output (default: the recipe's)"
    )
    translate.add_argument(
        "--no-repeat-ngram", type=not_negative, metavar="N", help="never repeat N words in a row (default: off)"
    )
    translate.add_argument(
        "--batch-size", type=positive, metavar="N", help="lines searched at once (default: depends on the beam)"
    )
    translate.set_defaults(run=_translate)


def _translate(options: argparse.Namespace) -> int:
    require_finished(options.run_folder)
    with importing():
        from labelemb.lab.trained.model import TrainedModel

    model = TrainedModel(options.run_folder)
    searching = model.search_options(
        beam=options.beam,
        length_penalty=options.length_penalty,
        temperature=options.temperature,
        n_best=options.n_best,
        min_length=options.min_length,
        max_length=options.max_length,
        no_repeat_ngram=options.no_repeat_ngram,
    )
    if isinstance(sys.stdout, io.TextIOWrapper):  # lines go out as they come in, whatever the locale
        sys.stdout.reconfigure(encoding="utf-8")
    typed = sys.stdin.isatty()
    lines = read_stream(sys.stdin.buffer)
    block = {"lines_at_once": 1} if typed else {}  # a line that is typed is translated at once
    found = model.translate(lines, searching, options.replace_unknown, options.batch_size, **block)
    for number, hypotheses in enumerate(found, 1):
        for hypothesis in hypotheses:
            numbered = [str(number)] if options.n_best is not None and options.n_best > 1 else []
            print("\t".join([*numbered, *_fields(hypothesis, options)]), flush=typed)
    return 0


def _fields(hypothesis: "Translated", options: argparse.Namespace) -> Iterator[str]:
    yield escape_text(hypothesis.text) if sys.stdout.isatty() else hypothesis.text  # a file gets it as it is
    if options.scores:
        yield f"{hypothesis.score:.4f}"
    if options.alignments:
        yield " ".join(f"{source}-{target}" for target, source in enumerate(hypothesis.alignment))


def _penalty(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not abs(value) <= LARGEST_PENALTY:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from -{LARGEST_PENALTY} to {LARGEST_PENALTY}")
    return value


def _above_zero(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value


def read_stream(stream: BinaryIO) -> Iterator[str]:
    """The lines of a stream in UTF-8."""
    for number, line in enumerate(stream, 1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise UserError(
                f"line {number} of the input is not UTF-8 (byte {error.object[error.start]:#04x}): save it as UTF-8"
            ) from error
