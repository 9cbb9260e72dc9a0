"""Commands on results: `claims`, `report`, `figure` and `diff`."""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Unpack

import click

from ablations.commands.options import (
    FAILED,
    FILE,
    GOOD,
    SpecOptions,
    json_option,
    out_option,
    plugin_option,
    publish_option,
    set_option,
    spec_argument,
    spec_options,
)


@click.command
@spec_argument
@spec_options
@json_option
@click.option(
    "--strict",
    is_flag=True,
    help="Exit with 1 unless every judged claim came out as expected and at least one was judged.",
)
@click.option("--new", is_flag=True, help="Write a first file of claims for the spec, and judge nothing.")
def claims(as_json: bool, strict: bool, new: bool, **options: Unpack[SpecOptions]) -> None:
    """Judge the claims of a spec by what is measured so far.

    The verdicts are also written to claims.json. Claims that lack an arm, a measure or enough seeds are shown with
    the reason. With --strict the exit code is 1 if a judged claim came out differently from what its file expects,
    or if no claim could be judged. With --new the command writes a file of claims beside the spec, with a first
    claim for you to change. It overwrites no file.
    """
    spec = options["spec"]
    if new and options["overrides"]:
        raise click.UsageError("--new writes claims for the spec without changed settings; leave --set out.")
    if new:
        from ablations.skeletons import claims as claim_skeleton
        from ablations.spec import load

        path = claim_skeleton.write(spec)
        named = load.load(spec, beside="unread").claims
        click.echo(
            f"{path} is written with a first claim for you to change; `ablate validate --claims-schema` "
            "explains every key"
        )
        change = "" if path.stem in named else f"set `claims: [{', '.join([*named, path.stem])}]` in {spec}, then "
        click.echo(f"next: {change}`ablate validate {spec}`")
        return
    from ablations.errors import SpecError
    from ablations.runs.records import require_runs
    from ablations.runs.workspace import Workspace
    from reports.claims.judge import as_expected
    from reports.page.terminal import claims_table

    if spec.is_dir():
        raise SpecError(f"{spec} is a folder; name a spec (`ablate report FOLDER` judges published results).")
    workspace = Workspace.open(**options)
    if not workspace.experiment.claims:
        raise SpecError(
            f"{spec}: the spec names no claims; name a file of claims, as in `claims: [article]`, or write a "
            f"first one with `ablate claims {spec} --new`."
        )
    require_runs(workspace.folder, workspace.out / "runs", planned={item.run_id for item in workspace.planned})
    say_unreadable(workspace.write_results().runs)
    content, judged = write_claims(workspace.folder)
    if as_json:
        click.echo(json.dumps(content, indent=2))
    else:
        claims_table(judged)
    sys.exit(FAILED if strict and not as_expected(judged.entries) else GOOD)


@click.command
@click.argument("place", metavar="SPEC", type=FILE)
@spec_options
@publish_option
def report(place: Path, overrides: tuple[str, ...], out: Path, data_root: Path, published: Path | None) -> None:
    """Write the page again from the results on disk.

    This needs neither torch nor a network. SPEC is a spec whose runs are in the output root, or a folder of
    results: a published one, such as experiments/results/NAME, or one in an output root without write permission.
    For a folder the claims are judged again from its table, and the page is written to OUT/NAME.
    """
    from ablations.errors import SpecError, SpecProblems
    from ablations.runs.records import require_runs
    from ablations.runs.workspace import Workspace
    from ablations.spec import load
    from lightning_modules.files import require_writable
    from reports import folder as experiment_folder
    from reports.claims.judge import judge_claims
    from reports.page import page
    from reports.page.diff import folder_of, require_place

    require_place(place)
    if published is not None:
        require_writable(published)  # before anything is written
    if not place.is_dir():
        try:
            workspace = Workspace.open(place, overrides=overrides, out=out, data_root=data_root)
        except SpecProblems as error:
            folder = out / load.load(place, overrides=overrides).name
            if not (folder / "results.parquet").is_file():
                raise
            raise SpecError(
                f"{error}\nTo write the page without these files, from the last results, start `ablate report "
                f"{folder}`."
            ) from error
        require_runs(workspace.folder, workspace.out / "runs", planned={item.run_id for item in workspace.planned})
        written, plan = write_page(workspace, redraw=True)
        is_whole = say_unreadable(plan.runs)
    else:
        refuse_settings(overrides, place)
        folder = page.restore(folder_of(place, out=out), out)
        has_claims = experiment_folder.read_plan(folder).claims
        judged = write_claims(folder)[1] if has_claims else judge_claims(experiment_folder.read(folder))
        written = page.write(folder, judged)
        is_whole = say_unreadable(judged.experiment.damaged)
        failures = [f"claims of {entry.name}: {entry.rule}" for entry in judged.entries if entry.needs is None]
        is_whole &= say_failed(failures)
    sys.exit(GOOD if show_page(written, published) and is_whole else FAILED)


