"""From a run's checkpoints to its rows.

From an encoder and the settings of one task to rows of scores.
"""

import traceback
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch

from ablations.catalogue import RunMeasure, files_now
from ablations.errors import DataError, MeasureError
from ablations.measures.geometry import geometry
from ablations.measures.influence import group_influence, influence
from ablations.measures.layer_change import group_changes, layer_change
from ablations.measures.neighbours import neighbours
from ablations.measures.pictures import pictures
from ablations.measures.reading.texts import Readings
from ablations.measures.settings import (
    GeometrySettings,
    InfluenceSettings,
    LayerChangeSettings,
    MeasureSettings,
    NeighboursSettings,
    PicturesSettings,
    StateSettings,
    TokenInformationSettings,
    ValidationSettings,
)
from ablations.measures.token_information import information_rows
from ablations.measures.validation import validation
from ablations.runs.rows import called, key, missing, note_refusals, open_checkpoints, put
from ablations.tasks.baselines import baseline_rows
from ablations.tasks.datasets import SPLITS, TASKS, Split
from ablations.tasks.examples import Examples, read_examples
from ablations.tasks.language_models.conditional_independence import independence_rows
from ablations.tasks.language_models.generation import generation_rows
from ablations.tasks.language_models.minimal_pairs import minimal_pairs_rows
from ablations.tasks.language_models.parsing import parsing_rows
from ablations.tasks.probing.probing import probing_rows
from ablations.tasks.probing.structural_probe import structural_probe_rows
from ablations.tasks.settings import (
    NEXT_SENTENCE,
    BaselinesSettings,
    ConditionalIndependenceSettings,
    GenerationSettings,
    MinimalPairsSettings,
    ParsingSettings,
    ProbingSettings,
    RetrievalSettings,
    StructuralProbeSettings,
    TaskSettings,
    TransferSettings,
)
from ablations.tasks.transfer.retrieval import next_sentence_rows, relatedness_rows
from ablations.tasks.transfer.states import FrozenStates
from ablations.tasks.transfer.transfer import transfer_rows
from lightning_modules.data.token_store import Tokens
from lightning_modules.data.treebank import LabelledSentence, language_sentences, read_treebank
from lightning_modules.objectives import build
from lightning_modules.objectives.objective import Objective
from lightning_modules.randomness import derive, uniforms
from lightning_modules.training.checkpoint import read_checkpoint
from lightning_modules.training.run_directory import RunDirectory

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


SYNTAX = ("same_relation", "same_left_part", "same_right_part")
"""Metrics of `neighbours` that need a treebank where the text has no labels."""


def measure(
    directory: RunDirectory,
    tokens: Tokens,
    measures: Sequence[RunMeasure],
    *,
    data_root: Path,
    say: Say,
    again: bool = False,
) -> None:
    """Compute what is missing (or, `again`, all) from the run's checkpoints into `measures.parquet`.

    Each measure of each checkpoint is written when it is ready, so a kill loses one at most, and old rows stay
    until new ones replace them.

    Raises:
        MeasureError: the text or the width does not allow a measure, or a file that it reads is damaged; the other
            measures are there all the same, and the run's folder says why these are not.
        CheckpointError: the checkpoint is missing or damaged.
    """
    todo: dict[Path, list[RunMeasure]] = {}
    for settings in missing(directory.path, measures, data_root=data_root, again=again):
        for path in open_checkpoints(directory.path, settings, data_root=data_root, again=again).values():
            todo.setdefault(path, []).append(settings)
    if not todo:
        return
    refused: dict[str, dict[str, None]] = {}
    readings = Readings(build(directory.settings(), tokens), tokens, data_root=data_root)
    for path, wanted in todo.items():
        step = load_weights(readings.objective, path)
        readings.forget_states()
        # Those of one task one after the other: they share its examples, and fine-tuning looks at the training
        # examples' states that frozen features have read. (Probes read all layers, of another choice of examples.)
        for settings in sorted(wanted, key=lambda settings: getattr(settings, "tasks", None) or ()):
            say(f"measuring {called(settings)} at step {step:,}")
            files = files_now(settings, data_root)  # before they are read, in case somebody changes them meanwhile
            try:
                rows, sample = rows_of(readings, settings, say=say)
            except (MeasureError, DataError) as error:
                refused.setdefault(key(settings), {})[str(error)] = None
                continue
            except Exception as error:  # a bug in one measure must not take the others along; the log has it
                traceback.print_exc()
                refused.setdefault(key(settings), {})[f"{type(error).__name__}: {error}"] = None
                continue
            about = {"measure": settings.kind, "step": step, "key": key(settings)}
            own = about | {"sample": sample, "files": files}
            put(directory.path, pd.DataFrame(rows).assign(**own))
    tried = {key(settings): called(settings) for wanted in todo.values() for settings in wanted}
    note_refusals(directory.path, {own: " ".join(why) for own, why in refused.items()}, tried=tried)
    if refused:
        raise MeasureError(" ".join(f"{tried[own]}: {why}" for own in refused for why in refused[own]))


