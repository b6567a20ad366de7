"""What the command `labelemb` starts with: Ctrl-C is one line and exit code 130 from the first moment on.

It stands beside the package `labelemb`, for importing anything of that imports torch, which takes seconds. An
interrupt inside of such imports comes out as whatever error the interrupted library makes of it.
"""

import os
import signal
from types import FrameType

INTERRUPTED = 130


def main() -> int:
    """Import the command, then run it."""
    before = signal.signal(signal.SIGINT, _leave)
    from labelemb.lab.cli import main as run

    signal.signal(signal.SIGINT, before)
    try:
        return run()
    except KeyboardInterrupt:  # one more, while the first was being answered
        return INTERRUPTED
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # nothing is left to interrupt


def _leave(number: int, frame: FrameType | None) -> None:
    os.write(2, b"labelemb: interrupted\n")
    os._exit(INTERRUPTED)
