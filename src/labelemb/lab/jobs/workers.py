"""Watches the workers of a job: their events, Ctrl-C or termination without loss, and a time limit."""

import math
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType

from labelemb.lab.comparison.pool import RunPool
from labelemb.lab.comparison.run_order import RunEvent
from labelemb.support.interrupts import Interrupted

LOOK_SECONDS = 0.2
"""Between two looks at the clock."""


def watch(pool: RunPool, show: Callable[[RunEvent], None], deadline: Callable[[], float] = lambda: math.inf) -> None:
    """Call `show` with all events until all runs have ended, or until their checkpoints at the deadline.

    `deadline` gives a time of `time.monotonic` and may change its mind. Raises `Interrupted` after Ctrl-C or SIGTERM.
    """
    ended = threading.Event()
    clock = threading.Thread(target=_stop_at, args=(pool, deadline, ended), daemon=True)
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        clock.start()
        for event in pool.events():
            show(event)
    except KeyboardInterrupt:
        pool.stop()
        raise Interrupted(signal.SIGINT) from None
    except BaseException:  # SIGTERM, or an error of the source of runs
        pool.stop()
        raise
    finally:
        ended.set()
        signal.signal(signal.SIGTERM, before)


def _stop_at(pool: RunPool, deadline: Callable[[], float], ended: threading.Event) -> None:
    while not ended.wait(LOOK_SECONDS):
        if time.monotonic() >= deadline():
            pool.stop()
            return


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise Interrupted(number)
