"""Preparation of runs before the first one starts: makes token stores, and checks that the text suffices."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pkgutil import resolve_name

from rich.console import Console

from ablations.catalogue import Measure, card, suits
from ablations.errors import MeasureError
from ablations.measures.reading.texts import Say, Texts
from ablations.measures.settings import LabelledSettings
from ablations.runs.identity import PlannedRun
from ablations.runs.text_facts import warnings_of_own_tasks
from ablations.runs.workspace import Workspace
from ablations.spec import load
from ablations.tasks.datasets import task_called
from ablations.tasks.examples import require_own_tasks, trees_of
from ablations.tasks.settings import ParsingSettings, StructuralProbeSettings, TaskSettings
from lightning_modules.config import RunSettings
from lightning_modules.data import token_store
from lightning_modules.data.packing import BatchPlan, require_pairs
from lightning_modules.data.sequences import PairLoss
from lightning_modules.data.token_store import Tokens
from lightning_modules.data.word_order import require_words
from lightning_modules.errors import DataError, PluginError
from lightning_modules.objectives.masking import Units
from lightning_modules.objectives.predictions import require_predictions
from lightning_modules.plugins import guarded


def prepare_text(workspace: Workspace, items: Sequence[PlannedRun], console: Console) -> None:
    """Make the token stores of the runs, and check that each text suffices for its runs and the measures.

    Raises:
        SpecProblems: a text cannot be cut into tokens, is too short for a run or a measure, or lacks what an arm
            needs, or the code of a plugin fails; the error has the first such problem of each arm, and of each
            measure for each arm.
    """
    unfit: dict[tuple[str, str | None], str] = {}
    say = partial(console.print, soft_wrap=True)
    for address in dict.fromkeys(item.tokens for item in items):
        runs_on_text = [item for item in items if item.tokens == address]
        runs, data = [item.run.settings for item in runs_on_text], runs_on_text[0].run.settings.data
        with _noted(unfit, runs_on_text):
            prepared = token_store.prepare(
                data,
                data_root=workspace.data_root,
                store=workspace.out / "tokens",
                progress=say,
                check="hashes",
            )
            _check(workspace, runs_on_text, prepared, unfit, say)
            measures, root = workspace.experiment.measures, workspace.data_root
            for sentence in warnings_of_own_tasks(measures, runs, data, prepared, data_root=root):
                say(sentence)
    if unfit:
        sentences = [(arm, measure, sentence) for (arm, measure), sentence in unfit.items()]
        raise load.unfit_files(workspace.spec, sentences, overrides=workspace.overrides)


@contextmanager
def _noted(
    unfit: dict[tuple[str, str | None], str], items: Sequence[PlannedRun], *, measure: str | None = None
) -> Iterator[None]:
    """Note an error of the block for the arms of the runs, unless they have one already, and do not raise it."""
    try:
        yield
    except (DataError, MeasureError, PluginError) as error:
        for item in items:
            unfit.setdefault((item.run.arm, measure), str(error))


def _check(
    workspace: Workspace,
    items: Sequence[PlannedRun],
    tokens: Tokens,
    unfit: dict[tuple[str, str | None], str],
    say: Say,
) -> None:
    """Note in `unfit` what the runs on a text, and their measures, lack. `say` gets what they only lose."""
    seen: dict[object, Exception | None] = {}
    for item in items:
        if item.run.settings.training.max_steps:
            with _noted(unfit, [item]):
                _require_for_training(item.run.settings, tokens, seen)
    # A measure may draw its part of the text by the seed of the run.
    alike: dict[tuple[int, str, int], list[PlannedRun]] = {}
    for item in items:
        run = item.run.settings
        alike.setdefault((run.encoder.hidden_size, run.objective.kind, run.seed), []).append(item)
    texts = Texts(tokens, items[0].run.settings.data, data_root=workspace.data_root)
    measures = (*workspace.experiment.measures, *workspace.later_measures)
    for settings in measures:
        measured = [item for item in items if suits(settings, item.run.settings)]
        with _noted(unfit, measured, measure=settings.kind):  # these files are the same for all runs on the text
            require_own_tasks(settings, workspace.data_root)
            if isinstance(settings, ParsingSettings | StructuralProbeSettings) and settings.treebank and measured:
                trees_of(texts, settings, say=say)
    for group, settings in itertools.product(alike.values(), measures):
        run = group[0].run.settings
        with _noted(unfit, group, measure=settings.kind):
            if suits(settings, run):
                _require_for_measuring(run, texts, settings)


def _require_for_training(run: RunSettings, tokens: Tokens, seen: dict[object, Exception | None]) -> None:
    """Raise the errors that training would raise at its start: too little text, no words, n-grams, lexicon,
    documents or negative pairs.

    Args:
        seen: steps and selections that were already checked on this text, with their errors; those of the run are
            added.
    """

    def once(key: object, check: Callable[[], object]) -> None:
        if key not in seen:
            seen[key] = None
            try:
                check()
            except (DataError, PluginError) as error:
                seen[key] = error
        if (earlier := seen[key]) is not None:
            raise earlier

    sentences = run.training.sentences
    pair_loss: PairLoss = getattr(run.objective, "pair_loss", "none")
    if sentences is not None and sentences > len(tokens.train):
        raise DataError(
            f"training.sentences is {sentences:,}, but data.train has only {len(tokens.train):,} sentences; "
            "lower it, give more text, or remove the setting to use all sentences."
        )
    text = tokens.train if sentences is None else tokens.train.head(sentences)
    steps = (len(text), run.training.tokens_per_step, run.training.input_format, pair_loss)
    once(steps, lambda: BatchPlan.of_run(run, text, steps=1))  # the order, which the seed decides, hardly matters
    once(("pairs", *steps), lambda: require_pairs(run, text, pair_loss))
    require_words(run, tokens)
    if (masking := getattr(run.objective, "masking", None)) is not None:
        once((len(text), masking.select.model_dump_json()), lambda: Units(masking.select, tokens, text))
    require_predictions(run, tokens)


def _require_for_measuring(run: RunSettings, texts: Texts, settings: Measure) -> None:
    """Raise the errors that measuring would raise: too little text, a treebank that is missing or damaged, or a
    task that learns from the half of its file that the run is trained on. Trees and the user's own tasks are
    checked elsewhere."""
    if isinstance(settings, TaskSettings):
        _require_other_half(run, settings)
    if require := card(settings.kind).require:
        with guarded(settings.plugin):
            (resolve_name(require) if isinstance(require, str) else require)(settings, texts, run)
    if isinstance(settings, LabelledSettings) and settings.treebank is not None:
        texts.treebank(settings.treebank, settings)


def _require_other_half(run: RunSettings, settings: TaskSettings) -> None:
    """Raise an error if a task learns from the half of its file that the run is trained on."""
    for task in map(task_called, settings.tasks or ()):
        if task.half is not None and task.half == getattr(run.data, "half", None):
            raise MeasureError(
                f"{task.name} learns from the {task.half} half of its file, but the training text is the same "
                "half; set data.half to the other half."
            )
