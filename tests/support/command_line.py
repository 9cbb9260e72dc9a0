"""The command `ablate`, and places in files that its messages name."""

from click.testing import CliRunner

from ablations.cli import main


def ablate(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def place_of(spec, value, after="", before=0):
    """Line and column of a value in a file, or of the place `before` characters before it.

    With `after`, the place behind the first such text that follows the value.
    """
    written = spec.read_text()
    at = written.index(after, written.index(value)) + len(after) - before
    return f"{written.count(chr(10), 0, at) + 1}:{at - written.rfind(chr(10), 0, at)}"
