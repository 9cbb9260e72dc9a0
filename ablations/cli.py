"""`ablate`: the commands, in the order of work."""

import gc
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from errno import EPIPE
from typing import Any, TextIO, cast

import click

from ablations.commands.models import analyse, export
from ablations.commands.options import INTERRUPTED, WRONG
from ablations.commands.results import claims, diff, figure, report
from ablations.commands.runs import doctor, measure, run, status
from ablations.commands.specs import examples, init, plan, text, validate


class Output:
    """Standard output whose errors say that they are its own. The operating system's error names no file, so that
    it would be taken for that of a file that is written at the time.

    Raises:
        FilesError: the output cannot be written, as to a full disk. A pipe that nobody reads any more raises its
            own error, which click takes for the end.
    """

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        if text == "":  # click writes this to find out what the stream takes, and ignores errors
            return 0
        with self._explained():
            return self.stream.write(text)

    def flush(self) -> None:
        with self._explained():
            self.stream.flush()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno == EPIPE:
                raise
            from lightning_modules.errors import FilesError
            from lightning_modules.files import refusal

            os.dup2(os.open(os.devnull, os.O_WRONLY), self.stream.fileno())  # Python writes the rest when it ends
            reason, remedy = refusal(error) or (error.strerror, "write it to another place")
            raise FilesError(
                f"The standard output cannot be written: {reason}; {remedy}, then start again."
            ) from error


class Ablate(click.Group):
    """Group of commands that prints errors that a user can act on as one sentence, without a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        from ablations.wording import GOES_ON, printable
        from lightning_modules.errors import AblationsError

        # SIGTERM raises KeyboardInterrupt as Ctrl-C does, so that no half-written file stays.
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)
        # Garbage collection takes an eighth of a report's time, although its thousands of records have no cycles.
        thresholds = gc.get_threshold()
        gc.set_threshold(100_000, 50, 50)
        before_output = sys.stdout
        if sys.stdout is not None:  # it is None if the command was started without one, as by some daemons
            sys.stdout = cast(TextIO, Output(sys.stdout))
        try:
            return super().invoke(ctx)
        except AblationsError as error:
            click.echo(printable(str(error)), err=True)
            ctx.exit(WRONG)
        except KeyboardInterrupt:
            if ctx.invoked_subcommand == "run":
                click.secho(GOES_ON, fg="yellow", err=True)
            ctx.exit(INTERRUPTED)
        finally:
            sys.stdout = before_output
            signal.signal(signal.SIGTERM, before)
            gc.set_threshold(*thresholds)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group(cls=Ablate, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="pretraining-ablations")
def main() -> None:
    """Find out, with evidence, what makes BERT-like pre-training work.

    An experiment is a YAML file that names arms and seeds. `ablate run` trains and measures what is
    missing and writes one table and one page. After an interruption the same command continues.

    Exit codes: 0 good; 1 a run or a figure failed, or with --strict a claim was not as expected; 2 the
    command or a file that it names is wrong; 130 interrupted.
    """


for command in (
    examples,
    init,
    validate,
    plan,
    text,
    run,
    status,
    measure,
    claims,
    report,
    figure,
    diff,
    export,
    analyse,
    doctor,
):
    main.add_command(command)

if __name__ == "__main__":
    main()
