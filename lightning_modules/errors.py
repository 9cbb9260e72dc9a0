"""Ends of a training: errors that a user can act on, exit codes, and requests to stop.

Exceptions that are no `AblationsError` are bugs and keep their traceback.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import Any, ClassVar


class ExitCode(IntEnum):
    """Exit codes of the process that trains a run. A worker answers with them too."""

    BUSY = -1
    """Another process is working on the run. Only workers give this answer; no process exits with it."""
    DONE = 0
    FAILED = 1
    WRONG_SETTINGS = 2
    """The settings or the folder of the run are wrong."""
    WRONG_DATA = 65
    NOT_FINITE = 66
    """The loss or a gradient became NaN or infinite."""
    OUT_OF_MEMORY = 67
    """A step needs more memory than there is."""
    RANK_DIED = 70
    """One process of a training on several devices was killed. The same command continues the run."""
    INTERRUPTED = 75
    """Training was stopped and its state is saved. The same command continues from there."""


class AblationsError(Exception):
    """Base of all errors that this project raises on purpose, which are printed without a traceback."""

    exit_code: ClassVar[ExitCode] = ExitCode.FAILED
    """Exit code of a training that ends with this error."""


class DataError(AblationsError, ValueError):
    """Error of text that is missing, unreadable or unfit for the settings that ask for it."""

    exit_code = ExitCode.WRONG_DATA


class NonFiniteLossError(AblationsError, ArithmeticError):
    """Error of a loss or a gradient that is NaN or infinite. The newest checkpoint was written before it."""

    exit_code = ExitCode.NOT_FINITE


class OutOfMemoryError(AblationsError, MemoryError):
    """Error of a tensor that does not fit into the memory of the device or of the machine."""

    exit_code = ExitCode.OUT_OF_MEMORY


class PluginError(AblationsError, ValueError):
    """Error of a plugin that is missing, cannot be executed, or is of the wrong kind for its place."""

    exit_code = ExitCode.WRONG_SETTINGS


class CheckpointError(AblationsError, RuntimeError):
    """Error of a checkpoint that cannot be written or read."""


class FilesError(AblationsError, OSError):
    """Error of a file that cannot be written, read or locked: a full disk, permissions, damage."""


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
        was_received, self.received = self.received, True
        if self._at_once or (was_received and number == signal.SIGINT):
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
    """Stop of a run on request, raised after its state is saved. It is not an error, so it derives from
    BaseException."""