def refuse_settings(overrides: tuple[str, ...], place: Path) -> None:
    """Raise a UsageError if `--set` is given for a folder of results."""
    if overrides and place.is_dir():
        raise click.UsageError(
            "--set needs a spec, but you named a folder of results; leave --set out, or name the spec."
        )


@click.command
@click.argument("place", metavar="SPEC", type=FILE)
@click.argument("name", required=False)
@click.option(
    "--for",
    "medium",
    type=click.Choice(["paper", "slides"]),
    default="paper",
    show_default=True,
    help="Sizes and fonts for a paper or for slides.",
)
@click.option("--wide", is_flag=True, help="Width of both columns of a paper: 6.3 inches instead of 3.03.")
@set_option
@plugin_option
@out_option
def figure(place: Path, name: str | None, medium: str, wide: bool, overrides: tuple[str, ...], out: Path) -> None:
    """Write a figure for a paper or for slides, as PDF and PNG.

    Without NAME the command lists the figures of the page. NAME may also be the name of your own figure in the
    spec. SPEC is a spec whose results are in the output root, or a folder of results, such as out/NAME. The files
    are written to OUT/NAME/print. Fonts are embedded. The figure has no title, because a paper has captions; if it
    shows a part of the arms, they are named above it.
    """
    from lightning_modules import plugins
    from lightning_modules.errors import PluginError
    from reports import folder as experiment_folder
    from reports.claims.judge import judge_claims
    from reports.figures import files
    from reports.page.content import page_figures
    from reports.page.diff import folder_of
    from reports.page.figures import name_on_page

    if wide and medium == "slides":
        raise click.UsageError("--wide works only with --for paper; leave it out.")
    refuse_settings(overrides, place)
    folder = folder_of(place, out=out, overrides=overrides)
    experiment = experiment_folder.read(folder)
    is_whole = say_unreadable(experiment.damaged)
    figures, failures = page_figures(judge_claims(experiment))
    panels = [panel for page_figure in figures for panel in page_figure.panels]
    if name is None:
        width = max((len(panel.name) for panel in panels), default=0)
        for page_figure in figures:
            for panel in page_figure.panels:
                titles = ": ".join(dict.fromkeys((page_figure.text.title, panel.title)))
                click.echo(f"{panel.name:<{width}}  Figure {page_figure.number}{panel.letter}. {titles}")
        if not panels:
            click.echo(f"{folder} has no figures yet; `ablate run` measures what they show.")
        sys.exit(GOOD if say_failed(failures.values()) and is_whole else FAILED)
    name = name_on_page(name) if plugins.is_name(name) else name
    if name in failures:
        raise PluginError(failures[name])
    panel = files.panel_called(name, panels)
    print_folder = out / folder.resolve().name / "print"
    paths, boxes = files.save(panel, print_folder, medium=f"{medium}-wide" if wide else medium)
    for path in paths:
        click.echo(path)
    if boxes:
        click.secho(
            f"The fonts here have no {' '.join(boxes)}, so these are empty boxes in both files; use {panel.svg} "
            "of the page, where they are text that a browser or Inkscape draws with its fonts.",
            fg="yellow",
            err=True,
        )
    sys.exit(GOOD if is_whole else FAILED)


