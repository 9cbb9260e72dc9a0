"""Requests to stop a run, by a signal or by the process that started it."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

STOP_SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
"""Signals that ask a run to save and end. Clusters send one of them before they take a node back."""


class StopRequest:
    """Remembers that somebody sent a signal or pressed Ctrl-C; the run ends after the step at hand."""

    def __init__(self) -> None:
        self.received = False
        self._at_once = False

    def install(self) -> None:
        """Take over the signals that ask this process to stop; a second Ctrl-C interrupts at once."""
        for number in (signal.SIGINT, *STOP_SIGNALS):
            signal.signal(number, self._remember)

    def _remember(self, number: int, frame: Any) -> None:
        again, self.received = self.received, True
        if self._at_once or (again and number == signal.SIGINT):
            raise Interrupted  # no KeyboardInterrupt: Lightning would turn it into exit code 1

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Stop at once in the block, which must be one that may end anywhere, when a stop is requested.

        Raises:
            Interrupted: it was asked for, before or meanwhile.
        """
        if self.received:
            raise Interrupted
        self._at_once = True
        try:
            yield
        finally:
            self._at_once = False

    def ask(self) -> None:
        """Request a stop as a signal does; from any thread."""
        self.received = True
        if self._at_once:  # only then, as Lightning has signals of its own while it trains
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)


class Interrupted(BaseException):
    """Somebody asked the run to stop; its state is saved. No error, so not an Exception."""
