"""Ablations: experiment specs, their runs, their measures and their tasks."""

import io
import sys


def main() -> None:
    """Run `ablate`. Ctrl-C during the imports, which take half a second, ends it without a traceback."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as stderr; ASCII and Latin-1 have no minus sign
    try:
        from ablations import cli  # here, because a module of the package does not need the commands

        cli.main()
    except KeyboardInterrupt:
        raise SystemExit(130) from None  # `INTERRUPTED` of the commands, which may not be imported yet