@click.command
@click.argument("before", metavar="A", type=FILE)
@click.argument("after", metavar="B", type=FILE)
@click.option(
    "--examples",
    metavar="N",
    type=click.IntRange(min=0),
    default=0,
    help="List N examples that B answers better, and N that it answers worse.",
)
@click.option(
    "--by",
    type=click.Choice(["length", "frequency", "part"]),
    help="Also compare groups of examples by length, frequency or part of the task.",
)
@plugin_option
@out_option
@json_option
def diff(before: Path, after: Path, examples: int, by: Any, out: Path, as_json: bool) -> None:
    """Show two experiments, arms or runs side by side.

    The command writes no file.

    Experiments: A and B are folders of results, such as out/NAME, or specs whose results are in the output root.
    The command shows claims, validation losses and settings side by side, with their differences.

    Arms or runs: A and B look like out/NAME:ARM or out/runs/RUN. The command shows how many examples B answers
    better or worse than A, in each seed and over seeds. Their measures need `predictions: true`. --examples and
    --by work only for arms or runs.
    """
    from reports.page.diff import compare
    from reports.page.flips import compare_examples, side_of

    sides = [side_of(place, out=out) for place in (before, after)]
    if sides[0] is not None and sides[1] is not None:
        content = compare_examples(sides[0], sides[1], by=by, examples=examples)
    elif any(sides):
        raise click.UsageError(
            "A and B are of different kinds; name two experiments, two arms (out/NAME:ARM) or two runs "
            "(out/runs/RUN)."
        )
    elif by or examples:
        raise click.UsageError(
            "--examples and --by work only for two arms (out/NAME:ARM) or two runs; leave them out, or name arms."
        )
    else:
        content = compare(before, after, out=out)
    if as_json:
        click.echo(json.dumps(content, indent=2, allow_nan=False))
    else:
        from reports.page.terminal import diff_tables, example_tables

        (example_tables if any(sides) else diff_tables)(content)


def show_page(page: Path, published: Path | None = None) -> bool:
    """Print where a page is and which of the user's own figures failed, and publish it to a given folder.

    Returns whether no figure failed.
    """
    from ablations.spec.figures import FAILED_FIGURE
    from lightning_modules.files import read_json

    notices = read_json(page.with_name("report.json"))["notices"]
    is_whole = say_failed(notice["text"] for notice in notices if notice["kind"] == FAILED_FIGURE)
    click.echo(f"page: {page}")
    if published is not None:
        from reports.page.page import publish

        click.echo(f"published: {publish(page.parent, published)}")
    return is_whole


def say_unreadable(runs: Iterable[Any]) -> bool:
    """Print which of the runs have files that are damaged or cannot be read, and return whether there are none.

    Args:
        runs: records of runs (`ablations.runs.records.RunRecord`).
    """
    unreadable = [run for run in runs if run.unreadable is not None]
    for run in unreadable:
        click.secho(f"unreadable: {run.folder}: {run.unreadable}", fg="red", err=True)
    return not unreadable


def say_failed(failures: Iterable[str]) -> bool:
    """Print what failed, such as a user's own figure, and return whether nothing did."""
    sentences = list(failures)
    for sentence in sentences:
        click.secho(f"failed: {sentence}", fg="red", err=True)
    return not sentences


def write_page(workspace: Any, *, redraw: bool = False) -> tuple[Path, Any]:
    """Gather the table from the runs, write the page beside it, and return the path of the page and the plan.

    A page whose content would be the same is not written again, unless `redraw`.
    """
    from reports.folder import is_fresh

    plan = workspace.write_results()
    judged = write_claims(workspace.folder)[1] if workspace.experiment.claims else None
    if not redraw and is_fresh(workspace.folder):
        return workspace.folder / "report.html", plan
    from reports.page import page

    return page.write(workspace.folder, judged), plan


def write_claims(folder: Path) -> tuple[dict[str, Any], Any]:
    """Judge an experiment's claims by its table, and write the verdicts beside it.

    Returns the content of claims.json, and the judged experiment for its page.
    """
    from reports import folder as experiment_folder
    from reports.claims import judge

    judged = judge.judge_claims(experiment_folder.read(folder))
    return judge.write(judged, folder), judged
