"""Errors a user can act on. Everything else is a bug and keeps its own traceback."""


class AblationsError(Exception):
    """Base of every error this project raises on purpose; printed as one sentence, without a traceback."""


class DataError(AblationsError, ValueError):
    """Text is missing, unreadable or unfit for the settings that ask for it."""


class NonFiniteLossError(AblationsError, ArithmeticError):
    """Training met a loss or a gradient that is no number; the newest checkpoint is from before."""


class CheckpointError(AblationsError, RuntimeError):
    """A checkpoint cannot be written or read."""


class FilesError(AblationsError, OSError):
    """A file cannot be written, read or locked: a full disk, permissions, damage. The message says which."""
