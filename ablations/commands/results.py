"""Commands on results: `claims`, `report`, `figure` and `diff`."""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from ablations.commands.options import (
    FAILED,
    FILE,
    GOOD,
    command,
    data_root_option,
    json_option,
    out_option,
    plugin_option,
    publish_option,
    set_option,
    spec_argument,
)


@command
@spec_argument
@set_option
@plugin_option
@out_option
@data_root_option
@json_option
@click.option("--strict", is_flag=True, help="Exit with 1 unless every judged claim came out as expected.")
@click.option("--new", is_flag=True, help="Judge nothing: write a first file of claims for the spec.")
def claims(
    spec: Path, given: tuple[str, ...], out: Path, data_root: Path, as_json: bool, strict: bool, new: bool
) -> None:
    """Judge the claims of a spec by what is measured so far, and write claims.json.

    Claims that are not run or have too few seeds are shown with the reason. With --strict the exit code is 1 if a
    claim that was judged came out otherwise than its file expects, or if none could be judged. With --new a file
    of claims is written beside the spec, with a first claim to change; no file is overwritten.
    """
    if new and given:
        raise click.UsageError("--new writes claims for the spec as it is; leave out --set.")
    if new:
        from ablations.skeletons import claims as claim_skeleton

        path = claim_skeleton.write(spec)
        click.echo(f"{path}: written, with a first claim to change; `ablate validate --claims-schema` explains it")
        click.echo(f"next: set `claims: [{path.stem}]` in {spec}, then `ablate validate {spec}`")
        return
    from ablations.errors import SpecError
    from ablations.runs.workspace import Workspace
    from reports.claims.judge import as_expected
    from reports.page.terminal import claims_table

    workspace = Workspace.open(spec, given=given, out=out, data_root=data_root)
    if not workspace.experiment.claims:
        raise SpecError(
            f"{spec}: the spec names no claims; add them, as in `claims: [article]`, or begin with --new."
        )
    workspace.write_plan()
    workspace.write_table()
    content, _ = write_claims(workspace.folder)
    if as_json:
        click.echo(json.dumps(content, indent=2))
    else:
        claims_table(content)
    sys.exit(FAILED if strict and not as_expected(content["claims"]) else GOOD)


@command
@click.argument("place", metavar="SPEC", type=FILE)
@set_option
@plugin_option
@out_option
@data_root_option
@publish_option
def report(place: Path, given: tuple[str, ...], out: Path, data_root: Path, published: Path | None) -> None:
    """Write the page again from what is there; needs neither torch nor a network.

    SPEC is a spec whose runs lie in the output root. Or it is a folder of published results, as
    experiments/results/NAME: its claims are judged again by its table, and the page is written to OUT/NAME.
    """
    from ablations.runs.workspace import Workspace
    from lightning_modules.files import require_writable

    if published is not None:
        require_writable(published)  # before anything is written
    if not place.is_dir():
        page = write_page(Workspace.open(place, given=given, out=out, data_root=data_root), redraw=True)
    else:
        refuse_settings(given, place)
        page = write_published_page(place, out)
    sys.exit(GOOD if show_page(page, published) else FAILED)


def write_published_page(published: Path, out: Path) -> Path:
    """Write the page of a published experiment into the output root, with its claims judged again."""
    from reports import folder as experiment_folder
    from reports.page import page
    from reports.page.diff import folder_of

    folder = page.restore(folder_of(published, out=out), out)
    has_claims = experiment_folder.read_plan(folder).claims
    return page.write(folder, write_claims(folder)[1] if has_claims else None)


def refuse_settings(given: tuple[str, ...], place: Path) -> None:
    """Raise an error if `--set` is given for a folder of results.

    Raises:
        UsageError: settings are given, and `place` is a folder.
    """
    if given and place.is_dir():
        raise click.UsageError("--set is for a spec, and a folder of results is named; leave one out.")


