"""Ctrl-C and termination at a moment that suits the training."""

import signal
import threading
from types import FrameType


class Interrupted(Exception):
    """The run was asked to stop and has saved where it is."""

    def __init__(self, signal_number: int) -> None:
        super().__init__("interrupted; run the same command again to go on")
        self.exit_code = 128 + signal_number


class StopRequests:
    """While active, the first SIGINT or SIGTERM is only noted, so that the loop can save and stop; a second acts."""

    def __init__(self, enabled: bool = True) -> None:
        self.requested: int | None = None
        # signal handlers can only be set in the main thread
        self._enabled = enabled and threading.current_thread() is threading.main_thread()
        self._before: dict[int, object] = {}

    def request(self, signal_number: int) -> None:
        self.requested = signal_number

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
        if self.requested is not None:
            raise KeyboardInterrupt
        self.requested = number