def load(directory: RunDirectory, tokens: Tokens) -> tuple[Objective, int]:
    """A trained run's module in evaluation mode, on the GPU if there is one, and the step it stands at."""
    objective = build(directory.settings(), tokens)
    return objective, load_weights(objective, directory.last_checkpoint)


def load_weights(objective: Objective, checkpoint: Path) -> int:
    """Put a checkpoint's weights into a module, which is made ready for evaluation; returns their step."""
    read = read_checkpoint(checkpoint)
    objective.load_state_dict(read["state_dict"])
    objective.to("cuda" if torch.cuda.is_available() else "cpu").eval()
    return int(read["global_step"])


def rows_of(
    readings: Readings, settings: RunMeasure, *, say: Say = lambda line: None
) -> tuple[list[Row], str | None]:
    """The rows of one measure, and the digest of the text it read.

    Args:
        say: what long work tells how far it is; it may raise, to stop it.
    """
    if isinstance(settings, ValidationSettings):
        return list(validation(readings.objective, readings.tokens, settings)), None
    if not isinstance(settings, StateSettings):
        return list(scores(readings, settings, say=say)), None
    rows, digest = list(_rows(readings, settings)), readings.texts.validation(settings).sample.digest
    if (path := getattr(settings, "treebank", None)) is not None:
        rows += _labelled_rows(readings, settings)
        digest += readings.texts.treebank(path, settings).sample.digest
    return rows, digest


def _rows(readings: Readings, settings: RunMeasure) -> Iterator[Row]:
    """Of the validation text."""
    assert isinstance(settings, StateSettings)
    reading = readings.texts.validation(settings)
    match settings:
        case LayerChangeSettings():
            return layer_change(readings.states(reading), reading.sample, settings)
        case TokenInformationSettings():
            return information_rows(
                readings.states(reading),
                reading.sample,
                settings,
                output=readings.objective.run.objective.output,
                states_of=lambda shown_N: readings.shown(reading, shown_N),
            )
        case NeighboursSettings():
            return neighbours(readings.states(reading), reading.sample, settings)
        case GeometrySettings():
            return geometry(readings.states(reading), reading.sample, settings)
        case PicturesSettings():
            states_LND = readings.states(reading)
            return pictures(states_LND, reading.sample, settings, readings.tokens.tokenizer)
        case InfluenceSettings():
            return influence(readings.objective, reading.split, reading.sample, settings)
        case _:
            raise TypeError(f"{type(settings).__name__} is no measure of states")


def _labelled_rows(readings: Readings, settings: RunMeasure) -> list[Row]:
    """What the validation text has no labels for, of the treebank."""
    assert isinstance(settings, LayerChangeSettings | NeighboursSettings | InfluenceSettings)
    assert settings.treebank is not None
    reading = readings.texts.treebank(settings.treebank, settings)
    by_tag = isinstance(settings, NeighboursSettings) or "part_of_speech" in settings.groups
    if not by_tag:
        return []
    match settings:
        case LayerChangeSettings():
            states_LND = readings.states(reading)
            return list(group_changes(states_LND, reading.sample, "part_of_speech", size=settings.group_tokens))
        case NeighboursSettings():
            rows = neighbours(readings.states(reading), reading.sample, settings)
            return [row for row in rows if row["metric"] in SYNTAX]
        case InfluenceSettings():
            return list(
                group_influence(
                    readings.objective,
                    reading.split,
                    reading.sample,
                    "part_of_speech",
                    sentences=settings.sentences,
                )
            )
