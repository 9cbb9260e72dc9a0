"""`ablate`: the commands, in the order of work. The only file that may import everything, inside its commands."""

import json
import signal
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click

from ablations.given_paths import GivenPath, PathCommand

GOOD, FAILED, WRONG, INTERRUPTED = 0, 1, 2, 130

Command = TypeVar("Command", bound=Callable[..., Any])


class Ablate(click.Group):
    """Prints an error that a user can act on as its sentence, without a traceback."""

    command_class = PathCommand

    def invoke(self, ctx: click.Context) -> Any:
        from lightning_modules.errors import AblationsError

        # SIGTERM unwinds as Ctrl-C does, so that nothing half-written stays.
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            return super().invoke(ctx)
        except AblationsError as error:
            click.echo(str(error), err=True)
            ctx.exit(WRONG)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)
        finally:
            signal.signal(signal.SIGTERM, before)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group(cls=Ablate, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="pretraining-ablations")
def main() -> None:
    """Find out, with evidence, what makes BERT-like pre-training work.

    An experiment is a YAML file that names arms and seeds. `ablate run` trains and measures what is
    missing and writes one table and one page; the same command goes on where it was interrupted.

    Exit codes: 0 good, 1 a run failed, 2 something is wrong with what was asked for, 130 interrupted.
    """


class Words(click.ParamType):
    """Words of a list, with spaces or commas between them."""

    name = "words"

    def __init__(self, words: Iterable[str]) -> None:
        self.words = list(words)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        words = value.replace(",", " ").split()
        for word in words:
            if word not in self.words:
                self.fail(f"{word} is none of {', '.join(self.words)}.", param, ctx)
        return tuple(words)


FILE, FOLDER = GivenPath(readable=False), GivenPath(file_okay=False)

