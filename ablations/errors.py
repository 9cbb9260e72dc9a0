"""Errors of specs, measures and results, and the problems of a file with their places.

The base is shared with training.
"""

from typing import Literal, NamedTuple

from lightning_modules.errors import AblationsError, CheckpointError, DataError, NonFiniteLossError, PluginError

__all__ = [
    "AblationsError",
    "CheckpointError",
    "DataError",
    "MeasureError",
    "NonFiniteLossError",
    "PluginError",
    "ResultsError",
    "SpecError",
]


class SpecError(AblationsError, ValueError):
    """An experiment spec is wrong. The message names the file, the field and the remedy."""


class MeasureError(AblationsError, ValueError):
    """Data that a measure cannot be computed on."""


class ResultsError(AblationsError, RuntimeError):
    """Results on disk are missing, incomplete or disagree with their spec."""


KeyPath = tuple[str | int, ...]
"""Keys and list positions that lead from the top of a file, or of a run's settings, to one value."""


class Fault(NamedTuple):
    """Fault of a value, before its place in the file is known."""

    path: KeyPath
    sentence: str
    about: Literal["value", "key", "missing", "several"] = "value"
    """Part of the value that the sentence is about: the value, its key, a missing key, or this value and others
    that it does not fit."""


class Problem(NamedTuple):
    """Problem of a file with its place; prints as one line."""

    file: str
    """Path of the file, or the option of a command line that it is about."""
    line: int
    """Counts from 1; 0 for an option."""
    column: int
    """Counts characters from 1."""
    sentence: str
    """Sentence with what is wrong, what was expected and, where it can be guessed, what was meant."""

    def __str__(self) -> str:
        place = f":{self.line}:{self.column}" if self.line else ""
        return f"{self.file}{place}: {self.sentence}"


class SpecProblems(SpecError):
    """Every problem of one file, a line each."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems
        """In the order of the file."""
