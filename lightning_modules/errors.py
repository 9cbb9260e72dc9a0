"""Errors a user can act on, and exit codes of training. Every other exception is a bug and keeps its traceback."""

from enum import IntEnum
from typing import ClassVar


class ExitCode(IntEnum):
    """Exit codes of the process that trains a run, which a worker answers too."""

    BUSY = -1
    """Another process is working on the run; only a worker answers this."""
    DONE = 0
    FAILED = 1
    WRONG_SETTINGS = 2
    """Settings or the run's folder are wrong."""
    WRONG_DATA = 65
    NOT_FINITE = 66
    """The loss became no number."""
    OUT_OF_MEMORY = 67
    """There is less memory than a step takes."""
    RANK_DIED = 70
    """One of the processes of a training on several devices was killed; the same command goes on."""
    INTERRUPTED = 75
    """The state is saved; the same command goes on from it."""


class AblationsError(Exception):
    """Base of every error this project raises on purpose; printed as one sentence, without a traceback."""

    exit_code: ClassVar[ExitCode] = ExitCode.FAILED
    """Exit code of a training that ends with it."""


class DataError(AblationsError, ValueError):
    """Text is missing, unreadable or unfit for the settings that ask for it."""

    exit_code = ExitCode.WRONG_DATA


class NonFiniteLossError(AblationsError, ArithmeticError):
    """Training met a loss or a gradient that is no number; the newest checkpoint is from before."""

    exit_code = ExitCode.NOT_FINITE


class OutOfMemoryError(AblationsError, MemoryError):
    """A tensor does not fit into the memory of the device or of the machine."""

    exit_code = ExitCode.OUT_OF_MEMORY


class PluginError(AblationsError, ValueError):
    """A part of one's own is missing, cannot be executed, or is not what its place asks for."""

    exit_code = ExitCode.WRONG_SETTINGS


class CheckpointError(AblationsError, RuntimeError):
    """A checkpoint cannot be written or read."""


class FilesError(AblationsError, OSError):
    """A file cannot be written, read or locked: a full disk, permissions, damage. The message says which."""
