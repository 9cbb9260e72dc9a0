"""Problems of a file that a person wrote: every problem at once, each with its place."""

from typing import Literal, NamedTuple

from ablations.errors import SpecError

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
    line: int
    """Counts from 1."""
    column: int
    """Counts characters from 1."""
    sentence: str
    """Sentence with what is wrong, what was expected and, where it can be guessed, what was meant."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: {self.sentence}"


class SpecProblems(SpecError):
    """Every problem of one file, a line each."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems
        """In the order of the file."""
