"""The subcommand export: writes a trained model to a file that needs no labelemb."""

import argparse
from pathlib import Path

from labelemb.lab.cli.arguments import Verbs, a_path, add_verb, existing
from labelemb.lab.runs.finished import require_finished
from labelemb.support.errors import UserError
from labelemb.support.interrupts import importing

EXAMPLES = """\
  labelemb export runs/digits/label-embedding/seed-0
  labelemb export runs/digits/label-embedding/seed-0 -o digits.onnx
"""


def add_verbs(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    export = add_verb(verbs, "export", "write a trained model to a file that needs no labelemb", EXAMPLES)
    export.add_argument(
        "run_folder", type=existing("run folder"), metavar="RUN", help="folder of a finished classification run"
    )
    export.add_argument(
        "--format",
        choices=("torch", "onnx"),
        help="torch: a torch.export program; onnx (default: by the suffix of FILE, else torch)",
    )
    export.add_argument(
        "-o",
        "--out",
        type=a_path,
        metavar="FILE",
        help="file to write (default: model.pt2 or model.onnx in the run's folder)",
    )
    export.set_defaults(run=_export)


def _export(options: argparse.Namespace) -> int:
    if options.out is not None:
        _check_out(options.out)
    require_finished(options.run_folder)
    with importing():
        from labelemb.lab.report.model_card import EditedCardError, write_card
        from labelemb.lab.trained.export.job import BATCHES, export_run

    made = export_run(options.run_folder, options.format, options.out)
    left = made.trained_parameters - made.parameters
    training_only = f"; {left:,} more were used only for training" if left else ""
    print(f"wrote {made.path}: {made.bytes:,} bytes")
    print(f"{made.parameters:,} parameters: the body and one linear layer{training_only}")
    print(
        f"checked with batches of {', '.join(map(str, BATCHES))}: the probabilities differ from the run's by at most "
        f"{made.difference:.1g}"
    )
    card = made.path.with_name(f"{made.path.stem}-card.md")
    try:
        write_card(options.run_folder, card, made.usage)
    except EditedCardError:
        print(f"kept {card}, which was edited; remove it to get a new one")
    else:
        print(f"wrote {card}: the model card")
    return 0


def _check_out(file: Path) -> None:
    """Refuse a place that cannot be written to, before the work and not after it."""
    if file.is_dir():
        raise UserError(f"{file} is a folder: name a file after -o")
    if not file.parent.is_dir():
        raise UserError(f"there is no folder {file.parent} to write {file.name} to: create it first")
