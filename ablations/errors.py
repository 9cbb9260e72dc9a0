"""Errors of specs, measures and results, and problems of a file with their places.

They share the base class `AblationsError` with the errors of training.
"""

from typing import Literal, NamedTuple

from lightning_modules.errors import AblationsError
from lightning_modules.errors import PluginError as PluginError  # for reports, which imports ablations alone


class SpecError(AblationsError, ValueError):
    """Error of an experiment spec. The message names the file, the field and the remedy."""


class MeasureError(AblationsError, ValueError):
    """Error of a measure that cannot be computed on the given data."""


class ResultsError(AblationsError, RuntimeError):
    """Error of results on disk that are missing, incomplete or in contradiction to their spec."""


KeyPath = tuple[str | int, ...]
"""Keys and list positions that lead from the top of a file, or of a run's settings, to one value."""


class Fault(NamedTuple):
    """Fault of a value whose place in the file is not known yet."""

    path: KeyPath
    sentence: str
    about: Literal["value", "key", "missing", "several"] = "value"
    """Part that the sentence is about: the value, its key, a missing key, or several values."""


class Problem(NamedTuple):
    """Problem of a file with its place. `str` gives one line."""

    file: str
    """Path of the file, or name of the command-line option that has the problem."""
    line: int
    """Line in the file, from 1; 0 for an option, and for a file that cannot be read at all."""
    column: int
    """Column in the line, in characters from 1."""
    sentence: str
    """Sentence that says what is wrong, what was expected and, if it can be guessed, what was meant."""

    def __str__(self) -> str:
        place = f":{self.line}:{self.column}" if self.line else ""
        return f"{self.file}{place}: {self.sentence}"


class SpecProblems(SpecError):
    """Error with every problem of one file, one line each."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems
        """Problems in the order of the file."""
