"""Commands for training and measuring: `run`, `status`, `measure` and `doctor`."""

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple, Unpack

import click

from ablations.commands.options import (
    FAILED,
    FILE,
    GOOD,
    INTERRUPTED,
    SpecOptions,
    devices_option,
    json_option,
    notes_of,
    out_option,
    powers_of,
    require_possible,
    slots_option,
    spec_argument,
    spec_options,
)
from ablations.commands.results import say_unreadable, show_page, write_page
from ablations.wording import listed


@click.command
@spec_argument
@spec_options
@click.option("--arm", "arms", multiple=True, help="Only this arm; may be repeated.")
@click.option("--seed", "seeds", multiple=True, type=int, help="Only this seed; may be repeated.")
@devices_option
@slots_option
@click.option(
    "--on",
    "on",
    type=click.Choice(["local", "slurm", "ray"]),
    default="local",
    show_default=True,
    help="Where runs are trained: on this machine, in jobs of SLURM (which continue when the command ends), or "
    "as tasks of Ray.",
)
@click.option(
    "--place",
    "place_file",
    type=FILE,
    help="YAML file with the resources of the runs, such as partition, time_limit, cpus, gpus and memory. Works "
    "only with --on slurm or --on ray.",
)
@click.option(
    "--other-machine",
    is_flag=True,
    help="Continue runs that started on another kind of machine, or with other versions or devices; their "
    "results then differ in some bits.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be done, without doing it.")
def run(
    arms: tuple[str, ...],
    seeds: tuple[int, ...],
    devices: int,
    slots: int,
    on: str,
    place_file: Path | None,
    other_machine: bool,
    dry_run: bool,
    **options: Unpack[SpecOptions],
) -> None:
    """Train and measure what is missing, then write table and page."""
    from ablations.runs.identity import require_loggers
    from ablations.runs.workspace import Workspace

    if on != "local" and (devices, slots) != (1, 1):
        instead = "devices and runs_at_once" if on == "slurm" else "devices, cpus and gpus"
        raise click.UsageError(
            f"--devices and --slots work only on this machine; write {instead} into the file of --place."
        )
    if on != "local" and other_machine:
        raise click.UsageError(
            "--other-machine works only on this machine; leave it out, because jobs of a cluster always continue."
        )
    workspace = Workspace.open(**options, tokenise=not dry_run)
    planned = [item.run for item in workspace.planned]
    require_loggers(options["spec"], planned, overrides=options["overrides"])
    selected = workspace.select(arms, seeds)
    place = place_of(on, place_file, workspace) or ThisMachine(devices, slots, other_machine)
    if dry_run:
        require_possible(options["out"])
        show_dry_run(workspace, selected, place, arms=arms)
        return
    interrupted, failed, is_idle = False, False, True
    if workspace.search is not None:
        workspace, interrupted, failed = tune_at(place, workspace, arms)
    failed |= not say_unreadable(of_selected(workspace.unreadable(), workspace, arms, seeds))
    workspace.fix_looks()
    given_up: set[Path] = set()
    goes_on = not interrupted
    while goes_on:
        open_runs = workspace.todo(workspace.select(arms, seeds))
        todo = [item for item in open_runs if item.directory.path not in given_up]
        is_first = todo and is_idle  # the notes come only once, not after each look
        is_idle = is_idle and not todo and not workspace.pairs_to_compare()
        notes = notes_of(workspace, powers_of(workspace)) if is_first else []
        interrupted, failures = complete(workspace, todo, place, notes=notes)
        failed |= failures is None or bool(failures)
        given_up |= set(failures or ())
        goes_on = False
        if workspace.looks is not None and not (interrupted or arms or seeds or failures is None):
            workspace, goes_on = look_at_claims(workspace)
        is_idle &= not goes_on
    if is_idle and not interrupted and not failed:
        click.echo(f"nothing to do: every {'selected ' * bool(arms or seeds)}run is trained and measured")
    page, plan = write_page(workspace)
    if not failed:  # a file may have been damaged meanwhile
        failed = not say_unreadable(of_selected(plan.runs, workspace, arms, seeds))
    failed |= not show_page(page)
    sys.exit(INTERRUPTED if interrupted else FAILED if failed else GOOD)


