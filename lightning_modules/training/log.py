"""The log of a run: the content of each line, and the loggers that write it.

The loggers are metrics.jsonl, which is the record, TensorBoard, and Weights & Biases (W&B). `Meter` counts
tokens, seconds and operations, and stops the run if the loss is NaN or infinite.
"""

import json
import math
import os
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import Logger, TensorBoardLogger, WandbLogger
from lightning.pytorch.utilities.rank_zero import rank_zero_only
from pydantic import ValidationError
from torch import Tensor

from lightning_modules.config import RunSettings, operations_per_token
from lightning_modules.errors import AblationsError, ExitCode, NonFiniteLossError
from lightning_modules.model.numerics import matrix_rate
from lightning_modules.objectives.objective import Objective
from lightning_modules.training.checkpoint import read_checkpoint
from lightning_modules.training.run_directory import RunDirectory

SECONDS_BETWEEN_STATES = 1.0

OnLine = Callable[[int, dict[str, float]], None]
"""Function that is called with the step and the metrics of each line of the log."""

PROJECT = "pretraining-ablations"
"""Project in W&B, unless WANDB_PROJECT names another."""


class Progress:
    """Tokens, seconds of training and useful operations of a run, over all its starts."""

    def __init__(self, run: RunSettings, *, allowed: float = 1.0) -> None:
        """Begin to count.

        Args:
            allowed: part of the predictions that a lexicon leaves (`predictions.allowed_part`).
        """
        self.tokens_seen = self.tokens_predicted = 0
        self._seconds_before = 0.0  # seconds of earlier starts
        self._since = time.perf_counter()
        self._run, self._expected_operations = run, operations_per_token(run, allowed=allowed)

    def begin(self) -> None:
        """Count the seconds of training from now on."""
        self._since = time.perf_counter()

    def leave_out(self, seconds: float) -> None:
        """Do not count these seconds, which were no training steps but, for example, a validation."""
        self._since += seconds

    @property
    def seconds(self) -> float:
        return self._seconds_before + time.perf_counter() - self._since

    @property
    def operations_per_token(self) -> float:
        """Operations per token, expected from settings and lexicon; for skip-gram from the pairs so far."""
        if "pairs" not in self._run.objective.predictions or not self.tokens_seen:
            return self._expected_operations
        return operations_per_token(self._run, pairs=self.tokens_predicted / self.tokens_seen)

    def state_dict(self) -> dict[str, Any]:
        """Return the counts in the form that state.json and a checkpoint hold."""
        counts = {name: getattr(self, name) for name in ("tokens_seen", "tokens_predicted", "seconds")}
        return counts | {"flops": self.tokens_seen * self.operations_per_token}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from the counts of an earlier start."""
        self.tokens_seen, self.tokens_predicted = state["tokens_seen"], state["tokens_predicted"]
        self._seconds_before = state["seconds"]


class Meter(Callback):
    """Callback that counts tokens, stops the run if the loss is NaN or infinite, and writes the log.

    Sums stay on the device until a log line is written, and are checked then. On a CPU they are checked at
    every step.
    """

    def __init__(
        self, directory: RunDirectory, *, log_every: int, on_line: OnLine | None = None, allowed: float = 1.0
    ) -> None:
        """Start the clock of the first step. For `allowed` see `Progress`."""
        self.directory, self.log_every, self.on_line = directory, log_every, on_line
        self.progress = Progress(directory.settings(), allowed=allowed)
        self._sums: Tensor | None = None  # sums of the totals of all steps since the last line
        self._seen_before = 0  # tokens of the present line from before a resume; the speed leaves them out
        self._born = self._line_since = time.perf_counter()
        self._first_step_seconds: float | None = None
        self._matrix_rate = math.nan
        self._last_state = 0.0
        self._first_line = True

    def state_dict(self) -> dict[str, Any]:
        sums = None if self._sums is None else self._sums.tolist()
        return self.progress.state_dict() | {"sums": sums, "log_sha256": self.directory.log_sha256()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.progress.load_state_dict(state_dict)
        if state_dict["sums"] is not None:
            self._sums = torch.tensor(state_dict["sums"], dtype=torch.float64)

    def on_train_start(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        assert isinstance(module, Objective)
        if self._sums is not None:
            self._seen_before, *_ = module.explain(self._sums.tolist())
            self._sums = self._sums.to(module.device)
        if trainer.is_global_zero:
            mixed = module.run.training.precision == "bf16-mixed"
            one_device = matrix_rate(module.device, torch.bfloat16 if mixed else torch.float32)
            self._matrix_rate = one_device * trainer.world_size
        self.progress.begin()
        self._line_since = time.perf_counter()

    def on_train_batch_end(
        self, trainer: L.Trainer, module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self.directory.require_lock()
        totals = outputs["totals"]
        self._sums = totals if self._sums is None else self._sums + totals
        step = trainer.global_step
        due = step % self.log_every == 0 or step == trainer.max_steps or step == 1
        if due or module.device.type == "cpu":
            self.check(trainer, module)
        if self._first_step_seconds is None:  # `check` has waited for a GPU
            self._first_step_seconds = time.perf_counter() - self._born
        if due:
            self._write_line(trainer, module)

    def on_exception(self, trainer: L.Trainer, module: L.LightningModule, exception: BaseException) -> None:
        """Write into state.json at which step training ended. What was written there is up to a second old."""
        if trainer.is_global_zero and trainer.global_step:
            with suppress(AblationsError, OSError):  # without a lock or on a full disk; `exception` is what counts
                self.directory.require_lock()
                counts = self.progress.state_dict()
                self.directory.write_state("running", step=trainer.global_step, **counts)

    def check(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        """Raise an error if a loss or a gradient since the last check was NaN or infinite.

        Raises:
            NonFiniteLossError: names the value. The last checkpoint was written before it.
        """
        assert isinstance(module, Objective)
        if self._sums is None:
            return
        sums = {"loss": self._sums.sum().item(), "norm of the gradient": module.gradient_norm.item()}
        for name, value in sums.items():
            if not math.isfinite(value):
                raise NonFiniteLossError(
                    f"step {trainer.global_step}: the {name} is {value}, so training stopped (the last "
                    f"checkpoint is from an earlier step); {_advice(module.run)}."
                )

    def _write_line(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        """Write one line, with means over the steps since the last line."""
        assert isinstance(module, Objective)
        assert self._sums is not None
        seen, predicted, metrics = module.explain(self._sums.tolist())
        progress = self.progress
        progress.tokens_seen += seen
        progress.tokens_predicted += predicted
        seconds_now = time.perf_counter()
        speed = (seen - self._seen_before) / (seconds_now - self._line_since)
        line: dict[str, Any] = metrics | {
            "train/lr": module.learning_rate(trainer.global_step - 1),
            "train/grad_norm": module.gradient_norm.item(),
            "train/tokens": progress.tokens_seen,
            "train/predicted": progress.tokens_predicted,
            "perf/tokens_per_sec": speed,
            "perf/mfu": self.utilisation(speed),
        }
        if self._first_line:
            line["perf/first_step_sec"] = self._first_step_seconds or 0.0
            self._first_line = False
        self._sums, self._line_since, self._seen_before = None, seconds_now, 0
        write_line(trainer, line)
        if trainer.is_global_zero:
            self._write_state(trainer.global_step, speed)
            if self.on_line is not None:
                self.on_line(trainer.global_step, line)

    def _write_state(self, step: int, tokens_per_second: float) -> None:
        """Write into state.json how far the run is, at most once a second."""
        if time.monotonic() - self._last_state < SECONDS_BETWEEN_STATES:
            return
        self._last_state = time.monotonic()
        self.directory.write_state(
            "running",
            step=step,
            tokens_per_second=tokens_per_second,
            mfu=self.utilisation(tokens_per_second),
            first_step_seconds=self._first_step_seconds,
            **self.progress.state_dict(),
        )

    def summary(self) -> dict[str, Any]:
        """Return progress and mean speed of a finished run, and the rate of matrix products behind its MFU."""
        progress = self.progress.state_dict()
        speed = progress["tokens_seen"] / max(progress["seconds"], 1e-9)
        rate = None if math.isnan(self._matrix_rate) else self._matrix_rate
        speeds = {"tokens_per_second": speed, "mfu": self.utilisation(speed), "matrix_operations_per_second": rate}
        return progress | speeds

    def utilisation(self, tokens_per_second: float) -> float | None:
        """Return the model FLOPs utilisation: useful operations over those of matrix products in the same
        time.

        Returns None if no training has started.
        """
        if math.isnan(self._matrix_rate):
            return None
        return tokens_per_second * self.progress.operations_per_token / self._matrix_rate

    def leave_out(self, seconds: float) -> None:
        """Do not count these seconds, which were no training steps but, for example, a validation."""
        self.progress.leave_out(seconds)
        self._line_since += seconds


HIGH_DROPOUT = 0.9
"""Rate from which dropout is taken for the cause of numbers that are too large: what it leaves is multiplied by 10
or more in each layer, whatever the learning rate is."""


def _advice(run: RunSettings) -> str:
    """Return what to do about a loss or a gradient that is not finite."""
    rates = {name: getattr(run.encoder, name) for name in ("dropout", "attention_dropout", "feed_forward_dropout")}
    high = [f"encoder.{name} ({rate:g})" for name, rate in rates.items() if rate >= HIGH_DROPOUT]
    if high:
        return f"lower {' and '.join(high)}, because what dropout leaves is multiplied by 1 / (1 - rate)"
    if run.training.gradient_clip_val:
        return "lower training.learning_rate or training.gradient_clip_val, or raise training.warmup_steps"
    return (
        "lower training.learning_rate, set training.gradient_clip_val (0 is no clipping), or raise "
        "training.warmup_steps"
    )


def write_line(trainer: L.Trainer, metrics: dict[str, float]) -> None:
    """Send metrics to every logger of the run; only the first device does so."""
    if trainer.is_global_zero:
        for logger in trainer.loggers:
            logger.log_metrics(metrics, step=trainer.global_step)


class LoggerError(AblationsError, RuntimeError):
    """Error of a logger that the settings ask for and that cannot start."""

    exit_code = ExitCode.WRONG_SETTINGS


class JsonLinesLogger(Logger):
    """Logger with one JSON object per line: `{"step": ..., "time": ..., metrics}`.

    The file can be read while the run continues. NaN and infinity become null.
    """

    def __init__(self, directory: RunDirectory) -> None:
        super().__init__()
        self.directory = directory

    @property
    def name(self) -> str:
        return "metrics"

    @property
    def version(self) -> str:
        return ""

    @rank_zero_only
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        finite = {name: value if math.isfinite(value) else None for name, value in metrics.items()}
        self.directory.add_to_log(json.dumps({"step": step, "time": round(time.time(), 3), **finite}))

    @rank_zero_only
    def log_hyperparams(self, params: dict[str, Any] | Namespace, *args: Any, **kwargs: Any) -> None:
        """Ignore hyperparameters: run.json holds the settings."""


def loggers_of(run: RunSettings, directory: RunDirectory, *, resume: Path | None) -> list[Logger]:
    """Return the loggers of a run, not yet started.

    Raises:
        LoggerError: the settings ask for W&B, and it is not installed.
    """
    loggers: list[Logger] = [JsonLinesLogger(directory)]
    if "tensorboard" in run.training.loggers:
        # TensorBoard drops its lines after the step from which the run continues.
        step = read_checkpoint(resume)["global_step"] + 1 if resume else None
        loggers.append(TensorBoardLogger(directory.path, name=None, version="tensorboard", purge_step=step))
    if "wandb" in run.training.loggers:
        loggers.append(_wandb(directory, resume=resume))
    return loggers


def _wandb(directory: RunDirectory, *, resume: Path | None) -> WandbLogger:
    """Return the W&B logger: its run has the name of the folder, our run id, and the arm as group.

    Only W&B itself reads its key, if it is online. It is told not to read git (the address of a remote may
    hold a password), the code, or what the process prints.
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
        resume="allow" if resume else None,  # a run that starts anew replaces the run with its id
        settings=wandb.Settings(console="off", disable_git=True, disable_code=True, quiet=True),
    )


@contextmanager
def started(trainer: L.Trainer) -> Iterator[None]:
    """Start the W&B run of a trainer, if it has one, and finish it after the block.

    It is marked as failed if the block fails. One process may train several runs, one after the other, but W&B
    has one run per process.

    Raises:
        LoggerError: W&B cannot start, for example online without a key.
    """
    logger = next((candidate for candidate in trainer.loggers if isinstance(candidate, WandbLogger)), None)
    if logger is None or not trainer.is_global_zero:
        yield
        return
    import wandb

    try:
        shown = logger.experiment
    except (wandb.errors.Error, ValidationError) as error:  # an unknown WANDB_MODE raises a ValidationError
        wrong = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        reason = wrong.partition("\n")[0].strip().rstrip(".")
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
