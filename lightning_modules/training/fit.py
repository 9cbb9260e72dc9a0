"""One fit of a run: the Trainer with its callbacks, from the state of the run (resume) to its last step.

Each callback has one duty. Their order matters at the end of a step: it is counted, checked, logged,
validated and saved, and then the run may stop. `bare_step` takes the same steps without the Trainer.
Calibration times it, and it shows what the Trainer costs. When a run resumes, `data_module.py` gives it the
batches from its step on, and `log.py` the counts.
"""

import logging
import math
import os
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, cast

import lightning as L
import torch
import torch.distributed as dist
from lightning.fabric.utilities.warnings import PossibleUserWarning
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.plugins.environments import LightningEnvironment
from lightning.pytorch.strategies import DDPStrategy

from lightning_modules.config import RunSettings
from lightning_modules.data.token_store import Split, Tokens
from lightning_modules.errors import Interrupted, OutOfMemoryError, StopRequest
from lightning_modules.files import write_json
from lightning_modules.model.encoder import DecoderBlock, EncoderBlock
from lightning_modules.model.numerics import bf16_products, out_of_memory
from lightning_modules.objectives import build
from lightning_modules.objectives.objective import Objective
from lightning_modules.objectives.predictions import allowed_part
from lightning_modules.pretrained.weights import load_pretrained
from lightning_modules.provenance import utc_now
from lightning_modules.randomness import derive
from lightning_modules.training.checkpoint import AtomicCheckpoints, read_checkpoint, write_safetensors
from lightning_modules.training.data_module import GPU_WORKERS, RunData, evaluate_parts
from lightning_modules.training.log import Meter, OnLine, loggers_of, started, write_line
from lightning_modules.training.ranks import TIME_TO_ANSWER, cluster_environment
from lightning_modules.training.run_directory import RunDirectory

SECONDS_BETWEEN_SAVES = 45.0  # keeps `last.ckpt` younger than a minute plus a step