@click.command
@click.argument("spec", required=False, type=FILE)
@spec_options
@json_option
def status(spec: Path | None, overrides: tuple[str, ...], out: Path, data_root: Path, as_json: bool) -> None:
    """Show the state of every run of a spec.

    Without SPEC it shows all runs of the output root.
    """
    from ablations.runs.plan import all_statuses, checkpoint_sentences
    from ablations.runs.terminal import status_table
    from ablations.runs.workspace import Workspace

    notes: list[str] = []
    if overrides and spec is None:
        raise click.UsageError("--set needs a spec; name one.")
    if spec:
        workspace = Workspace.open(spec, overrides=overrides, out=out, data_root=data_root)
        statuses = workspace.statuses()
        notes = workspace.changed() + workspace.unmatched() + workspace.earlier_runs()
        notes += checkpoint_sentences([run for run, _ in statuses])
    else:
        statuses = all_statuses(out)
        if not statuses and not as_json:
            click.echo(f"{out} has no runs; name the folder of your runs with --out, or start `ablate run`.")
            return
    from ablations.runs.places import arrays, slurm

    endings = arrays.endings(out.absolute())
    waiting = {run.folder for run, _ in statuses if run.state in ("planned", "interrupted")} - endings.keys()
    notes += slurm.status_notes(out.absolute(), waiting)
    messages = {run.folder: state.message for run, state in statuses}  # which the table shows already
    # A reason stays in the record of a job, also after its run was completed elsewhere.
    open_runs = {run.folder for run, _ in statuses if spec is None or run.state != "done" or run.not_measured}
    notes += [
        f"{name}: {ending.message}"
        for name, ending in endings.items()
        if name in open_runs and messages[name] != ending.message
    ]
    if as_json:
        click.echo(json.dumps({"runs": [status.fields() for status in statuses], "notes": notes}, indent=2))
    else:
        status_table(statuses, notes)


@click.command
@spec_argument
@spec_options
@slots_option
def measure(slots: int, **options: Unpack[SpecOptions]) -> None:
    """Measure trained runs again, from their checkpoints.

    Then the command writes the table and the page.
    """
    from ablations.errors import SpecError
    from ablations.runs.plan import run_labels
    from ablations.runs.progress import carry_out, compare_runs
    from ablations.runs.workspace import Workspace

    workspace = Workspace.open(**options, tokenise=True)
    failed = not say_unreadable(workspace.unreadable())
    trained = [item for item in workspace.readable() if item.directory.is_trained()]
    done = [item for item in trained if item.directory.is_done()]
    gone = [f"{item.run.arm} (seed {item.run.seed})" for item in trained if item not in done]
    if failed and not trained:  # why is said already
        sys.exit(FAILED)
    if not done:
        raise SpecError(
            f"{workspace.spec}: the last checkpoints of all trained runs are missing or damaged, so nothing can "
            "be measured again; earlier results are kept; to train a run again, delete its folder and start "
            "`ablate run`."
            if trained
            else f"{workspace.spec}: no run is trained yet, so there is nothing to measure; start `ablate run`."
        )
    if gone:
        click.echo(
            f"Not measured again, because the last checkpoint is missing or damaged: {run_labels(gone)}. "
            "Their earlier rows stay; to train them again, delete their folders and start `ablate run`."
        )
    interrupted, outcomes = carry_out(workspace, done, devices=1, slots=slots, recompute=True)
    failed |= bool(outcomes)
    if not interrupted and workspace.pairs_to_compare(recompute=True):
        failed |= not compare_runs(workspace, recompute=True)
    failed |= not show_page(write_page(workspace)[0])
    sys.exit(INTERRUPTED if interrupted else FAILED if failed else GOOD)


@click.command
@out_option
def doctor(out: Path) -> None:
    """Check this machine, and time steps of training on it.

    The command shows versions, devices, free disk and packages that are known to be bad. It keeps the speeds in
    the output root; `plan` estimates times from them.
    """
    from ablations.doctor import calibrate, findings

    bad = False
    for name, value, problem in findings(out):
        click.echo(f"{name:<24}{value}{'  <- ' + problem if problem else ''}")
        bad |= bool(problem)
    for name, value in calibrate(out):
        click.echo(f"{name:<24}{value}")
    sys.exit(FAILED if bad else GOOD)


class ThisMachine(NamedTuple):
    """This machine as the place of runs."""

    devices: int
    slots: int
    other_machine: bool
    """Whether runs that were begun on another kind of machine may go on here."""


def of_selected(runs: Any, workspace: Any, arms: tuple[str, ...], seeds: tuple[int, ...]) -> Any:
    """Return the records of runs whose arm and seed were selected."""
    ids = {item.run_id for item in workspace.select(arms, seeds)}
    return [run for run in runs if run.run_id in ids]


def complete(workspace: Any, todo: Any, place: Any, *, notes: list[str]) -> tuple[bool, list[Path] | None]:
    """Train and measure runs, and compare pairs of runs if the spec asks for it.

    Returns whether somebody interrupted it, and the folders of the runs that failed; None instead of the
    folders if pairs could not be compared.
    """
    from ablations.runs.plan import checkpoint_sentences
    from ablations.runs.progress import compare_runs

    interrupted, failures = False, []
    if todo:
        ids = {item.run_id for item in todo}
        runs = [run for run, _ in workspace.statuses() if run.run_id in ids]
        for sentence in (*notes, *checkpoint_sentences(runs)):
            click.echo(sentence)
        interrupted, outcomes = carry_out_at(place, workspace, todo)
        failures = [outcome.run_dir for outcome in outcomes]
    if not interrupted and workspace.pairs_to_compare() and not compare_runs(workspace):
        return interrupted, None
    return interrupted, failures


