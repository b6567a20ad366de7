"""The verb export: writes a trained model to a file of its own."""

import argparse

from labelemb.lab.cli.arguments import Verbs, a_path, add_verb, existing
from labelemb.support.interrupts import importing

EXAMPLES = """\
  labelemb export runs/digits/label-embedding/seed-0
  labelemb export runs/digits/label-embedding/seed-0 --format onnx -o digits.onnx
"""


def add_verbs(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    export = add_verb(verbs, "export", "write a trained model to a file that needs no labelemb", EXAMPLES)
    export.add_argument(
        "run_folder", type=existing("run folder"), metavar="RUN", help="folder of a finished classification run"
    )
    export.add_argument(
        "--format", choices=("torch", "onnx"), default="torch", help="torch: a torch.export program (default); onnx"
    )
    export.add_argument(
        "-o", "--out", type=a_path, metavar="FILE", help="file to write (model.pt2 or model.onnx in the run's folder)"
    )
    export.set_defaults(run=_export)


def _export(options: argparse.Namespace) -> int:
    with importing():
        from labelemb.lab.report.model_card import write_card
        from labelemb.lab.trained.export.job import BATCHES, export_run

    made = export_run(options.run_folder, options.format, options.out)
    card = write_card(options.run_folder, made.path.with_name(f"{made.path.stem}-card.md"))
    left = made.trained_parameters - made.parameters
    training_only = f"; {left:,} more served the training only" if left else ""
    print(f"wrote {made.path}: {made.bytes:,} bytes")
    print(f"{made.parameters:,} parameters, the body's and those of one linear layer{training_only}")
    print(
        f"checked with batches of {', '.join(map(str, BATCHES))}: no probability differs from the run's by more than "
        f"{made.difference:.1g}"
    )
    print(f"wrote {card}: what the model is, for those who get it")
    return 0
