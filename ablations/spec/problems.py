"""What is wrong with a file that a person wrote: every problem at once, each with its place."""

from typing import Literal, NamedTuple

from ablations.errors import SpecError

KeyPath = tuple[str | int, ...]
"""Keys and list positions that lead from the top of a file, or of a run's settings, to one value."""


class Fault(NamedTuple):
    """One thing that is wrong with a value, before anybody knows where it was written."""

    path: KeyPath
    sentence: str
    about: Literal["value", "key", "missing", "several"] = "value"
    """What the sentence is about: the value, its key, a key that is not there, or this value and others that it
    does not fit."""


class Problem(NamedTuple):
    """One thing that is wrong with a file; prints as one line."""

    file: str
    line: int
    """Counts from 1."""
    column: int
    """Counts characters from 1."""
    sentence: str
    """What is wrong, what was expected and, where it can be guessed, what was meant."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: {self.sentence}"


class SpecProblems(SpecError):
    """Everything that is wrong with one file, a line each."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems
        """In the order of the file."""
