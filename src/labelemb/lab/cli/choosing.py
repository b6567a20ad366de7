"""The subcommand choose: searches the best method for the user's data."""

import argparse
import json
import re

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
from labelemb.support.interrupts import importing

EXAMPLES = """\
  labelemb choose text-csv --data intents.csv --budget 30m
  labelemb choose digits --trials 24 --jobs 1
  labelemb choose text-csv --data intents.csv --trials 48 --ray auto --out /shared/intents
  labelemb compare runs/choose/digits/choice.toml
Run it again to resume: finished trials are kept, the others continue. Several processes may share one --out.
"""


def add_verbs(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    choose = add_verb(verbs, "choose", "search for the best soft targets for your data, then test them", EXAMPLES)
    add_recipe(choose)
    choose.add_argument(
        "--budget", type=duration, metavar="T", help="time for search and test together: 90s, 30m, 2h or 1h30m"
    )
    choose.add_argument(
        "--trials", type=positive, metavar="N", help="largest number of trials (without --budget, default: 24)"
    )
    choose.add_argument(
        "--fresh-seeds",
        type=positive,
        default=5,
        metavar="N",
        help="number of seeds of the final test, those after --seed; each trains plain, label smoothing 0.1, the "
        "search's choice and, if that learns, the best method that learns nothing (default: 5)",
    )
    choose.add_argument(
        "--seed", type=seed_number, default=0, metavar="S", help="seed of all trainings of the search (default: 0)"
    )
    choose.add_argument(
        "--jobs", type=job_count, metavar="J", help="trainings in parallel (default: one per core; with --ray, all)"
    )
    choose.add_argument("--out", type=a_path, metavar="DIR", help="folder of the search (default: runs/choose/RECIPE)")
    add_running(choose, threads=1)
    add_cluster(choose)
    add_json(choose)
    choose.set_defaults(run=_choose)


def duration(text: str) -> float:
    """Seconds from a duration such as 1h30m."""
    found = re.fullmatch(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?", text.strip())
    seconds = (
        sum(float(part or 0) * unit for part, unit in zip(found.groups(), (3600, 60, 1), strict=True)) if found else 0
    )
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration: write 90s, 30m, 2h or 1h30m")
    return seconds


def _choose(options: argparse.Namespace) -> int:
    recipe = read_recipe(options)
    with importing():
        from labelemb.lab.jobs.choose import choose, show

    out = options.out or RUNS / "choose" / recipe.name
    choice = choose(
        recipe,
        out=out,
        data=options.data,
        trials=options.trials,
        budget=options.budget,
        seed=options.seed,
        fresh_seeds=options.fresh_seeds,
        jobs=options.jobs or (None if options.ray else usable_cores()),
        options=read_running(options),
        cluster=read_cluster(options),
    )
    if options.json:
        print(json.dumps(choice.to_json()))
    else:
        print(show(choice, recipe))
        print(
            f"\n{out / 'choice.toml'} is the recipe with this method; table.md, trials.png and fresh/report.html are "
            "in the same folder"
        )
    return 0