@command
@click.argument("place", metavar="SPEC", type=FILE)
@click.argument("name", required=False)
@click.option("--for", "medium", type=click.Choice(["paper", "slides"]), default="paper", show_default=True)
@click.option("--wide", is_flag=True, help="Over both columns of a paper: 6.3 inches instead of 3.03.")
@set_option
@plugin_option
@out_option
def figure(place: Path, name: str | None, medium: str, wide: bool, given: tuple[str, ...], out: Path) -> None:
    """Write a figure of the page for a paper or for slides, as PDF and PNG; without NAME, list the figures.

    SPEC is a spec whose results lie in the output root, or a folder of results, as out/NAME. The files are written
    to print in OUT/NAME. Fonts are embedded, and no title is drawn: a paper has captions.
    """
    from lightning_modules.errors import PluginError
    from reports import folder as experiment_folder
    from reports.claims.judge import judge_claims
    from reports.figures import files
    from reports.page.content import page_figures
    from reports.page.diff import folder_of

    if wide and medium == "slides":
        raise click.UsageError("--wide is for papers; leave it out.")
    refuse_settings(given, place)
    folder = folder_of(place, out=out, given=given)
    figures, failures = page_figures(judge_claims(experiment_folder.read(folder)))
    panels = [panel for one in figures for panel in one.panels]
    if name is None:
        width = max((len(panel.name) for panel in panels), default=0)
        for one in figures:
            for panel in one.panels:
                titles = ": ".join(dict.fromkeys((one.text.title, panel.title)))
                click.echo(f"{panel.name:<{width}}  Figure {one.number}{panel.letter}. {titles}")
        sys.exit(GOOD if say_failed_figures(failures.values()) else FAILED)
    if name in failures:
        raise PluginError(failures[name])
    panel = files.panel_called(name, panels)
    print_folder = out / folder.resolve().name / "print"
    for path in files.save(panel, print_folder, medium=f"{medium}-wide" if wide else medium):
        click.echo(path)


@command
@click.argument("before", metavar="A", type=FILE)
@click.argument("after", metavar="B", type=FILE)
@click.option(
    "--examples", metavar="N", type=click.IntRange(min=0), default=0, help="List N examples of either kind."
)
@click.option(
    "--by", type=click.Choice(["length", "frequency", "part"]), help="Also compare slices of the examples."
)
@plugin_option
@out_option
@json_option
def diff(before: Path, after: Path, examples: int, by: Any, out: Path, as_json: bool) -> None:
    """Show two experiments, arms or runs side by side; nothing is written.

    A and B are folders of results, as out/NAME, or specs whose results lie in the output root: claims, validation
    losses and settings stand side by side with their differences. Or they are arms, as out/NAME:ARM, or folders of
    runs, as out/runs/RUN: then the command shows how many examples B answers better or worse than A, in each seed
    and over seeds. For that their measures need `predictions: true`; --examples and --by are for these.
    """
    from reports.page.diff import compare, folder_of
    from reports.page.flips import compare_examples, side_of

    sides = [side_of(place, out=out) for place in (before, after)]
    if sides[0] is not None and sides[1] is not None:
        content = compare_examples(sides[0], sides[1], by=by, examples=examples)
    elif any(sides):
        raise click.UsageError("A and B must both be experiments, or both arms or runs.")
    elif by or examples:
        raise click.UsageError(
            "--examples and --by are for two arms, as out/NAME:ARM, or two runs; leave them out."
        )
    else:
        content = compare(folder_of(before, out=out), folder_of(after, out=out))
    if as_json:
        click.echo(json.dumps(content, indent=2, allow_nan=False))
    else:
        from reports.page.diff_tables import diff_tables, example_tables

        (example_tables if any(sides) else diff_tables)(content)


def show_page(page: Path, published: Path | None = None) -> bool:
    """Print where a page is and which of the user's own figures failed, and publish it to a given folder.

    Returns whether no figure failed.
    """
    from ablations.spec.figures import FAILED_FIGURE
    from lightning_modules.files import read_json

    notices = read_json(page.with_name("report.json"))["notices"]
    is_whole = say_failed_figures(notice["text"] for notice in notices if notice["kind"] == FAILED_FIGURE)
    click.echo(f"page: {page}")
    if published is not None:
        from reports.page.page import publish

        click.echo(f"published: {publish(page.parent, published)}")
    return is_whole


def say_failed_figures(failures: Iterable[str]) -> bool:
    """Print which of the user's own figures failed, and return whether none did."""
    sentences = list(failures)
    for sentence in sentences:
        click.secho(f"failed: {sentence}", fg="red", err=True)
    return not sentences


def write_page(workspace: Any, *, redraw: bool = False) -> Path:
    """Gather the table from the runs, write the page beside it, and return the path of the page.

    A page whose content would be the same is not written again, unless `redraw`.
    """
    from reports.folder import is_fresh

    workspace.write_plan()
    workspace.write_table()
    judged = write_claims(workspace.folder)[1] if workspace.experiment.claims else None
    if not redraw and is_fresh(workspace.folder):
        return workspace.folder / "report.html"
    from reports.page import page

    return page.write(workspace.folder, judged)


def write_claims(folder: Path) -> tuple[dict[str, Any], Any]:
    """Judge an experiment's claims by its table, and write the verdicts beside it.

    Returns the content of claims.json, and the judged experiment for its page.
    """
    from reports import folder as experiment_folder
    from reports.claims import judge

    judged = judge.judge_claims(experiment_folder.read(folder))
    return judge.write(judged, folder), judged
