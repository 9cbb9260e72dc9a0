"""Requests to stop a run, by a signal or by the process that started it."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

STOP_SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
"""Signals that ask a run to save and end. Clusters send one of them before they take a node back."""


class StopRequest:
    """Request to stop, by a signal or Ctrl-C. The run ends after the current step."""

    def __init__(self) -> None:
        self.received = False
        self._at_once = False

    def install(self) -> None:
        """Handle the signals that ask this process to stop. A second Ctrl-C interrupts at once."""
        for number in (signal.SIGINT, *STOP_SIGNALS):
            signal.signal(number, self._remember)

    def _remember(self, number: int, frame: Any) -> None:
        again, self.received = self.received, True
        if self._at_once or (again and number == signal.SIGINT):
            raise Interrupted  # no KeyboardInterrupt: Lightning would turn it into exit code 1

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Let a requested stop end the block at once. Only for a block that may end at any point.

        Raises:
            Interrupted: a stop was requested before the block or in it.
        """
        if self.received:
            raise Interrupted
        self._at_once = True
        try:
            yield
        finally:
            self._at_once = False

    def ask(self) -> None:
        """Request a stop, as a signal does. Any thread may call this."""
        self.received = True
        if self._at_once:  # not in training, where Lightning handles signals itself
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)


class Interrupted(BaseException):
    """Stop of a run on request, raised after its state is saved. It is no error, so no Exception."""
