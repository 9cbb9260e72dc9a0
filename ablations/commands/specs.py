"""Commands before a run: `init`, `examples`, `validate`, `plan` and `text`."""

import json
import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Unpack

import click

from ablations.commands.options import (
    FILE,
    FOLDER,
    GOOD,
    WRONG,
    GivenPath,
    SpecOptions,
    data_root_option,
    devices_option,
    json_option,
    notes_of,
    plugin_option,
    plugin_sentences,
    powers_of,
    require_possible,
    set_option,
    slots_option,
    spec_argument,
    spec_options,
)

TEXT = GivenPath(exists=True, dir_okay=False)
"""Type of an option that names a file of text."""


class WordsOption(click.ParamType):
    """Type of an option with words from a list, separated by spaces or commas."""

    name = "words"

    def __init__(self, words: Iterable[str]) -> None:
        self.words = list(words)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        words = value.replace(",", " ").split()
        for word in words:
            if word not in self.words:
                self.fail(f"{word} is not one of {', '.join(self.words)}.", param, ctx)
        return tuple(words)


@click.command
@click.argument("spec", required=False, type=FILE)
@click.option("--text", "texts", type=TEXT, multiple=True, help="File to train on; may be repeated.")
@click.option(
    "--validation",
    type=TEXT,
    multiple=True,
    help="File for validation. [default: the end of the text is held out]",
)
@click.option(
    "--column",
    help="Column of the sentences, if the files are tables. [default: text, or the only column with text]",
)
@click.option("--target", help="Column of the translations; needed for --arm mt.")
@click.option("--document", help="Column that says which sentences belong together.")
@click.option(
    "--arm",
    "arms",
    multiple=True,
    type=click.Choice(("mlm", "clm", "mt", "mixture", "electra", "xlnet")),
    help="Objective to compare; may be repeated. [default: mlm and clm]",
)
@click.option("--size", type=click.Choice(("tiny", "small", "base")), help="Size of the model. [default: tiny]")
@click.option(
    "--steps", type=click.IntRange(min=1), help="Number of training steps. [default: as many as suit the text]"
)
@click.option("--seeds", type=click.IntRange(min=1), help="Number of seeds of each arm. [default: 3]")
@click.option("--overwrite", is_flag=True, help="Overwrite existing files.")
def init(spec: Path | None, overwrite: bool, **answers: Any) -> None:
    """Write a first spec for your own text.

    The spec has sizes that suit the text and a comment at each choice; it passes `validate` and can be run. On a
    terminal the command asks for the text, arms, size, seeds and the name of the spec if they are missing.
    Elsewhere --text is required, and the other options have defaults. Without SPEC, sentences.txt gives
    sentences.yaml. Without --validation the command also splits the text into two files beside the spec, such as
    sentences-train.txt and sentences-validation.txt.
    """
    from ablations.skeletons import spec as spec_skeleton

    objectives = WordsOption(spec_skeleton.OBJECTIVES)
    questions: dict[str, tuple[str, Any, click.ParamType]] = {
        "texts": ("Text to train on", None, TEXT),
        "arms": (f"Objectives to compare ({', '.join(objectives.words)})", "mlm clm", objectives),
        "size": ("Size of the model", "tiny", click.Choice([*spec_skeleton.SIZES])),
        "seeds": ("Seeds", 3, click.IntRange(min=1)),
    }
    for name, (question, default, kind) in questions.items():
        if answers[name]:
            continue
        if is_asking():
            answer = click.prompt(question, default=default, type=kind)
            answers[name] = (answer,) if name == "texts" else answer
        elif default is None:
            raise click.UsageError("--text is missing; name your text file, as in --text sentences.txt.")
        else:
            answers[name] = tuple(default.split()) if name == "arms" else default
    path = spec or Path(f"{answers['texts'][0].name.partition('.')[0]}.yaml")
    if spec is None and is_asking():
        path = Path(click.prompt("Spec to write", default=str(path)))
    files = {name: tuple(map(str, answers[name])) for name in ("texts", "validation")}
    choice = spec_skeleton.Choice(**answers | files | {"arms": tuple(dict.fromkeys(answers["arms"]))})
    for file in spec_skeleton.write(path, choice, data_root=Path.cwd(), overwrite=overwrite):
        click.echo(f"{file}: written")
    click.echo(f"next: read {path}, then `ablate validate {path}`, `ablate plan {path}` and `ablate run {path}`")