def look_at_claims(workspace: Any) -> tuple[Any, bool]:
    """Judge the claims with the seeds so far, and give more seeds to the arms of open claims.

    Returns the workspace with these seeds, and whether a look was taken or an arm got seeds, so that work is
    left.
    """
    from reports import folder as experiment_folder
    from reports.claims.judge import judge_claims
    from reports.claims.outcomes import after_look
    from reports.claims.words import look_sentence

    if (look := workspace.look_due()) is not None:
        workspace = workspace.with_look(look)
    if not workspace.looks.taken:
        return workspace, False
    workspace.write_results()
    outcomes = judge_claims(experiment_folder.read(workspace.folder)).outcomes
    seeds_of, futile = after_look(outcomes, workspace.looks)
    before = workspace.looks.seeds_of
    workspace = workspace.go_on(seeds_of=seeds_of, futile=futile)
    goes_on = look is not None or workspace.looks.seeds_of != before
    if goes_on and (sentence := look_sentence(outcomes, workspace.looks, futile=futile)):
        click.echo(sentence)
    return workspace, goes_on


def place_of(on: str, place_file: Path | None, workspace: Any) -> Any:
    """Return the place that carries out the runs, as the `--place` file says; None for this machine."""
    from ablations.runs.places import place

    if on != "local":
        kind: Any = place.RayPlace if on == "ray" else place.SlurmPlace
        return place.load(place_file, kind, arms=workspace.arms)
    if place_file is not None:
        raise click.UsageError(
            "--place works only with --on slurm or --on ray; add one of them, or leave --place out."
        )
    return None


def engine_of(place: Any) -> Any:
    """Return the module that carries out runs at a place: that of Ray or that of SLURM."""
    from ablations.runs.places import ray_cluster, slurm
    from ablations.runs.places.place import RayPlace

    return ray_cluster if isinstance(place.content, RayPlace) else slurm


def show_dry_run(workspace: Any, selected: Any, place: Any, *, arms: tuple[str, ...]) -> None:
    """Print the plan of the selected runs or, for SLURM or Ray, the jobs to be submitted. The jobs of trials come
    first.

    Args:
        arms: arms that were selected; all if there are none.
    """
    if not isinstance(place, ThisMachine):
        engine, search = engine_of(place), workspace.search
        lines: list[str] = []
        if search is not None:
            waiting = [arm for arm in search.to_be_tuned() if not arms or arm in arms]
            lines += search.without_choice(arms)
            lines += engine.dry_run(workspace.for_trials(), search.open_of(arms), place=place)
            if waiting:
                lines.append(f"The runs of {listed(waiting, 'and')} follow when their trials have ended.")
        lines += engine.dry_run(workspace, workspace.todo(selected), place=place)
        for line in dict.fromkeys(lines):  # SLURM's script only once
            click.echo(line)
        return
    from ablations.runs.terminal import plan_table

    content = workspace.plan(selected, slots=place.slots, devices=place.devices)
    notes = [*notes_of(workspace, powers_of(workspace)), *content.notes]
    plan_table(content.model_copy(update={"notes": notes}))


def carry_out_at(place: Any, workspace: Any, todo: Any) -> Any:
    """Train and measure runs at a place."""
    from ablations.runs.places import ray_cluster, slurm

    is_here = isinstance(place, ThisMachine)
    if is_here or engine_of(place) is ray_cluster:
        slurm.require_not_queued(workspace.out, todo)
    if not is_here:
        return engine_of(place).carry_out(workspace, todo, place=place)
    from ablations.runs.progress import carry_out

    if place.other_machine:
        from lightning_modules.provenance import accept_machine

        for item in todo:
            accept_machine(item.directory, devices=place.devices)
    return carry_out(workspace, todo, devices=place.devices, slots=place.slots)


def tune_at(place: Any, workspace: Any, arms: tuple[str, ...]) -> tuple[Any, bool, bool]:
    """Train the trials of the tuned arms until each arm has its settings.

    Returns the workspace with these settings, whether somebody interrupted it, and whether an arm has no settings
    although its trials were tried: a trial failed otherwise than by diverging, or all of them diverged.
    """
    from ablations.runs.tuning import chosen_in_words

    given_up: set[str] = set()
    interrupted = False
    while trials := [item for item in workspace.search.open_of(arms) if item.run_id not in given_up]:
        interrupted, _ = carry_out_at(place, workspace.for_trials(), trials)
        workspace = workspace.opened_again()
        if interrupted:
            break
        without_loss = {item.run_id for item in trials} & {item.run_id for item in workspace.search.open_of(arms)}
        given_up |= without_loss
        for item in trials:
            if item.run_id in without_loss:
                click.echo(f"tune: {item.directory.path.name} has no validation loss, so its arm is not tuned.")
    without_choice = workspace.search.without_choice(arms)
    for sentence in [*chosen_in_words(workspace.search.tuning), *without_choice]:
        click.echo(sentence)
    return workspace, interrupted, bool(given_up or without_choice)