spec_argument = click.argument("spec", type=FILE)
set_option = click.option(
    "--set",
    "given",
    metavar="KEY=VALUE",
    multiple=True,
    help="Lay a setting over the spec, as training.max_steps=200; may be given several times. The results have a "
    "folder of their own, OUT/NAME-KEY-VALUE; --set name=... gives it another name.",
)
out_option = click.option("--out", type=FOLDER, default="out", show_default=True, help="Output root.")
data_root_option = click.option(
    "--data-root",
    type=GivenPath(exists=True, file_okay=False),
    default=".",
    show_default=True,
    help="Where relative paths of a spec's data start.",
)
devices_option = click.option(
    "--devices",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Processes (GPUs) of each run: DDP.",
)
slots_option = click.option(
    "--slots",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Runs at the same time; where GPUs are fewer, runs share them.",
)
publish_option = click.option(
    "--publish",
    "published",
    metavar="FOLDER",
    type=FOLDER,
    help="Also copy what a repository keeps to FOLDER/NAME: report.md, figures, results, verdicts, spec.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="For machines.")


@main.command()
@click.argument("spec", required=False, type=FILE)
@click.option("--text", "texts", multiple=True, help="A file to train on; may be given several times.")
@click.option(
    "--validation", multiple=True, help="A file for validation; without it, the end of the text is held out."
)
@click.option("--column", help="Column of the sentences, where the files are tables; `text` unless given.")
@click.option("--target", help="Column of the translations, which --arm mt needs.")
@click.option("--document", help="Column that says which sentences belong together.")
@click.option(
    "--arm",
    "arms",
    multiple=True,
    type=click.Choice(("mlm", "clm", "mt", "mixture", "electra", "xlnet")),
    help="An objective to compare; may be given several times. [default: mlm and clm]",
)
@click.option("--size", type=click.Choice(("tiny", "small", "base")), help="Of the model. [default: tiny]")
@click.option("--steps", type=click.IntRange(min=1), help="Of training; unless given, as many as suit the text.")
@click.option("--seeds", type=click.IntRange(min=1), help="How many. [default: 3]")
@click.option("--overwrite", is_flag=True, help="Write over files that are there.")
def init(spec: Path | None, overwrite: bool, **given: Any) -> None:
    """Write a first spec for your own text: it is read once, and the sizes follow from it.

    The spec has a comment at each choice, passes `validate` and runs. On a terminal the command asks for what the
    options do not say; elsewhere it takes the defaults. Without --validation it also writes two parts of the text
    beside the spec, SPEC-train and SPEC-validation.
    """
    from ablations.skeletons import spec as spec_skeleton

    questions: dict[str, tuple[str, Any]] = {
        "texts": ("Text to train on", None),
        "arms": (f"Objectives to compare ({', '.join(spec_skeleton.OBJECTIVES)})", "mlm clm"),
        "size": (f"Size of the model ({', '.join(spec_skeleton.SIZES)})", "tiny"),
        "seeds": ("Seeds", 3),
    }
    for name, (question, default) in questions.items():
        if given[name]:
            continue
        if is_asking():
            kind = {"arms": Words(spec_skeleton.OBJECTIVES), "size": click.Choice([*spec_skeleton.SIZES])}.get(
                name
            )
            answer = click.prompt(question, default=default, type=kind)
            given[name] = (answer,) if name == "texts" else answer
        elif default is None:
            raise click.UsageError("--text is missing; name the file of your text, as in --text sentences.txt.")
        else:
            given[name] = tuple(default.split()) if name == "arms" else default
    path = spec or Path(f"{Path(given['texts'][0]).name.partition('.')[0]}.yaml")
    if spec is None and is_asking():
        path = Path(click.prompt("Spec to write", default=str(path)))
    choice = spec_skeleton.Choice(**given | {"arms": tuple(dict.fromkeys(given["arms"]))})
    for file in spec_skeleton.write(path, choice, data_root=Path.cwd(), overwrite=overwrite):
        click.echo(f"{file}: written")
    click.echo(f"next: read {path}, then `ablate validate {path}`, `ablate plan {path}` and `ablate run {path}`")


@main.command()
@click.argument("specs", metavar="SPEC...", nargs=-1, type=FILE)
@click.option("--schema", is_flag=True, help="Print the JSON Schema of spec files, for editors.")
@click.option("--claims-schema", is_flag=True, help="Print that of files of claims.")
@set_option
@data_root_option
@click.option("--no-files", is_flag=True, help="Do not look for the text and the other files that specs name.")
def validate(
    specs: tuple[Path, ...],
    schema: bool,
    claims_schema: bool,
    given: tuple[str, ...],
    data_root: Path,
    no_files: bool,
) -> None:
    """Check spec files and the claims they name: every problem at once, a line each, on stderr.

    So are the files of text, lexica and treebanks that they name, as `plan` and `run` do: that they are there and
    have the columns; and it says which tasks have no files there, as these would not be run. A file in a folder
    called claims is checked as a file of claims.
    """
    from ablations.catalogue import tasks_not_run
    from ablations.errors import SpecError
    from ablations.runs import doubts
    from ablations.spec import claims as claims_file
    from ablations.spec import grid, load
    from ablations.wording import several

    if schema or claims_schema:
        from ablations.spec import schema as schemas

        click.echo(json.dumps(schemas.claims_schema() if claims_schema else schemas.schema(), indent=2))
    elif not specs:
        raise click.UsageError("name at least one spec file, or ask for the --schema.")
    wrong = False
    for path in specs:
        try:
            if path.parent.name == claims_file.FOLDER:
                if given:
                    raise click.UsageError(f"{path} is a file of claims, and --set is for specs; leave one out.")
                claimed = len(claims_file.load(path).claims)
                click.echo(f"{path}: good, {several(claimed, 'claim')}")
                continue
            experiment = load.load(path, given=given)
            planned = grid.runs(experiment)
            arms = {run.arm: run.settings for run in planned}
            notices = doubts.equal_arms({arm: doubts.decided(settings) for arm, settings in arms.items()})
            if not no_files:
                from ablations.runs import (
                    workspace as run_workspace,  # pyarrow, which a look at the spec alone need not wait for
                )

                root = data_root.absolute()
                run_workspace.check(path, experiment, planned, data_root=root, given=given)
                notices += doubts.validated_on_training({arm: s.data for arm, s in arms.items()}, root)
                notices += tasks_not_run(experiment.measures, list(arms.items()), data_root=root)
            click.echo(f"{path}: good, {several(len(planned), 'run')}")
            claim_files = claims_file.load_named(experiment.claims, spec=path)
            kinds = [settings.kind for settings in experiment.measures]
            not_run = claims_file.not_run(claim_files, arms={run.arm for run in planned}, measures=kinds)
            for notice in [*not_run, *notices]:
                click.echo(f"  {notice}")
        except SpecError as error:
            wrong = True
            click.echo(str(error), err=True)
    sys.exit(WRONG if wrong else GOOD)


@main.command()
@spec_argument
@set_option
@out_option
@data_root_option
@devices_option
@slots_option
@click.option("--resolved", is_flag=True, help="Print the spec with every default written out.")
@json_option
def plan(
    spec: Path,
    given: tuple[str, ...],
    out: Path,
    data_root: Path,
    devices: int,
    slots: int,
    resolved: bool,
    as_json: bool,
) -> None:
    """Show the runs of a spec, which are done, and what the others cost."""
    from ablations.runs.terminal import plan_table
    from ablations.runs.workspace import Workspace
    from ablations.spec import grid, load

    if resolved:
        click.echo(json.dumps(grid.resolved(load.load(spec, given=given)), indent=2))
        return
    require_possible(out)
    workspace = Workspace.open(spec, given=given, out=out, data_root=data_root)
    content = workspace.plan(slots=slots, devices=devices)
    notes = [*notes_of(workspace), *content.notes]
    content = content.model_copy(update={"notes": notes})
    if as_json:
        written = content.model_dump(mode="json", exclude_unset=True)
        keys = ("experiment", "runs", "pairs_to_compare", "left_out", "seconds", "notes")
        click.echo(json.dumps({key: written[key] for key in keys}, indent=2))
    else:
        plan_table(content)


@main.command()
@spec_argument
@set_option
@out_option
@data_root_option
@json_option
def text(spec: Path, given: tuple[str, ...], out: Path, data_root: Path, as_json: bool) -> None:
    """Show what the text of a spec is made of, before anything is trained.

    Lengths in tokens; sentences that are cut, repeated, or also in the training text; unknown tokens. It cuts the
    text into tokens as `run` does at its start, and keeps them in the output root for it.
    """
    from ablations.checks import text_facts
    from ablations.runs.workspace import Workspace
    from lightning_modules.data import token_store

    workspace = Workspace.open(spec, given=given, out=out, data_root=data_root, tokenise=True)
    arms: dict[str, list[str]] = {}
    for item in workspace.planned:
        arms.setdefault(item.tokens, []).append(item.run.arm)
    texts = []
    for address, names in arms.items():
        data = next(item.run.settings.data for item in workspace.planned if item.tokens == address)
        tokens = token_store.prepare(
            data,
            data_root=workspace.data_root,
            store=workspace.out / "tokens",
            progress=lambda line: click.echo(line, err=True),
        )
        facts = text_facts.split_facts(data, tokens.report, data_root=workspace.data_root)
        different = list(dict.fromkeys(names))
        if as_json:
            splits = [one._asdict() for one in facts]
            texts.append({"arms": different, "splits": splits, "notes": text_facts.warnings(facts, tokens.report)})
        else:
            text_facts.show(different, facts, tokens.report)
    if as_json:
        click.echo(json.dumps({"texts": texts}, indent=2))


@main.command()
@spec_argument
@set_option
@out_option
@data_root_option
@click.option("--arm", "arms", multiple=True, help="Only this arm; may be given several times.")
@click.option("--seed", "seeds", multiple=True, type=int, help="Only this seed; may be given several times.")
@devices_option
@slots_option
@click.option(
    "--on",
    "on",
    type=click.Choice(["local", "slurm"]),
    default="local",
    show_default=True,
    help="Where: on this machine, or in jobs of SLURM, which go on when the command ends.",
)
@click.option(
    "--place", "place_file", type=FILE, help="A YAML file with what jobs ask for, as in docs/clusters.md."
)
@click.option("--dry-run", is_flag=True, help="Show what would be done, and do nothing.")
def run(
    spec: Path,
    given: tuple[str, ...],
    out: Path,
    data_root: Path,
    arms: tuple[str, ...],
    seeds: tuple[int, ...],
    devices: int,
    slots: int,
    on: str,
    place_file: Path | None,
    dry_run: bool,
) -> None:
    """Train and measure what is missing, then write the table and the page."""
    from ablations.runs.plan import checkpoint_sentences
    from ablations.runs.workspace import Workspace

    if on == "slurm" and (devices, slots) != (1, 1):
        raise click.UsageError(
            "--devices and --slots are for this machine; write devices and runs_at_once into the file of --place."
        )
    workspace = Workspace.open(spec, given=given, out=out, data_root=data_root, tokenise=not dry_run)
    selected = workspace.select(arms, seeds)
    place = place_of(on, place_file, workspace)
    if dry_run:
        require_possible(out)
        show_dry_run(workspace, selected, place, devices=devices, slots=slots)
        return
    interrupted, failed = False, False
    if workspace.search is not None:
        workspace, interrupted, failed = tune_at(place, workspace, arms, devices=devices, slots=slots)
    todo = [] if interrupted else workspace.todo(workspace.select(arms, seeds))
    if todo:
        ids = {item.run_id for item in todo}
        for sentence in (
            *notes_of(workspace),
            *checkpoint_sentences([run for run, _ in workspace.statuses() if run.run_id in ids]),
        ):
            click.echo(sentence)
        interrupted, outcomes = carry_out_at(place, workspace, todo, devices=devices, slots=slots)
        failed |= bool(outcomes)
    if not interrupted and workspace.pairs_to_compare():
        from ablations.runs.progress import compare_runs

        failed |= not compare_runs(workspace)
    elif not todo and not interrupted and not failed:
        click.echo("nothing to do: every run is trained and measured")
    click.echo(f"page: {write_page(workspace)}")
    sys.exit(INTERRUPTED if interrupted else FAILED if failed else GOOD)


@main.command()
@click.argument("spec", required=False, type=FILE)
@set_option
@out_option
@data_root_option
@json_option
def status(spec: Path | None, given: tuple[str, ...], out: Path, data_root: Path, as_json: bool) -> None:
    """Show the state of every run: of a spec, or of the whole output root."""
    from ablations.runs.plan import checkpoint_sentences
    from ablations.runs.terminal import status_table
    from ablations.runs.workspace import Workspace, all_statuses

    notes: list[str] = []
    if given and spec is None:
        raise click.UsageError("--set is for a spec; name one.")
    if spec:
        workspace = Workspace.open(spec, given=given, out=out, data_root=data_root)
        statuses = [*workspace.statuses(), *workspace.trial_statuses()]
        notes = workspace.changed() + workspace.unmatched() + workspace.earlier_runs()
        notes += checkpoint_sentences([run for run, _ in statuses])
    else:
        statuses = all_statuses(out)
        if not statuses and not as_json:
            click.echo(f"{out} has no runs; `ablate run` makes them in the folder that --out names.")
            return
    from ablations.runs.places.slurm import status_notes

    notes += status_notes(out.absolute())
    if as_json:
        click.echo(json.dumps({"runs": [status.fields() for status in statuses], "notes": notes}, indent=2))
    else:
        status_table(statuses, notes)


@main.command()
@spec_argument
@set_option
@out_option
@data_root_option
@slots_option
def measure(spec: Path, given: tuple[str, ...], out: Path, data_root: Path, slots: int) -> None:
    """Measure the trained runs of a spec again from their checkpoints, and write the table and the page."""
    from ablations.errors import SpecError
    from ablations.runs.plan import run_labels
    from ablations.runs.progress import carry_out, compare_runs
    from ablations.runs.workspace import Workspace

    workspace = Workspace.open(spec, given=given, out=out, data_root=data_root, tokenise=True)
    trained = [item for item in workspace.planned if item.directory.is_trained()]
    done = [item for item in trained if item.directory.is_done()]
    gone = [f"{item.run.arm} (seed {item.run.seed})" for item in trained if item not in done]
    if not done:
        raise SpecError(
            f"{spec}: no trained run has its last checkpoint any more, so nothing can be measured again; what was "
            "measured before stays."
            if trained
            else f"{spec}: no run is trained yet, so there is nothing to measure; start `ablate run`."
        )
    if gone:
        click.echo(f"Not measured again, because the last checkpoint is gone or damaged: {run_labels(gone)}.")
    interrupted, outcomes = carry_out(workspace, done, devices=1, slots=slots, recompute=True)
    failed = bool(outcomes)
    if not interrupted and workspace.pairs_to_compare(recompute=True):
        failed |= not compare_runs(workspace, recompute=True)
    click.echo(f"page: {write_page(workspace)}")
    sys.exit(INTERRUPTED if interrupted else FAILED if failed else GOOD)


@main.command()
@spec_argument
@set_option
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
        click.echo(f"{path}: written, with a first claim to change; docs/claims.md says what its keys mean")
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


@main.command()
@spec_argument
@set_option
@out_option
@data_root_option
@publish_option
def report(spec: Path, given: tuple[str, ...], out: Path, data_root: Path, published: Path | None) -> None:
    """Write the page again from what is there; needs neither torch nor a network."""
    from ablations.runs.workspace import Workspace
    from lightning_modules.files import require_writable

    if published is not None:
        require_writable(published)  # before anything is written
    page = write_page(Workspace.open(spec, given=given, out=out, data_root=data_root), redraw=True)
    show_page(page, published)


@main.command()
@click.argument("place", metavar="SPEC", type=FILE)
@click.argument("name", required=False)
@click.option("--for", "medium", type=click.Choice(["paper", "slides"]), default="paper", show_default=True)
@click.option("--wide", is_flag=True, help="Over both columns of a paper: 6.3 inches instead of 3.03.")
@out_option
def figure(place: Path, name: str | None, medium: str, wide: bool, out: Path) -> None:
    """Write a figure of the page for a paper or for slides, as PDF and PNG; without NAME, list the figures.

    SPEC is a spec whose results lie in the output root, or their folder, as out/NAME. The files lie in its folder
    print. Fonts are embedded, and no title is drawn: a paper has captions.
    """
    from reports import folder as experiment_folder
    from reports.claims.judge import judge_claims
    from reports.figures import publication
    from reports.page.content import page_figures
    from reports.page.diff import folder_of

    if wide and medium == "slides":
        raise click.UsageError("--wide is for papers; leave it out.")
    folder = folder_of(place, out=out)
    figures = page_figures(judge_claims(experiment_folder.read(folder)))
    panels = [panel for one in figures for panel in one.panels]
    if name is None:
        width = max((len(panel.name) for panel in panels), default=0)
        for one in figures:
            for panel in one.panels:
                click.echo(
                    f"{panel.name:<{width}}  Figure {one.number}{panel.letter}. {one.text.title}: {panel.title}"
                )
        return
    panel = publication.panel_called(name, panels)
    for path in publication.save(panel, folder / "print", medium=f"{medium}-wide" if wide else medium):
        click.echo(path)


@main.command()
@click.argument("before", metavar="A", type=FILE)
@click.argument("after", metavar="B", type=FILE)
@out_option
@json_option
def diff(before: Path, after: Path, out: Path, as_json: bool) -> None:
    """Show two experiments, or one before and after a change, claim by claim.

    A and B are folders of results, as out/NAME, or specs whose results lie in the output root. Claims, validation
    losses and settings stand side by side with their differences; nothing is written.
    """
    from reports.page.diff import compare, folder_of

    content = compare(folder_of(before, out=out), folder_of(after, out=out))
    if as_json:
        click.echo(json.dumps(content, indent=2, allow_nan=False))
    else:
        from reports.page.terminal import diff_tables

        diff_tables(content)


@main.command()
@click.argument("run_dir", type=FOLDER)
@click.argument("folder", metavar="DIR", type=FOLDER)
@click.option("--all-steps", is_flag=True, help="Every checkpoint that was kept, a folder each, and an index.")
@click.option("--encoder", "encoder_alone", is_flag=True, help="The encoder without heads and decoder.")
def export(run_dir: Path, folder: Path, all_steps: bool, encoder_alone: bool) -> None:
    """Write a trained run as a Hugging Face folder that stock classes load."""
    from ablations.runs.origin import origin_of
    from lightning_modules.export import folder as exports

    options: dict[str, Any] = {"encoder_alone": encoder_alone, "origin": origin_of(run_dir)}
    written = (
        exports.export_series(run_dir, folder, **options)
        if all_steps
        else [exports.export(run_dir, folder, **options)]
    )
    for each in written:
        click.echo(f"{each.class_name}: {each.folder}")


@main.command()
@click.argument("folder", type=FOLDER)
@click.option("--text", type=FILE, required=True, help="Sentences: a table, or a line each.")
@click.option(
    "--labels",
    type=FILE,
    help="A treebank of the very same sentences: CoNLL-U or parquet.",
)
@click.option("--column", help="Of a table; needed where several have text and none is called text.")
@click.option(
    "--tokens",
    type=click.IntRange(min=100),
    help="How many are measured at most, whole sentences from the start; else 150 for each unit of the width, at "
    "least 50,000, as far as their states stay within 6 GiB.",
)
@click.option(
    "--measures",
    "measures_file",
    type=FILE,
    help="A YAML file with `measures` as in a spec, and their settings; else all that read states.",
)
@click.option("--name", help="Of the folder of results, under the output root; else the model's.")
@click.option(
    "--data-root",
    type=GivenPath(exists=True, file_okay=False),
    default=".",
    show_default=True,
    help="Where the files of minimal pairs lie, as in blimp/test.parquet.",
)
@publish_option
@out_option
def analyse(
    folder: Path,
    text: Path,
    labels: Path | None,
    column: str | None,
    tokens: int | None,
    measures_file: Path | None,
    name: str | None,
    data_root: Path,
    published: Path | None,
    out: Path,
) -> None:
    """Measure the layers of any local Hugging Face model on a text, beside those of its untrained twin."""
    import time

    from ablations.analyse import measures
    from ablations.analyse.analyse import analyse as measure_model
    from ablations.runs.terminal import duration
    from lightning_modules.files import require_writable

    if published is not None:
        require_writable(published)  # before anything is measured
    started = time.monotonic()
    results = measure_model(
        folder,
        text=text,
        labels=labels,
        column=column,
        out=out.absolute(),
        name=name,
        tokens=tokens,
        measures=None if measures_file is None else measures.load(measures_file),
        data_root=data_root,
        say=lambda line: click.echo(f"{duration(time.monotonic() - started)}  {line}"),
    )
    from reports.page import page

    show_page(page.write(results), published)


@main.command()
@out_option
def doctor(out: Path) -> None:
    """Show versions, devices, disk and known-bad packages, and time steps of training, for `plan`."""
    from ablations.checks.doctor import calibrate, findings

    bad = False
    for name, value, problem in findings(out):
        click.echo(f"{name:<24}{value}{'  <- ' + problem if problem else ''}")
        bad |= bool(problem)
    for name, value in calibrate(out):
        click.echo(f"{name:<24}{value}")
    sys.exit(FAILED if bad else GOOD)


def is_asking() -> bool:
    """Return whether there is somebody to ask."""
    return sys.stdin.isatty()


def show_page(page: Path, published: Path | None) -> None:
    """Say where a page is; publish it if a folder is given."""
    click.echo(f"page: {page}")
    if published is not None:
        from reports.page.page import publish

        click.echo(f"published: {publish(page.parent, published)}")


def require_possible(out: Path) -> None:
    """Refuse an output root that is not there and could not be made; one that is there anyone may look at."""
    from lightning_modules.files import require_writable

    if not out.exists():
        require_writable(out)


def notes_of(workspace: Any) -> list[str]:
    """Return what to know about a spec before its runs start, a sentence each."""
    return [
        *workspace.changed(),
        *workspace.earlier_runs(),
        *workspace.equal_arms(),
        *workspace.warnings(),
    ]


def place_of(on: str, place_file: Path | None, workspace: Any) -> Any:
    """Return what the file of --place says, or what the cluster does by itself; None on this machine."""
    from ablations.runs.places import place

    content = place.load(place_file, arms=workspace.arms)
    if on == "local" and place_file is not None:
        raise click.UsageError("--place is for jobs of a cluster; add --on slurm, or leave it out.")
    return content if on == "slurm" else None


def show_dry_run(workspace: Any, selected: Any, place: Any, *, devices: int, slots: int) -> None:
    """Show the plan of some runs, or the jobs in which a place would do them."""
    if place is not None:
        from ablations.runs.places import slurm

        for line in slurm.dry_run(workspace, workspace.todo(selected), place=place):
            click.echo(line)
        return
    from ablations.runs.terminal import plan_table

    content = workspace.plan(selected, slots=slots, devices=devices)
    notes = [*notes_of(workspace), *content.notes]
    plan_table(content.model_copy(update={"notes": notes}))


def carry_out_at(place: Any, workspace: Any, todo: Any, *, devices: int, slots: int) -> Any:
    """Train and measure runs in jobs of a place, or on this machine where there is none."""
    from ablations.runs.places import slurm

    if place is not None:
        return slurm.carry_out(workspace, todo, place=place)
    from ablations.runs.progress import carry_out

    slurm.require_not_queued(workspace.out, todo)
    return carry_out(workspace, todo, devices=devices, slots=slots)


def tune_at(
    place: Any, workspace: Any, arms: tuple[str, ...], *, devices: int, slots: int
) -> tuple[Any, bool, bool]:
    """Train the trials of the tuned arms until each arm has its settings.

    Returns the workspace with them, whether somebody interrupted it, and whether a trial has no loss, as it failed
    otherwise than by diverging; its arm then has no settings.
    """
    from ablations.runs.tuning import chosen_in_words

    given_up: set[str] = set()
    interrupted = False
    while trials := [item for item in workspace.search.open_of(arms) if item.run_id not in given_up]:
        interrupted, _ = carry_out_at(place, workspace.for_trials(), trials, devices=devices, slots=slots)
        workspace = workspace.opened_again()
        if interrupted:
            break
        without_loss = {item.run_id for item in trials} & {item.run_id for item in workspace.search.open_of(arms)}
        given_up |= without_loss
        for item in trials:
            if item.run_id in without_loss:
                click.echo(f"tune: {item.directory.path.name} has no validation loss, so its arm is not tuned.")
    for sentence in chosen_in_words(workspace.search.tuning):
        click.echo(sentence)
    return workspace, interrupted, bool(given_up)


def write_page(workspace: Any, *, redraw: bool = False) -> Path:
    """Gather the table from the runs and write the page beside it.

    A page that says the same already stays as it is, unless `redraw`.
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
    """Judge an experiment's claims by its table, and put the verdicts beside it.

    Returns the content of claims.json, and the judged experiment for its page.
    """
    from reports import folder as experiment_folder
    from reports.claims import judge

    judged = judge.judge_claims(experiment_folder.read(folder))
    return judge.write(judged, folder), judged


if __name__ == "__main__":
    main()
