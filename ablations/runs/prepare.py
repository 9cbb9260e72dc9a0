"""What is made and checked before the first run starts: tokens, and whether the text has what arms and measures
need.

Whether a text has enough tokens for a measure: asked before anything is trained.
"""

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console

from ablations.catalogue import Measure, suits
from ablations.errors import MeasureError
from ablations.measures.influence import choices
from ablations.measures.neighbours import require_occurrences
from ablations.measures.pictures import occurrences
from ablations.measures.reading.sample import Sample
from ablations.measures.reading.texts import Texts
from ablations.measures.settings import (
    InfluenceSettings,
    LabelledSettings,
    LayerChangeSettings,
    MeasureSettings,
    NeighboursSettings,
    PicturesSettings,
    RunDistanceSettings,
    StateSettings,
    TokenInformationSettings,
)
from ablations.measures.similarity.cca import require_tokens
from ablations.measures.token_information import asked, require_enough
from ablations.runs.identity import PlannedRun
from ablations.runs.workspace import Workspace
from ablations.spec import load
from ablations.tasks.datasets import TASKS
from ablations.tasks.settings import NEXT_SENTENCE, RetrievalSettings, TaskSettings, TreesSettings
from ablations.tasks.transfer.cross_encoder import enough_followed
from ablations.tasks.transfer.retrieval import FEWEST_PAIRS
from lightning_modules.config import RunSettings
from lightning_modules.config.objectives import Output
from lightning_modules.data import token_store
from lightning_modules.data.negative_pairs import require_documents
from lightning_modules.data.token_store import Tokens
from lightning_modules.data.treebank import read_treebank
from lightning_modules.data.word_order import require_words
from lightning_modules.errors import DataError
from lightning_modules.objectives.masking_units import Units
from lightning_modules.objectives.predictions import require_predictions


def require_enough_text(
    settings: MeasureSettings, sample: Sample, tokens: Tokens, *, hidden_size: int, output: Output
) -> None:
    """Refuse what measuring would refuse after the training, as far as the text and the width decide it.

    Raises:
        MeasureError: too few tokens for the width or for the clusters, or too few occurrences of a token.
    """
    match settings:
        case LayerChangeSettings() | RunDistanceSettings():
            require_tokens(len(sample), hidden_size, measure=settings.kind)
        case TokenInformationSettings():
            require_enough(asked(sample, settings, output), sample, settings)
        case NeighboursSettings():
            require_occurrences(sample, settings)
        case PicturesSettings():
            occurrences(sample, settings, tokens.tokenizer)
        case InfluenceSettings():
            for by in settings.groups:
                if by == "frequency" or "tag" in sample.labels:
                    choices(sample, by, settings.sentences)


def prepare_text(workspace: Workspace, items: Sequence[PlannedRun], console: Console) -> None:
    """Make the token stores of the runs, and check that each text suffices for its runs and the measures.

    Raises:
        SpecError: the text cannot be cut into tokens, is less than a run or a measure needs, or has not what an
            arm asks of it.
    """
    for address in dict.fromkeys(item.tokens for item in items):
        mine = [item for item in items if item.tokens == address]
        try:
            prepared = token_store.prepare(
                mine[0].run.settings.data,
                data_root=workspace.data_root,
                store=workspace.out / "tokens",
                progress=lambda line: console.print(line, highlight=False, soft_wrap=True),
            )
        except DataError as error:
            raise load.unfit_files(workspace.spec, [(mine[0].run.arm, None, str(error))]) from error
        seen: set[str] = set()
        for item in mine:
            if item.run.settings.training.max_steps:
                with _said_at(workspace, item.run.arm):
                    _require_for_training(item.run.settings, prepared, seen)
        kinds: dict[tuple[int, str], PlannedRun] = {}
        for item in mine:
            kinds.setdefault((item.run.settings.encoder.hidden_size, item.run.settings.objective.kind), item)
        texts = Texts(prepared, mine[0].run.settings.data, data_root=workspace.data_root)
        for item, settings in itertools.product(kinds.values(), workspace.experiment.measures):
            if not suits(settings, item.run.settings):
                continue
            with _said_at(workspace, item.run.arm, measure=settings.kind):
                _require_for_measuring(item.run.settings, texts, settings)


@contextmanager
def _said_at(workspace: Workspace, arm: str, *, measure: str | None = None) -> Iterator[None]:
    """Errors name the line of the spec, and the arm."""
    try:
        yield
    except (DataError, MeasureError) as error:
        raise load.located(error, workspace.spec, arm, measure=measure) from error


def _require_for_training(run: RunSettings, tokens: Tokens, seen: set[str]) -> None:
    """Refuse what the run would refuse at its start: too little text, no words, n-grams, lexicon or documents.

    Args:
        seen: selections that the text was found to have; added to.
    """
    sentences, wanted = run.training.sentences, run.training.tokens_per_step
    if sentences is not None and sentences > len(tokens.train):
        raise DataError(
            f"training.sentences is {sentences:,}, but data.train has {len(tokens.train):,}; lower it, give more "
            f"text, or take it away to use all."
        )
    text = tokens.train if sentences is None else tokens.train.head(sentences)
    there = len(text.ids)
    if there < wanted:
        raise DataError(
            f"one step of training.tokens_per_step = {wanted:,} takes more tokens than the training text has, "
            f"{there:,}{'' if sentences is None else f' with training.sentences = {sentences:,}'}; give more text "
            f"or make the steps smaller."
        )
    require_documents(text, getattr(run.objective, "pair_loss", "none"), run.training.input_format)
    require_words(run, tokens)
    masking = getattr(run.objective, "masking", None)
    selection = "" if masking is None else f"{len(text)} sentences, {masking.select.model_dump_json()}"
    if masking is not None and selection not in seen:
        seen.add(selection)
        Units(masking.select, tokens, text)
    require_predictions(run, tokens)


def _require_for_measuring(run: RunSettings, texts: Texts, settings: Measure) -> None:
    """Refuse what measuring would refuse: too little text, or a treebank that is missing or damaged."""
    if isinstance(settings, TreesSettings) and settings.treebank is not None:
        read_treebank(texts.data_root / settings.treebank)
    if isinstance(settings, TaskSettings):
        _require_other_half(run, settings)
    if isinstance(settings, RetrievalSettings):
        _require_followed(run, texts, settings)
    if not isinstance(settings, StateSettings):
        return
    width = run.encoder.hidden_size
    _, sample = texts.validation(settings)
    require_enough_text(settings, sample, texts.tokens, hidden_size=width, output=run.objective.output)
    if isinstance(settings, LabelledSettings) and settings.treebank is not None:
        texts.treebank(settings.treebank, settings)


def _require_followed(run: RunSettings, texts: Texts, settings: RetrievalSettings) -> None:
    """Refuse text with too few sentences that follow each other, if it says at all which do."""
    for part in settings.parts(built_in=run.data.kind == "language"):
        if part.task == NEXT_SENTENCE and part.problem(run.data, texts.data_root) is None:
            for split in ("validation", "train"):
                enough_followed(texts.tokens, split, FEWEST_PAIRS, fewest=FEWEST_PAIRS)


def _require_other_half(run: RunSettings, settings: TaskSettings) -> None:
    """Refuse a task that learns from the rows that the text has."""
    for task in (TASKS[name] for name in settings.tasks or ()):
        if task.half is not None and task.half == getattr(run.data, "half", None):
            raise MeasureError(
                f"{task.name} learns from the {task.half} half of its file, which is the text's; set data.half to "
                f"the other one."
            )
