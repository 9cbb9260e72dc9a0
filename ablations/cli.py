"""`ablate`: the commands, in the order of work."""

import gc
import signal
from typing import Any

import click

from ablations.commands.models import analyse, export
from ablations.commands.options import INTERRUPTED, WRONG
from ablations.commands.results import claims, diff, figure, report
from ablations.commands.runs import doctor, measure, run, status
from ablations.commands.specs import examples, init, plan, text, validate


class Ablate(click.Group):
    """Group of commands that prints errors that a user can act on as one sentence, without a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        from ablations.wording import printable
        from lightning_modules.errors import AblationsError

        # SIGTERM raises KeyboardInterrupt as Ctrl-C does, so that no half-written file stays.
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)
        # Garbage collection takes an eighth of a report's time, although its thousands of records have no cycles.
        thresholds = gc.get_threshold()
        gc.set_threshold(100_000, 50, 50)
        try:
            return super().invoke(ctx)
        except AblationsError as error:
            click.echo(printable(str(error)), err=True)
            ctx.exit(WRONG)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)
        finally:
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
