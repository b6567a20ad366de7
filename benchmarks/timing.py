"""Timing on a noisy machine: the functions take turns in one run, and the best of several rounds counts."""

import time
from collections.abc import Callable, Mapping


def best_seconds(sides: Mapping[str, Callable[[], object]], *, rounds: int, repeats: int = 1) -> dict[str, float]:
    """The shortest time of one call of each side. A call before each measurement warms the caches."""
    best = dict.fromkeys(sides, float("inf"))
    for _ in range(rounds):
        for name, call in sides.items():
            call()
            start = time.perf_counter()
            for _ in range(repeats):
                call()
            best[name] = min(best[name], (time.perf_counter() - start) / repeats)
    return best
