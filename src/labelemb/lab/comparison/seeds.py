"""Parses and checks the seeds of a comparison: a number, a range or a list."""

import re
from collections.abc import Sequence

from labelemb.support.errors import UserError
from labelemb.support.wording import shorten

LARGEST_SEED = 2**63 - 1
"""The largest that torch's generators take."""
MOST_SEEDS = 10_000
FORMS = "a number of seeds (5), a range (100-102) or a list (3,7)"


def parse_seeds(text: str) -> Sequence[int]:
    """Seeds from text: `5` is 0 to 4, `100-102` is 100, 101 and 102, `3,7` is these two, and `7,` is 7 alone."""
    if text.isdecimal():
        return check_seeds(int(text))
    seeds: list[int] = []
    for part in text.removesuffix(",").split(","):
        found = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", part, re.ASCII)
        if found is None:
            raise UserError(f"{shorten(text, 40)!r} names no seeds: give {FORMS}")
        first, last = int(found[1]), int(found[2] or found[1])
        if last < first:
            raise UserError(f"the range {first}-{last} is empty: write {last}-{first}")
        if last - first >= MOST_SEEDS:
            raise _too_many(last - first + 1)
        seeds += range(first, last + 1)
    return check_seeds(seeds)


def check_seeds(seeds: int | Sequence[int]) -> Sequence[int]:
    """The seeds 0 to `seeds` - 1, or those given; none, too many, a repeated or an impossible one is a `UserError`."""
    if isinstance(seeds, int) and seeds > MOST_SEEDS:
        raise _too_many(seeds)
    chosen = range(seeds) if isinstance(seeds, int) else seeds
    if len(chosen) == 0:
        raise UserError(f"{seeds!r} is not a whole number of at least 1, nor a list of seeds: give {FORMS}")
    if len(chosen) > MOST_SEEDS:
        raise _too_many(len(chosen))
    for seed in chosen:
        if not 0 <= seed <= LARGEST_SEED:
            raise UserError(f"{seed} is not a seed: seeds are whole numbers from 0 to {LARGEST_SEED}")
    if repeated := [seed for index, seed in enumerate(chosen) if seed in chosen[:index]]:
        raise UserError(f"seed {repeated[0]} is given twice: name every seed once")
    return chosen


def _too_many(count: int) -> UserError:
    return UserError(f"{count} seeds are too many: at most {MOST_SEEDS}")
