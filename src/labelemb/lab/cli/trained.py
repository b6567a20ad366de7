"""The subcommands of trained models: evaluate, predict."""

import argparse
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from labelemb.lab.cli.arguments import Verbs, a_path, add_json, add_verb, existing, positive
from labelemb.lab.runs.finished import require_finished
from labelemb.support.errors import UserError
from labelemb.support.interrupts import importing
from labelemb.support.wording import json_line, one_line, shorten

if TYPE_CHECKING:
    from labelemb.lab.tasks.task import Prediction
    from labelemb.lab.trained.model import TrainedModel

EVALUATE_EXAMPLES = """\
  labelemb evaluate runs/digits/label-embedding/seed-0
  labelemb evaluate runs/intents/plain/seed-0 --worst 20
  labelemb evaluate runs/intents/plain/seed-0 --on new.csv --worst 20
  labelemb evaluate runs/mnist-mlp/plain/seed-3 --data DIR --json
  labelemb evaluate runs/numbers-en-vi/plain/seed-0 --raw
"""
PREDICT_EXAMPLES = """\
  labelemb predict runs/pets/label-embedding/seed-0 cat.jpg folder/
  labelemb predict runs/intents/plain/seed-0 questions.txt -k 5
  labelemb predict runs/intents/plain/seed-0 questions.csv -o answers.csv
  labelemb predict runs/intents/plain/seed-0 questions.csv --json
"""
LONGEST_LABEL = 40
"""Characters of a label in a printed line; files and JSON have it whole."""
UNCALIBRATED = "probabilities are as trained, not calibrated: the run had no development set to fit a temperature on"
PREDICT_FIELDS = ("file", "line", "text", "label", "probability", "alternatives")


