"""Ctrl-C, SIGTERM and SIGHUP as a request to stop after this step, so that a run can save first."""

import signal
import threading
import time
from types import FrameType, TracebackType
from typing import Any

SAME_WISH = 1.0  # seconds
# A terminal that is closed sends SIGHUP, where there is such a signal.
STOPPING = [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]


class Interrupted(KeyboardInterrupt):
    """A run was stopped by a signal and has saved itself; `--resume` continues it."""

    def __init__(self, step: int, folder: object, signal_number: int) -> None:
        super().__init__(f"stopped and saved at step {step}: {folder}")
        self.step = step
        self.folder = folder
        self.signal_number = signal_number


class StopRequest:
    """While the block runs, `signal_number` is the signal that asked to stop (0: none).

    A later second signal is not waited for; one that comes at once is the same wish, told by a
    launcher (torchrun) that passes it on. Outside of the main thread signals cannot be caught, so
    there they act as usual.
    """

    signal_number = 0
    at_once = False  # from here on nothing would be lost: a signal ends the run where it is
    _asked = 0.0

    def __enter__(self) -> "StopRequest":
        self._before: dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():
            for number in STOPPING:
                self._before[number] = signal.signal(number, self._handle)
        return self

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self.at_once:
            self.signal_number = self.signal_number or number
            raise KeyboardInterrupt
        if self.signal_number:
            if time.monotonic() - self._asked > SAME_WISH:
                raise KeyboardInterrupt
            return
        self.signal_number = number
        self._asked = time.monotonic()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
