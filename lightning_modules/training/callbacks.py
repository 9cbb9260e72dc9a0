"""Callbacks around the steps of a run, one duty each.

Order matters where a step ends: the step is counted, checked, logged, validated, then saved, then the run
may stop.
"""

import math
import time
from typing import Any

import lightning as L
import torch
import torch.distributed as dist
from lightning.pytorch.callbacks import Callback

from lightning_modules.data.token_store import Split
from lightning_modules.objectives.objective import Objective
from lightning_modules.randomness import derive
from lightning_modules.training.checkpoint import write_safetensors
from lightning_modules.training.evaluation import evaluate_parts
from lightning_modules.training.meter import Meter, write_line
from lightning_modules.training.ranks import TIME_TO_ANSWER
from lightning_modules.training.run_directory import RunDirectory
from lightning_modules.training.speed import as_written
from lightning_modules.training.stop import Interrupted, StopRequest

SECONDS_BETWEEN_SAVES = 45.0  # so that `last.ckpt` is never older than a minute plus a step


class StepSeed(Callback):
    """Dropout of step i depends on (its seed, i, device) and not on what was drawn before."""

    def on_train_batch_start(
        self, trainer: L.Trainer, module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        assert isinstance(module, Objective)
        seed = module.run.seed_of("dropout")
        torch.manual_seed(derive(seed, "step", trainer.global_step, trainer.global_rank))


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
        if "loss" not in means:  # a text of a few words may ask for nothing
            return
        line = {f"val/{name}": mean for name, mean in means.items()}
        line |= {"val/ppl": math.exp(min(means["loss"], 700.0)), "val/predicted": int(parts["loss"].predictions)}
        write_line(trainer, line)
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
            self._control = dist.new_group(backend="gloo", timeout=TIME_TO_ANSWER)
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
            trainer.save_checkpoint(self.directory.checkpoint_at(trainer.global_step), weights_only=True)
            if trainer.is_global_zero:
                self._drop_old()
        if last:
            trainer.save_checkpoint(self.directory.last_checkpoint)
            self._last_save = time.monotonic()
            if trainer.is_global_zero:
                saved = {"step": trainer.global_step, "saved_step": trainer.global_step}
                self.directory.write_state("running", **saved, **self.meter.progress.state_dict())
        self.meter.leave_out(time.perf_counter() - start)

    def _drop_old(self) -> None:
        if self.keep is not None:
            for path in list(self.directory.kept_checkpoints().values())[: -self.keep]:
                path.unlink(missing_ok=True)

    def finish(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        """Write the weights for other tools after the last step, and for an untrained run its checkpoints."""
        if trainer.max_steps == 0:
            self.save(trainer, last=True)
        if trainer.is_global_zero:
            write_safetensors(module.state_dict(), self.directory.last_weights)
