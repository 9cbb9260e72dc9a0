"""From a run's checkpoints to its rows."""

import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from ablations.errors import DataError, MeasureError
from ablations.files_read import files_now
from ablations.measurable import RunMeasure
from ablations.measured import called, key, missing, note_refusals, open_checkpoints, put
from ablations.measures.geometry import geometry
from ablations.measures.influence import group_influence, influence
from ablations.measures.layer_change import group_changes, layer_change
from ablations.measures.neighbours import neighbours
from ablations.measures.pictures import pictures
from ablations.measures.reading import Readings
from ablations.measures.settings import (
    GeometrySettings,
    InfluenceSettings,
    LayerChangeSettings,
    NeighboursSettings,
    PicturesSettings,
    StateSettings,
    TokenInformationSettings,
    ValidationSettings,
)
from ablations.measures.token_information import information_rows
from ablations.measures.validation import validation
from ablations.tasks.scoring import scores
from lightning_modules.checkpoint import read_checkpoint
from lightning_modules.data.tokens import Tokens
from lightning_modules.objective import Objective
from lightning_modules.objectives import build
from lightning_modules.run_directory import RunDirectory

Say = Callable[[str], None]
Row = dict[str, Any]

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
            return list(group_changes(states_LND, reading.sample, "part_of_speech", wanted=settings.group_tokens))
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
