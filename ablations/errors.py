"""Errors of specs, measures and results; the base is shared with training."""

from lightning_modules.errors import AblationsError, CheckpointError, DataError, NonFiniteLossError

__all__ = [
    "AblationsError",
    "CheckpointError",
    "DataError",
    "MeasureError",
    "NonFiniteLossError",
    "ResultsError",
    "SpecError",
]


class SpecError(AblationsError, ValueError):
    """An experiment spec is wrong. The message names the file, the field and the remedy."""


class MeasureError(AblationsError, ValueError):
    """Data that a measure cannot be computed on."""


class ResultsError(AblationsError, RuntimeError):
    """Results on disk are missing, incomplete or disagree with their spec."""
