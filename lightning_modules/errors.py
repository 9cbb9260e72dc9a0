"""Errors that a user can act on, and exit codes of training. Other exceptions are bugs and keep their
traceback."""

from enum import IntEnum
from typing import ClassVar


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
