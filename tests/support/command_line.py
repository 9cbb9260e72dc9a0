"""The command `ablate`, and places in files that its messages name."""

from click.testing import CliRunner

from ablations.cli import main


def ablate(*arguments, **options):
    return CliRunner().invoke(main, [str(argument) for argument in arguments], **options)


def refusal_of(*arguments):
    """Return the sentence with which a command refuses its arguments."""
    result = ablate(*arguments)
    assert result.exit_code == 2, result.output
    return result.stderr


def called(command, folder, data_root, *options):
    """Call a command on the spec of a folder, whose output root is beside it."""
    return ablate(command, folder / "spec.yaml", "--out", folder / "out", "--data-root", data_root, *options)


def place_of(spec, value, after="", before=0):
    """Line and column of a value in a file, or of the place `before` characters before it.

    With `after`, the place behind the first such text that follows the value.
    """
    written = spec.read_text()
    at = written.index(after, written.index(value)) + len(after) - before
    return f"{written.count(chr(10), 0, at) + 1}:{at - written.rfind(chr(10), 0, at)}"
