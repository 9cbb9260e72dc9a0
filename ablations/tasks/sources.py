"""Sources of a task's examples and trees for a run, kept for the other measures of the same task."""

from collections.abc import Sequence
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ablations.catalogue import files_now
from ablations.measures.reading.texts import Readings
from ablations.measures.settings import MeasureSettings
from ablations.tasks.datasets import SPLITS, TASKS, Split
from ablations.tasks.examples import Examples, read_examples
from ablations.tasks.settings import ParsingSettings, StructuralProbeSettings
from lightning_modules.data.treebank import LabelledSentence, language_sentences, read_treebank
from lightning_modules.randomness import derive, uniforms

TREES = {"train": 2000, "validation": 500, "test": 1000}
"""Sentences of the built-in language with their trees."""

DIVISION: dict[Split, float] = {"train": 0.8, "validation": 0.9, "test": 1.0}
"""Up to which share of a treebank's sentences each split goes."""


class Source(NamedTuple):
    """A place that the examples of a task come from."""

    data_root: Path
    language_seed: int | None
    content: str | None
    """Digest of its files: when they change, nothing that was kept is taken for them."""


def source_of(readings: Readings, settings: MeasureSettings) -> Source:
    """Return the source of the examples that a measure reads for a run."""
    root = readings.texts.data_root
    return Source(root, getattr(readings.objective.run.data, "seed", None), files_now(settings, root))


def examples_of(name: str, split: Split, source: Source) -> Examples:
    """Return the examples of a task in lists of the caller's own, which no other measure holds.

    Raises:
        DataError: a file of the task is missing or damaged.
    """
    return deepcopy(_kept_examples(name, split, source))


@lru_cache(maxsize=len(SPLITS))
def _kept_examples(name: str, split: Split, source: Source) -> Examples:
    """Read the examples, which are kept until another task comes, as several measures ask for the same."""
    return read_examples(TASKS[name], split, data_root=source.data_root, language_seed=source.language_seed)


def all_examples(name: str, source: Source, splits: Sequence[Split] = SPLITS) -> dict[Split, Examples]:
    """Return the examples of a task by split, as `examples_of` does."""
    return {split: examples_of(name, split, source) for split in splits}


def trees_of(
    readings: Readings, settings: ParsingSettings | StructuralProbeSettings, split: Split
) -> list[LabelledSentence]:
    """Return sentences with their trees: of the built-in language, or of the treebank, which is divided among the
    splits where there is something to train.

    Raises:
        DataError: the file is missing or damaged.
    """
    data = readings.objective.run.data
    if settings.treebank is None:
        return language_sentences(getattr(data, "seed", 0), f"trees: {split}", TREES[split])
    sentences = read_treebank(readings.texts.data_root / settings.treebank)
    if isinstance(settings, ParsingSettings):
        return sentences
    share_S = uniforms(derive(0, "trees"), np.arange(len(sentences)))
    return [sentence for sentence, share in zip(sentences, share_S, strict=True) if _split_at(share) == split]


def _split_at(share: float) -> Split:
    return next(split for split, below in DIVISION.items() if share < below)
