"""Handles Ctrl-C and termination: exits at once during imports, and at a checkpoint during training."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED = 128 + signal.SIGINT
"""The exit code after Ctrl-C, as shells expect it."""
PAUSE = 0
"""In place of a signal's number: the program itself wants the run to stop for now."""


class Interrupted(Exception):
    """The run was asked to stop and has saved where it is."""

    def __init__(self, signal_number: int) -> None:
        super().__init__("interrupted; run the same command again to go on")
        self.exit_code = 128 + signal_number


@contextmanager
def importing() -> Iterator[None]:
    """While slow libraries are imported, Ctrl-C ends the process at once with one line and exit code 130.

    A `KeyboardInterrupt` inside an import comes out as whatever error the interrupted library makes of it.
    """
    if not _signals_can_be_set() or signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        yield
        return
    before = signal.signal(signal.SIGINT, _exit_at_once)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class StopRequests:
    """While active, the first SIGINT or SIGTERM is only noted, so that the loop can save and stop; a second acts."""

    def __init__(self, enabled: bool = True) -> None:
        self.requested: int | None = None
        self._enabled = enabled and _signals_can_be_set()
        self._before: dict[int, object] = {}

    def request(self, signal_number: int) -> None:
        self.requested = signal_number

    def request_pause(self) -> None:
        """Ask for a pause, unless a stop was asked for; a signal that comes later counts for more."""
        if self.requested is None:
            self.requested = PAUSE

    def take_pause(self) -> bool:
        """Whether a pause and nothing else was asked for; the next run is then free to go on."""
        if self.requested != PAUSE:
            return False
        self.requested = None
        return True

    def __enter__(self) -> "StopRequests":
        if self._enabled:
            for number in (signal.SIGINT, signal.SIGTERM):
                # a parent that ignores Ctrl-C for its workers means it
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # what signal() returned before
        self._before.clear()

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = number


def _signals_can_be_set() -> bool:
    """Python allows it in the main thread alone."""
    return threading.current_thread() is threading.main_thread()


def _exit_at_once(number: int, frame: FrameType | None) -> None:
    os.write(2, b"labelemb: interrupted\n")
    os._exit(INTERRUPTED)
