"""Callbacks around the steps of a run, one duty each, and the logger of its lines.

Order matters where a step ends: the step is counted, checked, logged, validated, then saved, then the run
may stop.
"""

import json
import math
import signal
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lightning as L
import torch
import torch.distributed as dist
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers.logger import Logger
from lightning.pytorch.utilities.rank_zero import rank_zero_only
from torch import Tensor

from lightning_modules.config import operations_per_token
from lightning_modules.data.token_store import Split
from lightning_modules.errors import NonFiniteLossError
from lightning_modules.objectives.objective import Objective
from lightning_modules.randomness import derive
from lightning_modules.training.checkpoint import write_safetensors
from lightning_modules.training.evaluation import evaluate_parts
from lightning_modules.training.run_directory import RunDirectory
from lightning_modules.training.speed import as_written, matrix_rate

SECONDS_BETWEEN_SAVES = 45.0  # so that `last.ckpt` is never older than a minute plus a step
SECONDS_BETWEEN_STATES = 1.0


OnLine = Callable[[int, dict[str, float]], None]
"""Called with the step and the metrics of each line of the log."""


class StopRequest:
    """Remembers that somebody sent SIGTERM or pressed Ctrl-C; the run ends after the step at hand."""

    def __init__(self) -> None:
        self.received = False
        self._at_once = False

    def install(self) -> None:
        """Take over both signals of this process; a second Ctrl-C interrupts at once."""
        signal.signal(signal.SIGTERM, self._remember)
        signal.signal(signal.SIGINT, self._remember)

    def _remember(self, number: int, frame: Any) -> None:
        again, self.received = self.received, True
        if self._at_once or (again and number == signal.SIGINT):
            raise Interrupted  # no KeyboardInterrupt: Lightning would turn it into exit code 1

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Stop at once in the block, which must be one that may end anywhere, when a stop is requested.

        Raises:
            Interrupted: it was asked for, before or meanwhile.
        """
        if self.received:
            raise Interrupted
        self._at_once = True
        try:
            yield
        finally:
            self._at_once = False

    def ask(self) -> None:
        """Request a stop as a signal does; from any thread."""
        self.received = True
        if self._at_once:  # only then, as Lightning has signals of its own while it trains
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)


class Interrupted(BaseException):
    """Somebody asked the run to stop; its state is saved. No error, so not an Exception."""


class StepSeed(Callback):
    """Dropout of step i depends on (seed, i, device) and not on what was drawn before."""

    def on_train_batch_start(
        self, trainer: L.Trainer, module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        assert isinstance(module, Objective)
        torch.manual_seed(derive(module.run.seed, "step", trainer.global_step, trainer.global_rank))


class Meter(Callback):
    """Counts what was seen, refuses a loss that is no number, and writes the log.

    Sums stay on the device between two log lines; there they are checked. On a CPU that is every step.
    """

    def __init__(self, directory: RunDirectory, *, log_every: int, on_line: OnLine | None = None) -> None:
        self.directory, self.log_every, self.on_line = directory, log_every, on_line
        self.tokens_seen = self.tokens_predicted = 0
        self.seconds = 0.0
        self._sums: Tensor | None = None
        self._seen_before = 0.0  # tokens of the line in the making from before a resume: no speed of this start
        self._last_state = 0.0
        self._born = self._since = self._line_since = time.perf_counter()
        self._first_step_seconds: float | None = None
        self._run = directory.settings()
        self._expected_operations = operations_per_token(self._run)
        self._matrix_rate = math.nan
        self._first_line = True

    def state_dict(self) -> dict[str, Any]:
        sums = None if self._sums is None else self._sums.tolist()
        return {**self.progress(), "sums": sums}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.tokens_seen, self.tokens_predicted = state_dict["tokens_seen"], state_dict["tokens_predicted"]
        self.seconds = state_dict["seconds"]
        if state_dict["sums"] is not None:
            self._sums = torch.tensor(state_dict["sums"], dtype=torch.float64)
            self._seen_before = state_dict["sums"][0]

    def on_train_start(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        assert isinstance(module, Objective)
        if self._sums is not None:
            self._sums = self._sums.to(module.device)
        if trainer.is_global_zero:
            self.directory.cut_metrics(trainer.global_step)
            mixed = module.run.training.precision == "bf16-mixed"
            one_device = matrix_rate(module.device, torch.bfloat16 if mixed else torch.float32)
            self._matrix_rate = one_device * trainer.world_size
        self._since = self._line_since = time.perf_counter()

    def on_train_batch_end(
        self, trainer: L.Trainer, module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        totals = outputs["totals"]
        self._sums = totals if self._sums is None else self._sums + totals
        step = trainer.global_step
        due = step % self.log_every == 0 or step == trainer.max_steps or step == 1
        if due or module.device.type == "cpu":
            self.check(trainer, module)
        if self._first_step_seconds is None:  # waited for by now, on a GPU too
            self._first_step_seconds = time.perf_counter() - self._born
        if due:
            self.write_log(trainer, module)

    def check(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        """Stop the run when a loss or a gradient since the last check was no number."""
        assert isinstance(module, Objective)
        if self._sums is None:
            return
        loss, norm = self._sums.sum().item(), module.gradient_norm.item()
        if not (math.isfinite(loss) and math.isfinite(norm)):
            what = "loss" if not math.isfinite(loss) else "norm of the gradient"
            raise NonFiniteLossError(
                f"step {trainer.global_step}: the {what} is {loss if what == 'loss' else norm}, and "
                f"the last checkpoint is from before; lower training.learning_rate or training.gradient_clip_val, "
                f"or lengthen the warm-up."
            )

    def write_log(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        """Write one line: means over the steps since the last one."""
        assert isinstance(module, Objective)
        assert self._sums is not None
        seen, predicted, metrics = module.explain(self._sums.tolist())
        self.tokens_predicted += predicted
        self.tokens_seen += seen
        now = time.perf_counter()
        speed = (seen - self._seen_before) / (now - self._line_since)
        line: dict[str, Any] = metrics | {
            "train/lr": module.learning_rate(trainer.global_step - 1),
            "train/grad_norm": module.gradient_norm.item(),
            "train/tokens": self.tokens_seen,
            "train/predicted": self.tokens_predicted,
            "perf/tokens_per_sec": speed,
            "perf/mfu": self.utilisation(speed),
        }
        if self._first_line:
            line["perf/first_step_sec"] = self._first_step_seconds or 0.0
            self._first_line = False
        self._sums, self._line_since, self._seen_before = None, now, 0.0
        write_line(trainer, line)
        self.report(trainer, speed)
        if self.on_line is not None and trainer.is_global_zero:
            self.on_line(trainer.global_step, line)

    def report(self, trainer: L.Trainer, tokens_per_second: float) -> None:
        """Say in state.json how far the run is, at most once a second."""
        if not trainer.is_global_zero or time.monotonic() - self._last_state < SECONDS_BETWEEN_STATES:
            return
        self._last_state = time.monotonic()
        self.directory.write_state(
            "running",
            step=trainer.global_step,
            tokens_per_second=tokens_per_second,
            mfu=self.utilisation(tokens_per_second),
            first_step_seconds=self._first_step_seconds,
            **self.progress(),
        )

    def progress(self) -> dict[str, Any]:
        """Tokens seen and predicted, seconds and useful operations of training, over all starts of the run."""
        seconds = self.seconds + (time.perf_counter() - self._since)
        counts = {"tokens_seen": self.tokens_seen, "tokens_predicted": self.tokens_predicted, "seconds": seconds}
        return counts | {"flops": self.tokens_seen * self._operations_per_token}

    @property
    def _operations_per_token(self) -> float:
        """Operations per token, expected from the settings; for skip-gram, from the pairs that were counted."""
        if "pairs" not in self._run.objective.predictions or not self.tokens_seen:
            return self._expected_operations
        return operations_per_token(self._run, pairs=self.tokens_predicted / self.tokens_seen)

    def summary(self) -> dict[str, Any]:
        """Return `progress` of a run that is over, with its mean speed and the rate that its utilisation is a
        share of."""
        progress = self.progress()
        speed = progress["tokens_seen"] / max(progress["seconds"], 1e-9)
        rate = None if math.isnan(self._matrix_rate) else self._matrix_rate
        speeds = {"tokens_per_second": speed, "mfu": self.utilisation(speed), "matrix_operations_per_second": rate}
        return progress | speeds

    def utilisation(self, tokens_per_second: float) -> float | None:
        """Return the model FLOPs utilisation: useful operations over those of matrix products in the same time;
        None for a run that took no step."""
        if math.isnan(self._matrix_rate):
            return None
        return tokens_per_second * self._operations_per_token / self._matrix_rate

    def leave_out(self, seconds: float) -> None:
        """Do not count the seconds of something that is no training step, such as a validation."""
        self._since += seconds
        self._line_since += seconds


class ValidationLog(Callback):
    """The validation loss every `validate_every` steps and after the last; in fp32, as in the table."""

    def __init__(self, split: Split, *, every: int, meter: Meter) -> None:
        self.split, self.every, self.meter = split, every, meter

    def on_train_batch_end(
        self, trainer: L.Trainer, module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        step = trainer.global_step
        if step % self.every and step != trainer.max_steps:
            return
        assert isinstance(module, Objective)
        self.meter.check(trainer, module)  # steps that a GPU has yet to do are no validation
        start = time.perf_counter()
        with as_written(module):
            parts = evaluate_parts(module, self.split, rank=trainer.global_rank, ranks=trainer.world_size)
        means = {name: (part.total / part.predictions).item() for name, part in parts.items() if part.predictions}
        main, *others = parts
        if main not in means:  # a text of a few words may ask for nothing
            return
        line = {"val/loss": means[main], "val/ppl": math.exp(min(means[main], 700.0))}
        line |= {f"val/{name}": means[name] for name in others if name in means}
        write_line(trainer, line | {"val/predicted": int(parts[main].predictions)})
        self.meter.leave_out(time.perf_counter() - start)


class Saver(Callback):
    """Saver of checkpoints: `last.ckpt` at least every minute, on request and at the end; `step=` files at 0, at
    powers of two and at the end; stops the run when somebody asked for it.

    Every device takes the same decision at the same step: where there are several, one tiny sum over
    them (through gloo, on the CPU) agrees on it.
    """

    def __init__(self, directory: RunDirectory, *, keep: int | None, meter: Meter, stop: StopRequest) -> None:
        self.directory, self.keep, self.meter, self.stop = directory, keep, meter, stop
        self._control: Any = None
        self._last_save = time.monotonic()

    def on_train_start(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        if trainer.world_size > 1:
            self._control = dist.new_group(backend="gloo")
        self._last_save = time.monotonic()
        if trainer.global_step == 0:
            self.save(trainer, last=False)

    def on_train_batch_end(
        self, trainer: L.Trainer, module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        stop, late = self._agree(self.stop.received, time.monotonic() - self._last_save > SECONDS_BETWEEN_SAVES)
        step = trainer.global_step
        ending = step == trainer.max_steps
        power_of_two = step & (step - 1) == 0
        if stop or late or ending or power_of_two:
            self.meter.check(trainer, module)
            self.save(trainer, last=stop or late or ending, step=ending or power_of_two)
        if stop and not ending:
            raise Interrupted

    def _agree(self, *wishes: bool) -> list[bool]:
        """Return for each wish whether any device has it."""
        if self._control is None:
            return list(wishes)
        votes = torch.tensor([float(wish) for wish in wishes])
        dist.all_reduce(votes, group=self._control)
        return [bool(vote) for vote in votes]

    def save(self, trainer: L.Trainer, *, last: bool, step: bool = True) -> None:
        """Write the checkpoints of this moment; all devices call it together."""
        start = time.perf_counter()
        if step:
            path = self.directory.checkpoints / f"step={trainer.global_step:07d}.ckpt"
            trainer.save_checkpoint(path, weights_only=True)
            if trainer.is_global_zero:
                self._drop_old()
        if last:
            trainer.save_checkpoint(self.directory.last_checkpoint)
            self._last_save = time.monotonic()
            if trainer.is_global_zero:
                saved = {"step": trainer.global_step, "saved_step": trainer.global_step}
                self.directory.write_state("running", **saved, **self.meter.progress())
        self.meter.leave_out(time.perf_counter() - start)

    def _drop_old(self) -> None:
        if self.keep is not None:
            for path in sorted(self.directory.checkpoints.glob("step=*.ckpt"))[: -self.keep]:
                path.unlink(missing_ok=True)

    def finish(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        """Write the weights for other tools after the last step, and for an untrained run its checkpoints."""
        if trainer.max_steps == 0:
            self.save(trainer, last=True)
        if trainer.is_global_zero:
            write_safetensors(module.state_dict(), self.directory.last_weights)


def write_line(trainer: L.Trainer, metrics: dict[str, float]) -> None:
    """Send metrics to every logger of the run, from one device."""
    if trainer.is_global_zero:
        for logger in trainer.loggers:
            logger.log_metrics(metrics, step=trainer.global_step)


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
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    @rank_zero_only
    def log_hyperparams(self, params: dict[str, Any] | Namespace, *args: Any, **kwargs: Any) -> None:
        """Ignore hyperparameters: run.json holds the settings."""
