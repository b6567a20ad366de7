"""The subcommands that train: compare, train."""

import argparse
import json
import os

from labelemb.lab.cli.arguments import (
    RUNS,
    Verbs,
    a_path,
    add_cluster,
    add_json,
    add_labels,
    add_recipe,
    add_running,
    add_verb,
    check_data,
    job_count,
    read_cluster,
    read_labels,
    read_recipe,
    read_running,
    seed_list,
    seed_number,
    usable_cores,
)
from labelemb.lab.methods.options import check_methods
from labelemb.support.errors import UserError
from labelemb.support.interrupts import importing

COMPARE_EXAMPLES = """\
  labelemb compare digits
  labelemb compare mnist-mlp --data DIR --seeds 20 --methods plain,label-embedding,label-smoothing@0.2
  labelemb compare text-csv --data intents.csv --set data.label_column=intent --out runs/intents
  labelemb compare digits --seeds 100-102
  labelemb compare mnist-cnn --data DIR --seeds 20 --ray auto --threads 4 --out /shared/mnist-cnn
  labelemb compare digits --methods plain,label-embedding,reused-labels
  labelemb compare mnist-cnn --data DIR --methods plain,reused-labels --labels runs/mnist-mlp/label-embedding/seed-0
Run it again to resume: finished runs are kept, the others continue. More seeds or methods extend the same folder.
"""
TRAIN_EXAMPLES = """\
  labelemb train digits --method label-embedding --seed 1
  labelemb train mnist-mlp --data DIR --method label-embedding@rising-floor+tau=1.5 --device cuda --precision bf16-mixed
  labelemb train mnist-cnn --data DIR --labels runs/mnist-mlp/label-embedding/seed-0
  labelemb train text-csv --data intents.csv --labels similarities.csv --labels-subset --warm-start
  torchrun --nproc-per-node 2 -m labelemb.lab.cli train mnist-mlp --data DIR --method label-embedding
"""


def add_verbs(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    compare = add_verb(verbs, "compare", "train methods with several seeds each and compare them", COMPARE_EXAMPLES)
    add_recipe(compare)
    compare.add_argument(
        "--methods",
        metavar="M,M,...",
        help="methods, with options as in label-embedding@tau=1 (default: those of the recipe); others: "
        "label-smoothing, online-smoothing, confidence-penalty, teacher-free, and reused-labels, which trains seed s "
        "with the labels learned by label-embedding with seed s, or with those of --labels",
    )
    compare.add_argument(
        "--seeds",
        type=seed_list,
        default=5,
        metavar="N|A-B|A,B",
        help="seeds of each method: a number N for 0 to N-1 (default: 5), a range as 100-102, or a list as 3,7",
    )
    compare.add_argument(
        "--jobs", type=job_count, metavar="J", help="runs in parallel (default: one per core; with --ray, all)"
    )
    compare.add_argument("--out", type=a_path, metavar="DIR", help="folder of the runs (default: runs/RECIPE)")
    add_labels(compare)
    add_running(compare, threads=1)
    add_cluster(compare)
    add_json(compare)
    compare.set_defaults(run=_compare)

    train = add_verb(verbs, "train", "train one method with one seed, or resume it", TRAIN_EXAMPLES)
    add_recipe(train)
    train.add_argument(
        "--method", metavar="M", help="the method (default: label-embedding; with --labels: reused-labels)"
    )
    train.add_argument("--seed", type=seed_number, default=0, metavar="S", help="the seed (default: 0)")
    train.add_argument(
        "--out", type=a_path, metavar="DIR", help="folder of the run (default: runs/RECIPE/METHOD/seed-S)"
    )
    add_labels(train)
    add_running(train, threads=0)
    add_json(train)
    train.set_defaults(run=_train)


def _compare(options: argparse.Namespace) -> int:
    recipe = read_recipe(options)
    check_methods(options.methods or "")
    check_data(recipe, options.data)
    with importing():
        from labelemb.lab.comparison.tables import show
        from labelemb.lab.jobs.compare import compare
        from labelemb.lab.methods.method import parse_methods

    labels = read_labels(options)
    methods = parse_methods(options.methods or ",".join(recipe.methods))
    if options.warm_start:
        methods = [method.warm_started() if method.reuses_labels else method for method in methods]
    out = options.out or RUNS / recipe.name
    outcome = compare(
        recipe,
        methods,
        options.seeds,
        out=out,
        data=options.data,
        jobs=options.jobs or (None if options.ray else usable_cores()),
        labels=labels,
        options=read_running(options),
        cluster=read_cluster(options),
    )
    if options.json:
        print(json.dumps(outcome.summary and outcome.summary.to_json()))
    elif outcome.summary is not None:
        print(show(outcome.summary))
        print(f"\nopen {out / 'report.html'} for the report; summary.json, table.md and plots are in the same folder")
    if not outcome.failures:
        return 0
    return 2 if all(failure.user_error for failure in outcome.failures) else 1


def _train(options: argparse.Namespace) -> int:
    recipe = read_recipe(options)
    check_methods(options.method or "")
    check_data(recipe, options.data)
    with importing():
        from labelemb.lab.jobs.train import describe, train
        from labelemb.lab.methods.method import parse_method
        from labelemb.lab.runs.folder import run_folder
        from labelemb.lab.tasks.records import to_json

    labels = read_labels(options)
    method = parse_method(options.method or ("label-embedding" if labels is None else "reused-labels"))
    if labels is not None and not method.reuses_labels:
        raise UserError(f"--labels is for the method reused-labels, not {method.name}: leave out --method, or --labels")
    if options.warm_start:
        method = method.warm_started()
    out = options.out or run_folder(RUNS / recipe.name, method.name, options.seed)
    running = read_running(options)
    result = train(recipe, method, options.seed, out=out, data=options.data, labels=labels, options=running)
    if os.environ.get("RANK", "0") != "0":  # torchrun: one process speaks for all
        return 0
    if options.json:
        print(json.dumps(to_json(result)))
    else:
        print(f"{describe(result)}; the run is in {out}")
    return 0