@click.command
@click.argument("name", required=False)
def examples(name: str | None) -> None:
    """List the shipped experiments; with NAME, copy one of them.

    The experiment is copied to the folder `experiments` in the current folder, with all files that it needs
    besides text, such as claims and published curves. Existing files are never overwritten.
    """
    from ablations.skeletons import examples as shipped
    from ablations.wording import listed

    if name is None:
        lines = [
            (example.name, example.cost, "needs files" if example.needs_files else "", example.question)
            for example in shipped.examples()
        ]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        is_narrow = sys.stdout.isatty() and shutil.get_terminal_size().columns < sum(widths) + 6
        for *facts, question in lines:
            cells = [f"{cell:<{width}}" for cell, width in zip(facts, widths, strict=False)]
            click.echo("  ".join([*cells, "" if is_narrow else question]).rstrip())
            if is_narrow:
                click.echo(click.wrap_text(question, shutil.get_terminal_size().columns - 1, "  ", "  "))
        return
    files = shipped.copy(name, Path(shipped.FOLDER))
    for file in files:
        click.echo(f"{file}: copied")
    spec, data = files[0], ""
    if needed := shipped.files_of(spec):
        click.echo(
            f"The package does not contain the text of this experiment ({listed(needed, 'and')}): put these "
            f"files into one folder and name it with --data-root; {shipped.notice()} gives their sources."
        )
        data = " --data-root FOLDER"
    verbs = [f"`ablate {verb} {spec}{data}`" for verb in ("validate", "plan", "run")]
    click.echo(f"next: {listed(verbs, 'and')}")


@click.command
@click.argument("specs", metavar="[SPEC]...", nargs=-1, type=FILE)
@click.option("--schema", is_flag=True, help="Print the JSON Schema of spec files, for editors.")
@click.option("--claims-schema", is_flag=True, help="Print the JSON Schema of files of claims.")
@set_option
@plugin_option
@data_root_option
@click.option("--no-files", is_flag=True, help="Do not check the text and the other files that specs name.")
def validate(
    specs: tuple[Path, ...],
    schema: bool,
    claims_schema: bool,
    overrides: tuple[str, ...],
    data_root: Path,
    no_files: bool,
) -> None:
    """Check specs and the claims that they name.

    Every problem is a line on stderr. The command also checks, as `plan` and `run` do, that the files of text,
    lexica and treebanks exist and have the named columns. It lists the tasks that would not be run because their
    files are missing. A file in a folder called `claims` is checked as a file of claims.
    """
    from ablations.errors import SpecError

    if schema or claims_schema:
        from ablations.spec import load

        click.echo(json.dumps(load.claims_schema() if claims_schema else load.schema(), indent=2))
    elif not specs:
        raise click.UsageError("name at least one spec file, or give --schema.")
    wrong = False
    reported: set[str] = set()  # two specs may name the same wrong file of claims
    for path in specs:
        try:
            for line in _checked(path, overrides=overrides, data_root=None if no_files else data_root.absolute()):
                click.echo(line)
        except SpecError as error:
            wrong = True
            for line in str(error).split("\n"):
                if line not in reported:
                    click.echo(line, err=True)
                reported.add(line)
    sys.exit(WRONG if wrong else GOOD)


def _checked(path: Path, *, overrides: tuple[str, ...], data_root: Path | None) -> Iterator[str]:
    """Yield a line that says that a spec or a file of claims is valid, then notices about it.

    Args:
        data_root: folder in which the files of the spec are looked for. If None, they are not checked.

    Raises:
        SpecError: the file is not valid.
    """
    from ablations.catalogue import distance_settings, tasks_not_run
    from ablations.runs import doubts
    from ablations.spec import claims as claims_file
    from ablations.spec import grid, load
    from ablations.spec.experiment import SeedsUntilDecided
    from ablations.wording import several
    from lightning_modules import plugins

    if path.absolute().parent.name == claims_file.FOLDER:
        if overrides:
            raise click.UsageError(
                f"{path} is a file of claims, but --set works only with specs; leave one of the two out."
            )
        plugins.look_beside(path.parent)
        yield f"{path}: good, {several(len(claims_file.load(path).claims), 'claim')}"
        return
    experiment = load.load(path, overrides=overrides)
    planned = grid.runs(experiment)
    arms = {run.arm: run.settings for run in planned}
    decided = {arm: settings.model_dump_json(exclude={"seed"}) for arm, settings in arms.items()}
    notices = doubts.same_runs(arms, decided, seeds=experiment.all_seeds)
    if data_root is not None:
        from ablations.runs import identity  # imports pyarrow, which a check of the spec alone does not need

        identity.check(path, experiment, planned, data_root=data_root, overrides=overrides)
        notices += doubts.validated_on_training({arm: s.data for arm, s in arms.items()}, data_root)
        notices += tasks_not_run(experiment.measures, arms, data_root=data_root)
    runs = {(decided[run.arm], run.seed) for run in planned}  # arms with equal settings share runs
    limit = "at most " if isinstance(experiment.seeds, SeedsUntilDecided) else ""
    yield f"{path}: good, {limit}{several(len(runs), 'run')}"
    claim_files = claims_file.load_named(experiment.claims, spec=path)
    groups = claims_file.groups_of_measures(list(experiment.measures), {s.data.kind for s in arms.values()})
    kinds = [settings.kind for settings in experiment.measures]
    distance = distance_settings(experiment.measures)
    not_run = claims_file.not_run(
        claim_files,
        arms=arms,
        measures=kinds,
        groups=groups,
        across_seeds=distance is None or distance.across_seeds,
    )
    never = claims_file.never_measured(claim_files, measures=experiment.measures, arms=arms)
    for notice in [*plugin_sentences(), *not_run, *never, *notices]:
        yield f"  {notice}"


