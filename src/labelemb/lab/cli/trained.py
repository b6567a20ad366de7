"""Verbs of trained models: evaluate, predict."""

import argparse
import json
from pathlib import Path

from labelemb.lab.cli.arguments import Verbs, add_json, add_verb, positive
from labelemb.support.interrupts import importing
from labelemb.support.wording import json_line, one_line

EVALUATE_EXAMPLES = """\
  labelemb evaluate runs/digits/label-embedding/seed-0
  labelemb evaluate runs/mnist-mlp/plain/seed-3 --data DIR --json
"""
PREDICT_EXAMPLES = """\
  labelemb predict runs/pets/label-embedding/seed-0 cat.jpg folder/
  labelemb predict runs/intents/plain/seed-0 questions.txt -k 5
  labelemb predict runs/intents/plain/seed-0 questions.csv --json
"""


def add_verbs(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    evaluate = add_verb(verbs, "evaluate", "score a trained model on its dev and test sets", EVALUATE_EXAMPLES)
    evaluate.add_argument("run_folder", type=Path, metavar="RUN", help="folder of a finished run")
    evaluate.add_argument("--data", type=Path, metavar="PATH", help="the data (where it was in training)")
    add_json(evaluate)
    evaluate.set_defaults(run=_evaluate)

    predict = add_verb(verbs, "predict", "label images, table rows or lines of text", PREDICT_EXAMPLES)
    predict.add_argument("run_folder", type=Path, metavar="RUN", help="folder of a finished run")
    predict.add_argument("files", type=Path, nargs="+", metavar="FILE", help="images or folders of them; tables; texts")
    predict.add_argument("-k", type=positive, default=3, metavar="K", help="labels shown for an input (3)")
    add_json(predict)
    predict.set_defaults(run=_predict)


def _evaluate(options: argparse.Namespace) -> int:
    with importing():
        from labelemb.lab.comparison.tables import markdown
        from labelemb.lab.tasks.records import to_json
        from labelemb.lab.trained.model import TrainedModel

    model = TrainedModel(options.run_folder)
    scores = model.evaluate(options.data)
    if options.json:
        print(json.dumps({name: to_json(values) for name, values in scores.items()}))
        return 0
    columns = model.task.evaluate_columns
    rows = []
    for name, values in scores.items():
        numbers = (getattr(values, column) for column in columns.values())
        rows.append([name, *("-" if number is None else f"{number:.3f}" for number in numbers)])
    print(markdown(["set", *columns], rows))
    if note := model.task.evaluate_note(scores["test"]):
        print(f"\n{note}")
    return 0


def _predict(options: argparse.Namespace) -> int:
    with importing():
        from labelemb.lab.trained.model import TrainedModel

    for prediction in TrainedModel(options.run_folder).predict(options.files, options.k):
        ranked = list(zip(prediction.labels, prediction.probabilities, strict=True))
        if options.json:
            labels = [{"label": label, "probability": probability} for label, probability in ranked]
            print(json_line({"input": prediction.name, **labels[0], "runners_up": labels[1:]}))
        else:
            best, *others = [f"{one_line(label)} {probability:.3f}" for label, probability in ranked]
            print(f"{one_line(prediction.name)}\t{best}" + (f"\t({', '.join(others)})" if others else ""))
    return 0
