"""Options, paths, exit codes and sentences that several commands share. This module needs no torch."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import Any, TypedDict

import click

from lightning_modules.files import refusal


class GivenPath(click.Path):
    """Path on the command line, checked for invalid bytes and, if it exists, for kind and permissions.

    With `readable=False` permissions are not checked: the code that reads the file then reports what is
    wrong.
    """

    def __init__(self, **checks: bool) -> None:
        super().__init__(path_type=Path, **checks)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        text = os.fsdecode(value)
        if not text:
            self.fail("expected a path, but it is empty.", param, ctx)
        if "\0" in text or any("\ud800" <= letter <= "\udfff" for letter in text):
            encoding = sys.getfilesystemencoding()
            if encoding != "utf-8" and "\0" not in text:
                self.fail(f"this environment has {encoding} names, not {text!a}; set PYTHONUTF8=1.", param, ctx)
            self.fail(f"the name {text!a} is not UTF-8; rename the file in UTF-8.", param, ctx)
        try:
            mode = os.stat(text).st_mode if self.readable else 0
            if S_ISDIR(mode):
                os.scandir(text).close()
            elif S_ISREG(mode):
                open(text, "rb").close()
        except (FileNotFoundError, NotADirectoryError):
            pass  # the command may make it; `super().convert` checks whether it must exist
        except OSError as error:
            reason, remedy = refusal(error) or (str(error), "choose another")
            self.fail(f"{text}: {reason}; {remedy}.", param, ctx)
        return super().convert(value, param, ctx)


GOOD, FAILED, WRONG, INTERRUPTED = 0, 1, 2, 130
FILE, FOLDER = GivenPath(readable=False), GivenPath(file_okay=False)

spec_argument = click.argument("spec", type=FILE)
set_option = click.option(
    "--set",
    "overrides",
    metavar="KEY=VALUE",
    multiple=True,
    help="Change a setting of the spec for this command, for example training.max_steps=200; may be repeated. "
    "The results go to a folder of their own, OUT/NAME-KEY-VALUE; --set name=... chooses another name.",
)


def _give_files(ctx: click.Context, param: click.Parameter, value: tuple[Path, ...]) -> None:
    from lightning_modules import plugins

    plugins.give_files(value)


plugin_option = click.option(
    "--plugin",
    metavar="FILE.py",
    type=GivenPath(exists=True, dir_okay=False),
    multiple=True,
    expose_value=False,
    callback=_give_files,
    help="A Python file that the spec names as FILE.py:Thing, if it is not beside the spec; may be repeated. "
    "The file is executed if the spec names it.",
)
out_option = click.option("--out", type=FOLDER, default="out", show_default=True, help="Output root.")
data_root_option = click.option(
    "--data-root",
    type=GivenPath(exists=True, file_okay=False),
    default=".",
    show_default=True,
    help="Folder from which relative paths of the spec's data start.",
)
devices_option = click.option(
    "--devices",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Number of devices that train each run together (DDP).",
)
slots_option = click.option(
    "--slots",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Number of runs at the same time; if there are fewer GPUs, runs share them.",
)
publish_option = click.option(
    "--publish",
    "published",
    metavar="FOLDER",
    type=FOLDER,
    help="Also copy to FOLDER/NAME the files that a repository should keep: report.md, figures, tables, results, "
    "claims, verdicts, the spec and the provenance of runs.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


class SpecOptions(TypedDict):
    """Arguments that `spec_argument` and `spec_options` give to a command, and that `Workspace.open` takes."""

    spec: Path
    overrides: tuple[str, ...]
    out: Path
    data_root: Path


def spec_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of every command that reads the results of a spec: `--set`, `--plugin`, `--out` and
    `--data-root`."""
    return set_option(plugin_option(out_option(data_root_option(function))))


def require_possible(out: Path) -> None:
    """Raise a FilesError if the output root neither exists nor can be made. It may be read-only."""
    from lightning_modules.files import require_writable

    if not out.exists():
        require_writable(out)


def powers_of(workspace: Any, pilot: Path | None = None) -> list[Any]:
    """Return the power of each claim for the spread between seeds of a pilot; an empty list without a pilot.

    Args:
        pilot: folder of the pilot's results. By default the one that the spec names.

    Raises:
        ResultsError: the folder has no table of results.
    """
    named = getattr(workspace.experiment.seeds, "pilot", None)
    folder = pilot or (workspace.spec.parent / named if named else None)
    if folder is None:
        return []
    from ablations import results
    from ablations.errors import ResultsError
    from ablations.spec import claims as claims_file
    from reports.claims.power import claim_powers

    path = folder / "results.parquet"
    if not path.is_file():
        raise ResultsError(
            f"{path} does not exist, so the spread between seeds is unknown; name a folder of results, such as "
            "out/NAME."
        )

    files = claims_file.load_named(workspace.experiment.claims, spec=workspace.spec)
    return claim_powers(
        [claim for file in files for claim in file.claims],
        results.read(path),
        seeds=len(workspace.experiment.all_seeds),
        arms=workspace.arms,
        measures=[measure.kind for measure in workspace.experiment.measures],
        looks=None if workspace.looks is None else workspace.looks.sizes,
    )


def notes_of(workspace: Any, powers: list[Any]) -> list[str]:
    """Return sentences about a spec that a user should know before its runs start.

    Args:
        powers: the power of its claims, from `powers_of`.
    """
    chances: list[str] = []
    if powers:
        from reports.claims.power import unlikely

        chances = unlikely(powers, seeds=len(workspace.experiment.all_seeds))
    return [
        *workspace.changed(),
        *plugin_sentences(),
        *workspace.earlier_runs(),
        *workspace.same_runs(),
        *workspace.seeds_to_come(),
        *chances,
        *workspace.warnings(),
    ]


def plugin_sentences() -> list[str]:
    """Return a sentence for each loaded plugin that says from which file it was loaded."""
    from lightning_modules import plugins

    return [f"{plugin.name} was loaded from {plugin.path}." for plugin in plugins.loaded()]
