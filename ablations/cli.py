"""`ablate`: the commands, in the order of work."""

import errno
import gc
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

import click

from ablations.commands.models import analyse, export
from ablations.commands.options import INTERRUPTED, WRONG
from ablations.commands.results import claims, diff, figure, report
from ablations.commands.runs import doctor, measure, run, status
from ablations.commands.specs import examples, init, plan, text, validate

OUTPUT = "the standard output"


NO_ROOM = "failed to map segment from shared object"
"""Words of the dynamic linker if a library does not fit into memory."""

OUT_OF_MEMORY = (
    "This command ran out of memory; end other programs, or raise the limit (ulimit -v), then start it again. "
    "What is trained and measured stays."
)


def _sentence(error: Exception) -> str | None:
    """Return what to print about an error in place of a traceback; None if a traceback is better."""
    from lightning_modules.errors import AblationsError

    if isinstance(error, AblationsError):
        return str(error)
    is_out_of_memory = isinstance(error, MemoryError) or (isinstance(error, ImportError) and NO_ROOM in str(error))
    if "torch" in sys.modules:
        from lightning_modules.model.numerics import out_of_memory

        is_out_of_memory |= out_of_memory(error) is not None
    return OUT_OF_MEMORY if is_out_of_memory else None


def _require_working_folder() -> None:
    """Raise an AblationsError if the current folder was deleted, as relative paths mean nothing then."""
    from lightning_modules.errors import AblationsError

    try:
        os.getcwd()
    except FileNotFoundError:
        raise AblationsError("The current folder was deleted; change to another one, then start again.") from None


class Output:
    """Standard output whose errors name it as their file. The operating system's errors name none, and would be
    taken for those of a file that is written at the time."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        with self._named():
            return self.stream.write(text)

    def flush(self) -> None:
        with self._named():
            self.stream.flush()

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            error.filename = OUTPUT
            raise


class Ablate(click.Group):
    """Group of commands that prints errors that a user can act on as one sentence, without a traceback: those that
    are raised on purpose, and those of the operating system that name a file and have a known reason, such as a
    full disk. A closed pipe is left to click, which takes it for the end."""

    def invoke(self, ctx: click.Context) -> Any:
        from ablations.wording import GOES_ON, printable
        from lightning_modules.errors import AblationsError
        from lightning_modules.files import refusal

        # SIGTERM raises KeyboardInterrupt as Ctrl-C does, so that no half-written file stays.
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)
        # Garbage collection takes an eighth of a report's time, although its thousands of records have no cycles.
        thresholds = gc.get_threshold()
        gc.set_threshold(100_000, 50, 50)
        before_output = sys.stdout
        if sys.stdout is not None:  # it is None if the command was started without one, as by some daemons
            sys.stdout = cast(TextIO, Output(sys.stdout))
        try:
            _require_working_folder()
            return super().invoke(ctx)
        except (AblationsError, MemoryError, ImportError, RuntimeError) as error:
            if (sentence := _sentence(error)) is None:
                raise
            click.echo(printable(sentence), err=True)
            ctx.exit(WRONG)
        except OSError as error:
            refused = refusal(error)
            if error.filename == OUTPUT and error.errno != errno.EPIPE:
                refused = refused or (error.strerror or str(error), "write it to another place")
            if refused is None or not isinstance(error.filename, str | bytes):
                raise
            if error.filename == OUTPUT:  # Python writes the rest when it ends
                os.dup2(os.open(os.devnull, os.O_WRONLY), cast(TextIO, sys.stdout).fileno())
            reason, remedy = refused
            click.echo(printable(f"{os.fsdecode(error.filename)}: {reason}; {remedy}."), err=True)
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

    Exit codes: 0 good; 1 a run or a figure failed, `doctor` found a problem, or with --strict a claim was not as
    expected or none was judged; 2 the command stopped with an error, such as a wrong option, a wrong spec or a
    full disk; 130 interrupted.
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
