"""Loggers of a run: metrics.jsonl, which is its record, TensorBoard, and Weights & Biases (W&B)."""

import json
import math
import os
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import lightning as L
from lightning.pytorch.loggers import Logger, TensorBoardLogger, WandbLogger
from lightning.pytorch.utilities.rank_zero import rank_zero_only

from lightning_modules.config import RunSettings
from lightning_modules.errors import AblationsError, ExitCode
from lightning_modules.files import explained, open_no_link
from lightning_modules.training.checkpoint import read_checkpoint
from lightning_modules.training.run_directory import RunDirectory

PROJECT = "pretraining-ablations"
"""Project of W&B, unless WANDB_PROJECT names another."""


class LoggerError(AblationsError, RuntimeError):
    """A logger that the settings ask for cannot start."""

    exit_code = ExitCode.WRONG_SETTINGS


class JsonLinesLogger(Logger):
    """Log of one JSON object a line, `{"step": ..., "time": ..., metrics}`, readable while the run goes on.

    Numbers that are not finite become null.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    @property
    def name(self) -> str:
        return "metrics"

    @property
    def version(self) -> str:
        return ""

    @rank_zero_only
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        finite = {name: value if math.isfinite(value) else None for name, value in metrics.items()}
        line = json.dumps({"step": step, "time": round(time.time(), 3), **finite})
        with explained(self.path), open(self.path, "a", encoding="utf-8", opener=open_no_link) as file:
            file.write(line + "\n")

    @rank_zero_only
    def log_hyperparams(self, params: dict[str, Any] | Namespace, *args: Any, **kwargs: Any) -> None:
        """Ignore hyperparameters: run.json holds the settings."""


def loggers_of(run: RunSettings, directory: RunDirectory, *, resume: Path | None) -> list[Logger]:
    """Return the loggers of a run that starts, or goes on from a checkpoint; none of them has started.

    Raises:
        LoggerError: W&B is asked for and not installed.
    """
    loggers: list[Logger] = [JsonLinesLogger(directory.metrics)]
    if "tensorboard" in run.training.loggers:
        # What TensorBoard has after the step that the run goes on from is not shown again.
        step = read_checkpoint(resume)["global_step"] + 1 if resume else None
        loggers.append(TensorBoardLogger(directory.path, name=None, version="tensorboard", purge_step=step))
    if "wandb" in run.training.loggers:
        loggers.append(_wandb(directory, resume=resume))
    return loggers


def _wandb(directory: RunDirectory, *, resume: Path | None) -> WandbLogger:
    """Return the logger of W&B: a run of the folder's name and of our identity, in the group of its arm.

    W&B reads its key itself where it is online; nothing here does. It is told to keep away from git, as the
    address of a remote may hold a password, from the code and from what the process prints.
    """
    if find_spec("wandb") is None:
        raise LoggerError(
            "training.loggers names wandb, which is not installed; install the extra [wandb], or leave wandb out."
        )
    import wandb

    described = directory.description()
    return WandbLogger(
        name=directory.path.name,
        id=described["run_id"],
        project=os.environ.get("WANDB_PROJECT") or PROJECT,
        group=described["arm"],
        save_dir=directory.path,
        config={key: described[key] for key in ("run_id", "arm", "seed", "tokens")} | described["settings"],
        mode=os.environ.get("WANDB_MODE") or "offline",
        resume="allow" if resume else None,  # a run that starts anew writes over one of its id
        settings=wandb.Settings(console="off", disable_git=True, disable_code=True, quiet=True),
    )


@contextmanager
def started(trainer: L.Trainer) -> Iterator[None]:
    """Start the W&B run of a trainer, if it has one, and end it with the block, failed if that fails.

    One process may train several runs, one after the other, and W&B has one run a process.

    Raises:
        LoggerError: W&B cannot start, as where it is online and has no key.
    """
    logger = next((one for one in trainer.loggers if isinstance(one, WandbLogger)), None)
    if logger is None or not trainer.is_global_zero:
        yield
        return
    import wandb

    try:
        shown = logger.experiment
    except wandb.errors.Error as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise LoggerError(
            f"W&B cannot start ({reason}); run `wandb login`, set WANDB_MODE to offline, or leave wandb out of "
            "training.loggers."
        ) from error
    failed = True
    try:
        yield
        failed = False
    finally:
        shown.finish(exit_code=int(failed))
