"""The command `labelemb`: arguments and printing, a few lines around each job.

Nothing slow is imported before the arguments are known to be right, so that help and typos are answered at once.
"""

import signal
from collections.abc import Sequence

from labelemb.support.interrupts import INTERRUPTED, importing

__all__ = ["main", "run_process"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with these arguments, or those of the process; returns the exit code."""
    with importing():
        from labelemb.lab.cli.command import run

    return run(arguments)


def run_process() -> int:
    """The command as a process of its own: Ctrl-C is one line and exit code 130 from the first moment to the last."""
    try:
        return main()
    except KeyboardInterrupt:  # a second one, while the first was being answered
        return INTERRUPTED
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # nothing is left to interrupt
