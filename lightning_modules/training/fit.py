"""One fit of a run: the Trainer with its callbacks, from where the run stands to its last step."""

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.fabric.utilities.warnings import PossibleUserWarning
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.plugins.environments import LightningEnvironment
from lightning.pytorch.strategies import DDPStrategy

from lightning_modules.config import RunSettings
from lightning_modules.data.token_store import Tokens
from lightning_modules.files import write_json
from lightning_modules.model.numerics import bf16_products
from lightning_modules.objectives import build
from lightning_modules.pretrained.weights import load_pretrained
from lightning_modules.provenance import now
from lightning_modules.training.callbacks import Saver, StepSeed, ValidationLog
from lightning_modules.training.checkpoint import AtomicCheckpoints, read_checkpoint
from lightning_modules.training.data_module import GPU_WORKERS, RunData
from lightning_modules.training.loggers import loggers_of, started
from lightning_modules.training.meter import Meter, OnLine
from lightning_modules.training.ranks import cluster_environment
from lightning_modules.training.run_directory import RunDirectory
from lightning_modules.training.speed import compile_blocks
from lightning_modules.training.stop import StopRequest


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
    """Train a run from where it stands to its last step, in this process (one rank of several, under DDP).

    Resumes from `last.ckpt` where there is one. On a CPU the result is the same bits however often the run
    was interrupted, for the same machine, versions, devices and threads. The caller holds the folder's lock.

    Args:
        data_root: where a relative path to the folder of `init` starts.
        devices: of each node.
        nodes: where they are several, SLURM, Ray or torchrun started this process and the others.
        threads: of torch, in this process; those of the run's first start win over it.
        stop: asked after every step whether to save and end.

    Raises:
        Interrupted: somebody asked to stop; the state is saved.
        NonFiniteLossError: the last checkpoint is from before.
        DataError: too little text for one step.
        LoggerError: Weights & Biases is asked for and cannot start.
    """
    run = directory.settings()
    log_every = max(1, min(50, run.training.max_steps // 100))
    meter = Meter(directory, log_every=log_every, on_line=on_line)  # whose clock to the first step starts here
    torch.set_num_threads(threads_of(directory, threads))
    objective = build(run, tokens)
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
            if resume is not None:
                _cut_log(directory, read_checkpoint(resume))
            directory.write_state("running", max_steps=run.training.max_steps, pid=os.getpid())
            if data.word_order is not None:
                write_json(directory.path / "word_order.json", data.word_order)
        device = trainer.strategy.root_device.type
        compile_blocks(objective, device)
        with started(trainer), bf16_products(device, enabled=run.training.precision == "bf16-mixed"):
            trainer.fit(objective, data, ckpt_path=resume, weights_only=True)
        saver.finish(trainer, objective)
    if trainer.is_global_zero:
        files = {
            "last_checkpoint_bytes": directory.last_checkpoint.stat().st_size,
            "log_sha256": directory.log_sha256(),
        }
        directory.write_state("done", step=trainer.global_step, **files, **meter.summary())
        write_json(directory.path / "provenance.json", directory.provenance() | {"finished": now()})


def _cut_log(directory: RunDirectory, checkpoint: dict[str, Any]) -> None:
    """Cut the log of a run to what it was when the checkpoint was saved.

    This is no hook of a callback: Lightning calls none of training where the checkpoint is that of the last step.
    """
    of_meter = checkpoint.get("callbacks", {}).get(Meter.__qualname__, {})
    # Earlier versions did not note the digest.
    directory.cut_metrics(checkpoint["global_step"], sha256=of_meter.get("log_sha256"))


@contextmanager
def without_lightning_chatter() -> Iterator[None]:
    """Hide advertisements, and warnings about what is done on purpose: a user could not act on them."""
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
    trainer = L.Trainer(
        max_steps=run.training.max_steps,
        max_epochs=1,
        accelerator="cpu" if on_cpu else "gpu",
        devices=devices,
        num_nodes=nodes,
        strategy=_strategy(devices * nodes, "gloo" if on_cpu else "nccl"),
        precision=run.training.precision,
        # Named, because in a job of a cluster Lightning would take each process for one rank of several.
        plugins=[
            AtomicCheckpoints(),
            cluster_environment() if nodes > 1 else LightningEnvironment(),
        ],
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
    # Its SIGTERM handler broadcasts from inside the handler and hangs when one rank of several is signalled.
    trainer._signal_connector.register_signal_handlers = lambda: None  # type: ignore[method-assign]
    return trainer


def _strategy(ranks: int, backend: str) -> DDPStrategy | str:
    """Return the strategy of one process; or of several, whose gradients are summed where they lie, without a
    copy."""
    return DDPStrategy(process_group_backend=backend, gradient_as_bucket_view=True) if ranks > 1 else "auto"


def threads_of(directory: RunDirectory, threads: int | None) -> int:
    """Return the threads of the first start, so that a resumed run repeats its sums in the same order."""
    return directory.provenance().get("threads") or threads or torch.get_num_threads()
