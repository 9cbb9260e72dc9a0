"""Measures of one run: from its checkpoints to its rows."""

import traceback
from collections.abc import Sequence
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pandas as pd
import torch

from ablations.catalogue import CARDS, RunMeasure, files_now
from ablations.errors import DataError, MeasureError
from ablations.measures.reading.texts import Readings, Say
from ablations.measures.settings import StateSettings
from ablations.runs.rows import called, key, missing, note_refusals, open_checkpoints, put
from lightning_modules.data.token_store import Tokens
from lightning_modules.objectives import build
from lightning_modules.objectives.objective import Objective
from lightning_modules.training.checkpoint import read_checkpoint
from lightning_modules.training.run_directory import RunDirectory

Row = dict[str, Any]


def measure(
    directory: RunDirectory,
    tokens: Tokens,
    measures: Sequence[RunMeasure],
    *,
    data_root: Path,
    say: Say,
    recompute: bool = False,
) -> None:
    """Compute the measures that are missing from the run's checkpoints into `measures.parquet`; all with
    `recompute`.

    Each measure of each checkpoint is written when it is ready, so a kill loses one at most, and old rows stay
    until new ones replace them.

    Raises:
        MeasureError: the text or the width does not allow a measure, or a file that it reads is damaged; the other
            measures are there all the same, and the run's folder says why these are not.
        CheckpointError: the checkpoint is missing or damaged.
    """
    todo: dict[Path, list[RunMeasure]] = {}
    for settings in missing(directory.path, measures, data_root=data_root, recompute=recompute):
        for path in open_checkpoints(directory.path, settings, data_root=data_root, recompute=recompute).values():
            todo.setdefault(path, []).append(settings)
    if not todo:
        return
    refused: dict[str, dict[str, None]] = {}
    readings = Readings(build(directory.settings(), tokens), tokens, data_root=data_root)
    for path, open_measures in todo.items():
        step = load_weights(readings.objective, path)
        readings.forget_states()
        # Those of one task one after the other: they share its examples, and fine-tuning looks at the training
        # examples' states that frozen features have read. (Probes read all layers, of another choice of examples.)
        for settings in sorted(open_measures, key=lambda settings: getattr(settings, "tasks", None) or ()):
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
            columns = about | {"sample": sample, "files": files}
            put(directory.path, pd.DataFrame(rows).assign(**columns))
    tried = {key(settings): called(settings) for open_measures in todo.values() for settings in open_measures}
    note_refusals(directory.path, {failed: " ".join(why) for failed, why in refused.items()}, tried=tried)
    if refused:
        raise MeasureError(" ".join(f"{tried[failed]}: {why}" for failed in refused for why in refused[failed]))


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
    """Compute the rows of one measure; of `TaskSettings` and `RetrievalSettings`, those for one task.

    Returns the rows, and the digest of the sample of tokens that they were read from, if there is one.

    Args:
        say: tells how far long work is; it may raise, to stop the work.

    Raises:
        DataError: a file that the measure reads is missing or damaged.
        MeasureError: the run or its text does not allow the measure.
    """
    rows = list(resolve_name(CARDS[settings.kind].rows)(readings, settings, say))
    if not isinstance(settings, StateSettings):
        return rows, None
    digest = readings.texts.validation(settings).sample.digest
    if (path := getattr(settings, "treebank", None)) is not None:
        digest += readings.texts.treebank(path, settings).sample.digest
    return rows, digest
