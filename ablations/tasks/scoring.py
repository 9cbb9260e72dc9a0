"""From an encoder and the settings of one task to rows of scores."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ablations.files_read import files_now
from ablations.measures.reading import Readings
from ablations.measures.settings import MeasureSettings
from ablations.tasks.baselines import baseline_rows
from ablations.tasks.catalogue import SPLITS, TASKS, Split
from ablations.tasks.conditional_independence import independence_rows
from ablations.tasks.examples import Examples, read_examples
from ablations.tasks.generation import generation_rows
from ablations.tasks.head_states import FrozenStates
from ablations.tasks.minimal_pairs import minimal_pairs_rows
from ablations.tasks.parsing import parsing_rows
from ablations.tasks.probing import probing_rows
from ablations.tasks.retrieval import next_sentence_rows, relatedness_rows
from ablations.tasks.settings import (
    BaselinesSettings,
    MinimalPairsSettings,
    ProbingSettings,
    TaskSettings,
    TransferSettings,
)
from ablations.tasks.structural_probe import structural_probe_rows
from ablations.tasks.structural_settings import StructuralProbeSettings
from ablations.tasks.syntax_settings import ConditionalIndependenceSettings, ParsingSettings
from ablations.tasks.transfer import transfer_rows
from ablations.tasks.use_settings import NEXT_SENTENCE, GenerationSettings, RetrievalSettings
from lightning_modules.data.treebank import LabelledSentence, language_sentences, read_treebank
from lightning_modules.randomness import derive, uniforms

Row = dict[str, Any]
Say = Callable[[str], None]

TREES = {"train": 2000, "validation": 500, "test": 1000}
"""Sentences of the built-in language with their trees."""

DIVISION: dict[Split, float] = {"train": 0.8, "validation": 0.9, "test": 1.0}
"""Up to which share of a treebank's sentences each split goes."""


def scores(readings: Readings, settings: MeasureSettings, *, say: Say) -> Iterator[Row]:
    """The rows of a measure on tasks; of `TaskSettings` and `RetrievalSettings`, those for one task.

    Raises:
        DataError: a file of the task is missing or damaged.
        MeasureError: the task cannot be scored.
    """
    objective, tokenizer = readings.objective, readings.tokens.tokenizer
    length = objective.run.data.max_length
    match settings:
        case ConditionalIndependenceSettings():
            yield from independence_rows(objective, readings.tokens.validation, settings)
        case ParsingSettings():
            sentences = trees(readings, settings, "test")
            yield from parsing_rows(objective, sentences, tokenizer, settings, max_length=length)
        case StructuralProbeSettings():
            splits = {split: trees(readings, settings, split) for split in SPLITS}
            yield from structural_probe_rows(objective, splits, tokenizer, settings, max_length=length)
        case RetrievalSettings():
            yield from _retrieval(readings, settings, say)
        case GenerationSettings():
            yield from generation_rows(objective, readings.tokens, settings)
        case BaselinesSettings():
            yield from map(dict, _baselines(settings, _source(readings, settings)))
        case TaskSettings():
            yield from _of_task(readings, settings, say)
        case _:
            raise TypeError(f"{type(settings).__name__} is no measure of tasks")


def _of_task(readings: Readings, settings: TaskSettings, say: Say) -> Iterator[Row]:
    objective, tokenizer = readings.objective, readings.tokens.tokenizer
    length = objective.run.data.max_length
    wanted: tuple[Split, ...] = ("test",) if isinstance(settings, MinimalPairsSettings) else SPLITS
    source = _source(readings, settings)
    splits = {split: _examples(settings.task.name, split, source) for split in wanted}
    match settings:
        case MinimalPairsSettings():
            counts_V = readings.tokens.source_counts_V
            yield from minimal_pairs_rows(
                objective, splits["test"], tokenizer, settings, max_length=length, counts_V=counts_V
            )
        case ProbingSettings():
            yield from probing_rows(objective, tokenizer, splits, settings, max_length=length)
        case TransferSettings():
            frozen = readings.shared(settings.task.name, lambda: FrozenStates(objective))
            yield from transfer_rows(
                objective, tokenizer, splits, settings, max_length=length, say=say, frozen=frozen
            )


def _retrieval(readings: Readings, settings: RetrievalSettings, say: Say) -> Iterator[Row]:
    objective, tokens = readings.objective, readings.tokens
    length = objective.run.data.max_length
    if settings.task == NEXT_SENTENCE:
        yield from next_sentence_rows(objective, tokens, settings, max_length=length, say=say)
    else:
        examples = _examples(settings.task, "test", _source(readings, settings))
        yield from relatedness_rows(objective, tokens, settings, examples, max_length=length)


class Source(NamedTuple):
    """What the examples of a task are made from."""

    data_root: Path
    language_seed: int | None
    content: str | None
    """Of its files: when they change, nothing that was kept is taken for them."""


def _source(readings: Readings, settings: MeasureSettings) -> Source:
    root = readings.texts.data_root
    return Source(root, getattr(readings.objective.run.data, "seed", None), files_now(settings, root))


@lru_cache
def _baselines(settings: BaselinesSettings, source: Source) -> tuple[Row, ...]:
    """Kept for the other runs of the process: no encoder enters."""
    splits = {split: _examples(settings.task.name, split, source) for split in SPLITS}
    return tuple(baseline_rows(settings, splits))


def _examples(name: str, split: Split, source: Source) -> Examples:
    """Return the examples in lists of the caller's own, which no other measure holds."""
    return deepcopy(_kept_examples(name, split, source))


@lru_cache(maxsize=len(SPLITS))
def _kept_examples(name: str, split: Split, source: Source) -> Examples:
    """Read the examples, which are kept until another task comes, as several measures ask for the same."""
    return read_examples(TASKS[name], split, data_root=source.data_root, language_seed=source.language_seed)


def trees(
    readings: Readings, settings: ParsingSettings | StructuralProbeSettings, split: Split
) -> list[LabelledSentence]:
    """Sentences with their trees: of the built-in language, or of the treebank, which is divided among the splits
    where there is something to train.

    Raises:
        DataError: the file is missing or damaged.
    """
    data = readings.objective.run.data
    if settings.treebank is None:
        seed = getattr(data, "seed", 0)
        return language_sentences(seed, f"trees: {split}", TREES[split])
    sentences = read_treebank(readings.texts.data_root / settings.treebank)
    if isinstance(settings, ParsingSettings):
        return sentences
    share_S = uniforms(derive(0, "trees"), np.arange(len(sentences)))
    return [sentence for sentence, share in zip(sentences, share_S, strict=True) if _split_at(share) == split]


def _split_at(share: float) -> Split:
    return next(split for split, below in DIVISION.items() if share < below)