def train(
    directory: RunDirectory,
    tokens: Tokens,
    *,
    data_root: Path = Path(),
    devices: int = 1,
    nodes: int = 1,
    accelerator: str = "auto",
    threads: int | None = None,
    stop: StopRequest | None = None,
    on_line: OnLine | None = None,
) -> None:
    """Train a run from its present state to its last step, in this process (one rank of several, under DDP).

    It resumes from `last.ckpt` if there is one. On a CPU the result is the same bits however often the run
    was interrupted, for the same machine, versions, devices and threads. The caller must hold the folder's
    lock.

    Args:
        data_root: folder to which a relative `init.path` refers.
        devices: number of devices of each node.
        nodes: number of nodes. If above 1, SLURM, Ray or torchrun has started this process and the others.
        threads: number of torch's threads in this process, unless the run's first start had another number.
        stop: request to save and end, which is checked after every step.

    Raises:
        Interrupted: somebody asked to stop; the state is saved.
        NonFiniteLossError: the loss is NaN or infinite; the last checkpoint was written before.
        OutOfMemoryError: the weights do not fit into memory.
        DataError: too little text for one step.
        LoggerError: the settings ask for Weights & Biases, and it cannot start.
    """
    run = directory.settings()
    log_every = max(1, min(50, run.training.max_steps // 100))
    meter = Meter(directory, log_every=log_every, on_line=on_line, allowed=allowed_part(run, tokens))
    torch.set_num_threads(threads_of(directory, threads))
    objective = _built(run, tokens)
    resume = directory.last_checkpoint if directory.last_checkpoint.exists() else None
    if resume is None:
        load_pretrained(objective, data_root)
    on_gpu = accelerator != "cpu" and torch.cuda.is_available()
    data = RunData(objective, tokens, workers=GPU_WORKERS if on_gpu else 0)
    keep = None if run.training.keep_checkpoints == "all" else run.training.keep_checkpoints
    saver = Saver(directory, keep=keep, meter=meter, stop=stop or StopRequest())
    validation = ValidationLog(tokens.validation, every=run.training.validate_every, meter=meter)
    with without_lightning_chatter():
        callbacks = [StepSeed(), meter, validation, saver]
        trainer = _trainer(
            run, directory, callbacks, devices=devices, nodes=nodes, accelerator=accelerator, resume=resume
        )
        if trainer.is_global_zero:
            _note_start(directory, run, data, resume=resume)
        device = trainer.strategy.root_device.type
        compile_blocks(objective, device)
        with started(trainer), bf16_products(device, enabled=run.training.precision == "bf16-mixed"):
            trainer.fit(objective, data, ckpt_path=resume, weights_only=True)
        saver.finish(trainer, objective)
    if trainer.is_global_zero:
        _note_end(directory, trainer, meter)


def _built(run: RunSettings, tokens: Tokens) -> Objective:
    """Return the objective of a run, or raise an error that names the settings to lower if its weights do not
    fit into memory."""
    try:
        return build(run, tokens)
    except Exception as error:
        if (no_room := out_of_memory(error)) is None:
            raise
        raise OutOfMemoryError(
            f"building the model ran out of memory ({no_room}); lower encoder.hidden_size, "
            "encoder.num_hidden_layers, or --slots."
        ) from error


def _note_start(directory: RunDirectory, run: RunSettings, data: RunData, *, resume: Path | None) -> None:
    """Write into the folder of a run that it is being trained, and cut its log to what it was when the checkpoint
    was saved; to nothing without one.

    This is not a hook of a callback, because Lightning calls no training hooks if the checkpoint is of the
    last step.
    """
    checkpoint = {} if resume is None else read_checkpoint(resume)
    of_meter = checkpoint.get("callbacks", {}).get(Meter.__qualname__, {})
    # Checkpoints of earlier versions have no digest.
    directory.cut_log(checkpoint.get("global_step", -1), sha256=of_meter.get("log_sha256"))
    directory.write_state("running", max_steps=run.training.max_steps, pid=os.getpid())
    if data.word_order is not None:
        write_json(directory.path / "word_order.json", data.word_order)


def _note_end(directory: RunDirectory, trainer: L.Trainer, meter: Meter) -> None:
    """Write into the folder of a run that it is trained to its last step."""
    directory.mend_log()
    directory.sync_log()
    files = {
        "last_checkpoint_bytes": directory.last_checkpoint.stat().st_size,
        "log_sha256": directory.log_sha256(),
    }
    directory.write_state("done", step=trainer.global_step, **files, **meter.summary())
    write_json(directory.path / "provenance.json", directory.provenance() | {"finished": utc_now()})


@contextmanager
def without_lightning_chatter() -> Iterator[None]:
    """Hide Lightning's advertisements, and its warnings about things that are done on purpose."""
    loggers = [logging.getLogger(name) for name in ("lightning.pytorch", "lightning.fabric")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.WARNING)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*LeafSpec.* is deprecated", category=FutureWarning)
        warnings.filterwarnings("ignore", message="Total length of .* across ranks is zero")
        warnings.filterwarnings("ignore", category=PossibleUserWarning)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)


def _trainer(
    run: RunSettings,
    directory: RunDirectory,
    callbacks: list[Callback],
    *,
    devices: int,
    nodes: int,
    accelerator: str,
    resume: Path | None,
) -> L.Trainer:
    on_cpu = accelerator == "cpu" or not torch.cuda.is_available()
    strategy: DDPStrategy | str = "auto"
    if devices * nodes > 1:  # gradients are summed in place, without a copy
        backend = "gloo" if on_cpu else "nccl"
        strategy = DDPStrategy(process_group_backend=backend, gradient_as_bucket_view=True)
    trainer = L.Trainer(
        max_steps=run.training.max_steps,
        max_epochs=1,
        accelerator="cpu" if on_cpu else "gpu",
        devices=devices,
        num_nodes=nodes,
        strategy=strategy,
        precision=run.training.precision,
        # By default Lightning would take each process of a cluster job for one rank of several.
        plugins=[AtomicCheckpoints(), cluster_environment() if nodes > 1 else LightningEnvironment()],
        callbacks=callbacks,
        logger=loggers_of(run, directory, resume=resume),
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        limit_val_batches=0,
        num_sanity_val_steps=0,
        log_every_n_steps=1,
    )
    # Lightning's SIGTERM handler would broadcast, and hang if only one of several ranks gets the signal.
    trainer._signal_connector.register_signal_handlers = lambda: None  # type: ignore[method-assign]
    return trainer


def threads_of(directory: RunDirectory, threads: int | None) -> int:
    """Return the number of threads of the run's first start, so that a resumed run sums in the same order.

    At the first start this is `threads`, or torch's number.
    """
    return directory.provenance().get("threads") or threads or torch.get_num_threads()


class StepSeed(Callback):
    """Callback that seeds dropout before each step. The seed depends on (dropout seed, step, device) alone."""

    def on_train_batch_start(
        self, trainer: L.Trainer, module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        assert isinstance(module, Objective)
        seed = module.run.seed_of("dropout")
        torch.manual_seed(derive(seed, "step", trainer.global_step, trainer.global_rank))


class ValidationLog(Callback):
    """Callback that logs the validation loss every `validate_every` steps and after the last step. It is
    computed in fp32, as in the table of results."""

    def __init__(self, split: Split, *, every: int, meter: Meter) -> None:
        self.split, self.every, self.meter = split, every, meter

    def on_train_batch_end(
        self, trainer: L.Trainer, module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        step = trainer.global_step
        if step % self.every and step != trainer.max_steps:
            return
        assert isinstance(module, Objective)
        self.meter.check(trainer, module)  # waits for a GPU: its steps must not count as validation time
        start = time.perf_counter()
        with as_written(module):
            parts = evaluate_parts(module, self.split, rank=trainer.global_rank, ranks=trainer.world_size)
        means = {name: (part.total / part.predictions).item() for name, part in parts.items() if part.predictions}
        line = {f"val/{name}": mean for name, mean in means.items()}
        if "loss" in means:  # a text of a few words may have no predictions
            if any(part.name == "loss" for part in module.vocabulary_parts):
                line["val/ppl"] = math.exp(min(means["loss"], 700.0))
            line["val/predicted"] = int(parts["loss"].predictions)
        if line:
            write_line(trainer, line)
        self.meter.leave_out(time.perf_counter() - start)


class Saver(Callback):
    """Callback that saves checkpoints, and stops the run on request.

    `last.ckpt` is saved at least every minute, on request and at the end; `step=` files at step 0, at powers
    of two and at the end. All devices take the same decision at the same step: if there are several, they
    agree by one tiny sum (gloo, on the CPU).
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
        """Return, for each wish of this device, whether at least one device has the same wish."""
        if self._control is None:
            return list(wishes)
        votes = torch.tensor([float(wish) for wish in wishes])
        dist.all_reduce(votes, group=self._control)
        return [bool(vote) for vote in votes]

    def save(self, trainer: L.Trainer, *, last: bool, step: bool = True) -> None:
        """Write the checkpoints of this step. All devices must call it together."""
        start = time.perf_counter()
        if step:
            trainer.save_checkpoint(self.directory.checkpoint_at(trainer.global_step), weights_only=True)
            if trainer.is_global_zero:
                self._drop_old()
        if last:
            if trainer.is_global_zero:
                self.directory.sync_log()
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
        """Write the weights for other tools after the last step; for an untrained run also its checkpoints."""
        if trainer.max_steps == 0:
            self.save(trainer, last=True)
        if trainer.is_global_zero:
            write_safetensors(module.state_dict(), self.directory.last_weights)


GRAPHS = 64
"""Limit of compiled graphs of a block. Above it blocks would run uncompiled. One worker may train runs of
several kinds, widths and norms."""


def compile_blocks(objective: Objective, device: str) -> None:
    """Compile the blocks of encoder and decoder if the settings say so and the device is a GPU. Weights keep
    their names.

    Blocks of a kind share a few graphs, first for the present shapes and then for any shape, however many
    blocks there are. On a CPU nothing is compiled, because it saves almost no time there (benchmarks/LOG.md).

    Args:
        device: type of the device that trains the objective, "cpu" or "cuda".
    """
    if not objective.run.training.compile or device == "cpu":
        return
    torch._dynamo.config.recompile_limit = GRAPHS
    for module in objective.modules():
        if isinstance(module, EncoderBlock | DecoderBlock):
            module.compile()


def as_written(objective: Objective) -> AbstractContextManager[object]:
    """Run the model uncompiled in the block, so that every evaluation has the same numbers and compiles
    nothing."""
    return torch.compiler.set_stance("force_eager") if objective.run.training.compile else nullcontext()


def bare_step(run: RunSettings, tokens: Tokens, *, device: str = "cpu") -> Callable[[], int]:
    """Return a function that takes the next step of a run at each call, and returns its number of real source
    tokens.

    Batch, loss, gradients, clipping, update and schedule are those of a run. Nothing is logged or saved. On a
    GPU other processes make the batches, as in a run, and the function returns before the GPU has finished
    the step.
    """
    objective = build(run, tokens).to(device).train()
    compile_blocks(objective, device)
    data = RunData(objective, tokens, workers=0 if device == "cpu" else GPU_WORKERS)
    configured = cast(dict[str, Any], objective.configure_optimizers())
    optimizer, schedule = configured["optimizer"], configured["lr_scheduler"]["scheduler"]
    mixed = run.training.precision == "bf16-mixed"
    batches = iter(data.loader(lambda: 0))

    def step() -> int:
        on_host = next(batches)
        tokens_in_it = sum(int(batch["source_tokens"]) for batch in on_host)
        on_device = [{name: x.to(device, non_blocking=True) for name, x in batch.items()} for batch in on_host]
        with bf16_products(device, enabled=mixed):
            with torch.autocast(device, dtype=torch.bfloat16, enabled=mixed):
                loss = objective.training_step(on_device, 0)["loss"]
            loss.backward()
        objective.configure_gradient_clipping(optimizer)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        schedule.step()
        return tokens_in_it

    return step