@click.command
@spec_argument
@spec_options
@devices_option
@slots_option
@click.option(
    "--pilot",
    type=FOLDER,
    help="Folder of earlier results, such as out/NAME: also show the power of the claims if seeds differ as "
    "much as in these results.",
)
@click.option("--resolved", is_flag=True, help="Print the spec with every default written out.")
@json_option
def plan(
    devices: int, slots: int, pilot: Path | None, resolved: bool, as_json: bool, **options: Unpack[SpecOptions]
) -> None:
    """Show the runs of a spec, their state and their cost."""
    from functools import partial

    from ablations.runs.identity import with_folders
    from ablations.runs.terminal import plan_table
    from ablations.runs.tuning import chosen_in_words
    from ablations.runs.workspace import Workspace
    from ablations.spec import grid, load
    from ablations.wording import listed

    if resolved:
        experiment = load.load(options["spec"], overrides=options["overrides"])
        completed = partial(with_folders, data_root=options["data_root"])
        if experiment.tune is not None:
            paths = listed(list(experiment.tune.settings), "and")
            click.echo(
                f"Tuned arms get other values of {paths}; `ablate plan` names those chosen so far.", err=True
            )
        click.echo(json.dumps(grid.resolved(experiment, completed=completed), indent=2))
        return
    require_possible(options["out"])
    workspace = Workspace.open(**options)
    workspace.require_words()
    content = workspace.plan(slots=slots, devices=devices)
    powers = powers_of(workspace, pilot)
    chosen = [] if content.tuning is None else chosen_in_words(content.tuning)
    notes = [*chosen, *notes_of(workspace, powers), *content.notes]
    content = content.model_copy(update={"notes": notes})
    if as_json:
        written = content.model_dump(mode="json", exclude_unset=True)
        keys = ("experiment", "runs", "pairs_to_compare", "left_out", "seconds", "notes")
        shown = {key: written[key] for key in keys}
        if powers:
            shown["chances"] = [power if isinstance(power, str) else power._asdict() for power in powers]
        click.echo(json.dumps(shown, indent=2))
        return
    plan_table(content)
    if powers:
        from reports.page.terminal import power_table

        power_table(powers)


@click.command
@spec_argument
@spec_options
@json_option
def text(as_json: bool, **options: Unpack[SpecOptions]) -> None:
    """Show what the text of a spec is made of.

    The command shows lengths in tokens, unknown tokens, and sentences that are cut, repeated or also in the
    training text. It also compares the test examples of the spec's tasks with the training text and with the
    training examples of the task. It cuts the text into tokens and keeps them in the output root, so `run` does
    not do this again.
    """
    from ablations.runs import text_facts
    from ablations.runs.workspace import Workspace
    from lightning_modules.data import token_store

    workspace = Workspace.open(**options, tokenise=True)
    items: dict[str, list[Any]] = {}
    for item in workspace.planned:
        items.setdefault(item.tokens, []).append(item)
    texts = []
    for of_text in items.values():
        runs = {item.run.arm: item.run.settings for item in of_text}
        data = of_text[0].run.settings.data
        tokens = token_store.prepare(
            data,
            data_root=workspace.data_root,
            store=workspace.out / "tokens",
            progress=lambda line: click.echo(line, err=True),
        )
        root = workspace.data_root
        tasks = text_facts.measures_by_task(workspace.experiment.measures, runs.values(), data_root=root)
        facts = text_facts.text_facts(data, tokens, tasks, data_root=root)
        if as_json:
            content = {name: [fact._asdict() for fact in part] for name, part in facts._asdict().items()}
            texts.append({"arms": [*runs], **content, "notes": text_facts.warnings(facts, tokens.report)})
        else:
            text_facts.show([*runs], facts, tokens.report)
    if as_json:
        click.echo(json.dumps({"texts": texts}, indent=2))


def is_asking() -> bool:
    """Return whether the command may ask questions: whether standard input is a terminal."""
    return sys.stdin.isatty()
