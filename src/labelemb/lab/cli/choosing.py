"""The verb choose: searches the method that does best on the user's data."""

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
Run again after an interruption: finished trials are kept, the others go on. Several processes may search in one --out.
"""


def add_verbs(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    choose = add_verb(verbs, "choose", "search the best soft targets for your data, then test them", EXAMPLES)
    add_recipe(choose)
    choose.add_argument(
        "--budget", type=duration, metavar="T", help="time for search and test together, as 90s, 30m, 2h or 1h30m"
    )
    choose.add_argument(
        "--trials", type=positive, metavar="N", help="trials of the search, at most (24 without --budget)"
    )
    choose.add_argument(
        "--fresh-seeds", type=positive, default=5, metavar="N", help="seeds of the final test, which follow --seed (5)"
    )
    choose.add_argument("--seed", type=seed_number, default=0, metavar="S", help="seed of all trainings searched (0)")
    choose.add_argument("--jobs", type=job_count, metavar="J", help="trainings at once (one per core; with --ray, all)")
    choose.add_argument("--out", type=a_path, metavar="DIR", help="folder of the choice (runs/choose/RECIPE)")
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
        raise argparse.ArgumentTypeError(f"{text!r} is not a span of time: write 90s, 30m, 2h or 1h30m")
    return seconds


def _choose(options: argparse.Namespace) -> int:
    recipe = read_recipe(options)
    with importing():
        from labelemb.lab.jobs.choose import choose, describe

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
        print(describe(choice, recipe))
        print(
            f"\n{out / 'choice.toml'} is the recipe with it; table.md, trials.png and fresh/report.html are beside it"
        )
    return 0
