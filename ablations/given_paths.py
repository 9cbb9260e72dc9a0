"""Paths that a user gives to a command, and what the operating system refuses to do with them. No torch."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import Any

import click

from lightning_modules.errors import FilesError
from lightning_modules.files import refusal


class GivenPath(click.Path):
    """A path in a command line: text that can be a path, and of the kind that is asked for where it is there.

    With `readable=False` it is left to the reader of the file to say what is wrong with it.
    """

    def __init__(self, **checks: bool) -> None:
        super().__init__(path_type=Path, **checks)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        text = os.fsdecode(value)
        if not text:
            self.fail("a path was expected, but this one is empty.", param, ctx)
        if "\0" in text or any("\ud800" <= letter <= "\udfff" for letter in text):
            self.fail(f"{text!a} has a byte that is no text; rename it in UTF-8.", param, ctx)
        try:
            mode = os.stat(text).st_mode if self.readable else 0
            if S_ISDIR(mode):
                os.scandir(text).close()
            elif S_ISREG(mode):
                open(text, "rb").close()
        except (FileNotFoundError, NotADirectoryError):
            pass  # it may be made, or be asked for below
        except OSError as error:
            reason, remedy = refusal(error) or (str(error), "choose another")
            self.fail(f"{text}: {reason}; {remedy}.", param, ctx)
        return super().convert(value, param, ctx)


class PathCommand(click.Command):
    """A command that says in a sentence what the operating system refuses to do with a given path.

    An error about any other file is a bug and passes; so does a file that was expected and is not there.

    Raises:
        FilesError: names the path, what happened and what to do.
    """

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except OSError as error:
            refused = None if isinstance(error, FilesError) else refusal(error)
            if refused is None or not _is_about(error.filename, _paths(ctx.params.values())):
                raise
            reason, remedy = refused
            raise FilesError(f"{os.fsdecode(error.filename)}: {reason}; {remedy}.") from error


def _paths(values: Iterable[Any]) -> Iterator[Path]:
    """The paths among the values of a command line, and those in its lists."""
    for value in values:
        if isinstance(value, Path):
            yield value.absolute()
        elif isinstance(value, tuple):
            yield from _paths(value)


def _is_about(name: Any, given: Iterable[Path]) -> bool:
    """Return whether a file is above one of the paths, or below the folder of one, where a spec has its claims."""
    if not isinstance(name, str | bytes):
        return False
    file = Path(os.fsdecode(name)).absolute()
    return any(file.is_relative_to(path.parent) or path.is_relative_to(file) for path in given)
