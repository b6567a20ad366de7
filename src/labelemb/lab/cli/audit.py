"""The subcommand audit: finds wrong and overlapping labels, and applies corrections."""

import argparse
import json
from collections.abc import Callable

from labelemb.lab.cli.arguments import (
    RUNS,
    Verbs,
    a_path,
    add_cluster,
    add_json,
    add_recipe,
    add_running,
    add_verb,
    job_count,
    positive,
    read_cluster,
    read_recipe,
    read_running,
    seed_number,
    usable_cores,
)
from labelemb.support.errors import UserError
from labelemb.support.interrupts import importing
from labelemb.support.wording import counted

EXAMPLES = """\
  labelemb audit text-csv --data intents.csv
  labelemb audit text-csv --data intents.csv --folds 5 --method plain --jobs 4
  labelemb audit image-folder --data photos --parts train,test
  labelemb audit apply runs/text-csv-audit/audit.csv corrections.csv --out cleaned.csv
"""
PARTS = ("train", "dev", "test")
APPLIED = ("recipe", "files", "out", "new_labels", "json", "run")
"""What `apply` reads of the options."""


def add_verbs(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    help = "find examples with wrong labels and labels that overlap, by cross-validation"
    audit = add_verb(verbs, "audit", help, EXAMPLES)
    add_recipe(audit)
    audit.add_argument(
        "files", nargs="*", type=a_path, metavar="FILE", help="after `apply`: audit.csv and corrections.csv"
    )
    audit.add_argument(
        "--folds",
        type=positive,
        default=3,
        metavar="K",
        help="folds of the cross-validation (default: 3); 1: one model trained on all examples, which finds less",
    )
    audit.add_argument("--method", default="label-embedding", metavar="M", help="the method (default: label-embedding)")
    audit.add_argument(
        "--parts", type=parts, default=("train",), metavar="P,P", help="parts of the data to audit (default: train)"
    )
    audit.add_argument(
        "--seed", type=seed_number, default=0, metavar="S", help="seed of folds and trainings (default: 0)"
    )
    audit.add_argument(
        "--jobs", type=job_count, metavar="J", help="folds trained in parallel (default: one per core; with --ray, all)"
    )
    audit.add_argument(
        "--out",
        type=a_path,
        metavar="DIR",
        help="folder of the audit (default: runs/RECIPE-audit); apply: the new file",
    )
    audit.add_argument("--new-labels", action="store_true", help="apply: allow labels that the data does not have")
    add_running(audit, threads=1)
    add_cluster(audit)
    add_json(audit)
    audit.set_defaults(run=lambda options: _audit(options, audit.get_default))


def parts(text: str) -> tuple[str, ...]:
    """Some of train, dev and test."""
    found = tuple(text.split(","))
    wrong = [part for part in found if part not in PARTS]
    if wrong or len(set(found)) < len(found):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of different parts: {', '.join(PARTS)}")
    return found


def _audit(options: argparse.Namespace, default: Callable[[str], object]) -> int:
    if options.recipe == "apply":
        ignored = [name for name in vars(options) if name not in APPLIED and getattr(options, name) != default(name)]
        if ignored:
            raise UserError(f"--{ignored[0].replace('_', '-')} is for audits that train, not for `apply`: leave it out")
        return _apply(options)
    if options.files:
        raise UserError(f"unexpected argument {options.files[0]}: to pass the data, write --data {options.files[0]}")
    if options.new_labels:
        raise UserError("--new-labels is for `labelemb audit apply`")
    recipe = read_recipe(options)
    with importing():
        from labelemb.lab.jobs.audit import audit

    out = options.out or RUNS / f"{recipe.name}-audit"
    outcome = audit(
        recipe,
        out=out,
        data=options.data,
        method=options.method,
        folds=options.folds,
        parts=options.parts,
        seed=options.seed,
        jobs=options.jobs or (None if options.ray else usable_cores()),
        options=read_running(options),
        cluster=read_cluster(options),
    )
    if outcome.audit is None:
        return 2 if all(failure.user_error for failure in outcome.failures) else 1
    if options.json:
        print(json.dumps(outcome.audit.as_json()))
    else:
        print(outcome.audit)
        print(
            f"\nopen {out / 'audit.html'} to inspect and mark examples; audit.csv and audit.json are in the same folder"
        )
    return 0


def _apply(options: argparse.Namespace) -> int:
    if len(options.files) != 2 or options.out is None:
        raise UserError("usage: labelemb audit apply audit.csv corrections.csv --out cleaned.csv")
    with importing():
        from labelemb.lab.jobs.corrections import apply_corrections

    audit, corrections = options.files
    applied = apply_corrections(audit, corrections, options.out, new_labels=options.new_labels)
    if options.json:
        print(json.dumps(vars(applied)))
    else:
        print(f"{counted(applied.relabelled, 'example')} relabelled, {applied.removed} removed: {options.out}")
    return 0