def add_verbs(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    evaluate = add_verb(
        verbs, "evaluate", "score a trained model on its dev and test sets, or on other examples", EVALUATE_EXAMPLES
    )
    evaluate.add_argument("run_folder", type=existing("run folder"), metavar="RUN", help="folder of a finished run")
    evaluate.add_argument("--data", type=a_path, metavar="PATH", help="the data (default: the path used in training)")
    evaluate.add_argument(
        "--on",
        type=a_path,
        nargs="+",
        metavar="PLACE",
        help="score these examples instead of the run's own sets: tables with texts and labels, folders with one "
        "folder of images per label, or for translation the common name of two files, without their suffixes",
    )
    evaluate.add_argument(
        "--worst",
        type=positive,
        metavar="N",
        help="also print the N most confident errors, and the N labels with most errors",
    )
    evaluate.add_argument(
        "--csv",
        action="store_true",
        help="with --worst: write worst.csv and labels.csv (all labels) to the run folder; with --on: "
        "worst-NAME.csv and labels-NAME.csv, NAME being the place's path (may-new for may/new.csv)",
    )
    evaluate.add_argument(
        "--raw", action="store_true", help="translation: scores of beam search with uncalibrated logits"
    )
    add_json(evaluate)
    evaluate.set_defaults(run=_evaluate)

    predict = add_verb(verbs, "predict", "label images, table rows or lines of text", PREDICT_EXAMPLES)
    predict.add_argument("run_folder", type=existing("run folder"), metavar="RUN", help="folder of a finished run")
    predict.add_argument(
        "files", type=a_path, nargs="+", metavar="FILE", help="images or folders of images; tables; text files"
    )
    predict.add_argument("-k", type=positive, default=3, metavar="K", help="labels per input (default: 3)")
    predict.add_argument("-o", "--out", type=a_path, metavar="FILE", help="file to write, .csv or .jsonl")
    add_json(predict)
    predict.set_defaults(run=_predict)


def _evaluate(options: argparse.Namespace) -> int:
    if options.csv and options.worst is None:
        raise UserError("--csv writes what --worst lists: add --worst 20, for example")
    if options.csv and options.json:
        raise UserError("--json prints and --csv writes: leave out one of them")
    if options.on is not None and options.data is not None:
        raise UserError("--on scores other examples, --data locates the run's own: leave out one of them")
    if options.on is not None and len(options.on) > 1 and options.worst is not None:
        raise UserError(f"--worst lists the errors on one set, but --on names {len(options.on)}: name one of them")
    require_finished(options.run_folder)
    with importing():
        from labelemb.lab.tasks.records import to_json
        from labelemb.lab.trained.error_tables import show_errors, write_errors
        from labelemb.lab.trained.model import TrainedModel

    model = TrainedModel(options.run_folder)
    columns = _columns(model, options.raw)
    place = None if options.on is None else options.on[0]
    errors = None if options.worst is None else model.errors(options.worst, options.data, place)
    scores = model.evaluate(options.data) if options.on is None else model.evaluate_on(options.on)
    if options.json:
        found = {name: to_json(values) for name, values in scores.items()}
        print(json.dumps(found if errors is None else {**found, **to_json(errors)}))
        return 0
    print(_score_table(scores, columns))
    if note := model.task.evaluate_note(next(iter(scores.values()))):
        print(f"\n{note}")
    if errors is not None:
        print(f"\n{show_errors(errors, options.worst, *map(str, options.on or ()))}")
        if options.csv:
            print("\nwrote " + " and ".join(map(str, write_errors(errors, options.run_folder, place))))
    return 0


def _columns(model: "TrainedModel", raw: bool) -> Mapping[str, str]:
    if not raw:
        return model.task.evaluate_columns
    if model.task.raw_columns is None:
        raise UserError(f"--raw is about beam search, which {model.task.name} does not need: leave it out")
    return model.task.raw_columns


def _score_table(scores: Mapping[str, object], columns: Mapping[str, str]) -> str:
    with importing():
        from labelemb.lab.comparison.tables import fitted

    rows = []
    for name, values in scores.items():
        numbers = (getattr(values, column) for column in columns.values())
        rows.append([name, *("-" if number is None else f"{number:.3f}" for number in numbers)])
    return fitted(["set", *columns], rows)


def _predict(options: argparse.Namespace) -> int:
    if options.out is not None and options.out.suffix.lower() not in (".csv", ".jsonl"):
        raise UserError(f"{options.out} is neither a .csv nor a .jsonl file: name one of these after -o")
    if options.out is not None and options.json:
        raise UserError("--json prints and -o writes: leave out one of them")
    require_finished(options.run_folder)
    for file in options.files:
        if not file.exists():
            raise UserError(f"there is no file or folder {file}")
    with importing():
        from labelemb.lab.trained.model import TrainedModel

    model = TrainedModel(options.run_folder)
    if not model.is_calibrated:
        print(f"labelemb: {UNCALIBRATED}", file=sys.stderr)
    found = model.predict(options.files, options.k)
    if options.out is not None:
        print(f"wrote {_write_predictions(options.out, found)} predictions to {options.out}")
        return 0
    for prediction in found:
        if options.json:
            print(json_line(prediction.fields()))
        else:
            ranked = zip(prediction.labels, prediction.probabilities, strict=True)
            best, *others = [f"{shorten(label, LONGEST_LABEL)} {probability:.3f}" for label, probability in ranked]
            print(f"{one_line(prediction.name)}\t{best}" + (f"\t({', '.join(others)})" if others else ""))
    return 0


def _write_predictions(file: Path, found: Iterable["Prediction"]) -> int:
    """Write predictions in the format of the file's ending; gives their number."""
    with importing():
        from labelemb.findings.table import write_csv
        from labelemb.support.cells import defused
        from labelemb.support.files import file_error, write_text

    records = [prediction.fields() for prediction in found]
    if file.suffix.lower() == ".jsonl":
        write_text(file, "".join(f"{json.dumps(record, ensure_ascii=False)}\n" for record in records))
        return len(records)
    for record in records:
        first, *others = [f"{one['label']} {one['probability']:.3f}" for one in record["alternatives"]] or [""]
        # a spreadsheet may be told to split the cell; its beginning is defused like that of every cell
        record["alternatives"] = "; ".join([first, *map(defused, others)])
    try:
        write_csv(file, PREDICT_FIELDS, ([record[name] for name in PREDICT_FIELDS] for record in records))
    except OSError as error:
        raise file_error("write", file, error) from error
    return len(records)
