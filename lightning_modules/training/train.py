"""Training of one run, start to done: `python -m lightning_modules.training.train RUN_DIR`.

Exit codes: 0 done, 2 wrong settings or folder, 65 wrong data, 66 the loss became no number, 75 interrupted
(the same command resumes), 1 anything else.
"""

import logging
import math
import os
import sys
import time
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import lightning as L
import torch
import torch.distributed as dist
from lightning.fabric.utilities.warnings import PossibleUserWarning
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.plugins.environments import LightningEnvironment
from lightning.pytorch.strategies import DDPStrategy
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from lightning_modules.config import RunSettings, contradictions
from lightning_modules.data.token_store import Tokens, load, prepare
from lightning_modules.errors import AblationsError, DataError, NonFiniteLossError
from lightning_modules.files import remove_leftovers, write_json
from lightning_modules.model.numerics import bf16_products, keep_freed_memory
from lightning_modules.objectives import build
from lightning_modules.provenance import now, provenance
from lightning_modules.training.callbacks import (
    Interrupted,
    JsonLinesLogger,
    Meter,
    OnLine,
    Saver,
    StepSeed,
    StopRequest,
    ValidationLog,
)
from lightning_modules.training.checkpoint import AtomicCheckpoints, read_checkpoint
from lightning_modules.training.data_module import GPU_WORKERS, RunData
from lightning_modules.training.ranks import RANK_VARIABLE, run_ranks, stop_when_orphaned
from lightning_modules.training.run_directory import RunDirectory, RunDirectoryError
from lightning_modules.training.speed import compile_blocks

SECONDS_BETWEEN_LINES = 5.0
DONE, WRONG_SETTINGS, WRONG_DATA, NOT_FINITE, INTERRUPTED, FAILED = 0, 2, 65, 66, 75, 1
EXIT_CODES = ((RunDirectoryError, WRONG_SETTINGS), (DataError, WRONG_DATA), (NonFiniteLossError, NOT_FINITE))


def train(
    directory: RunDirectory,
    tokens: Tokens,
    *,
    devices: int = 1,
    accelerator: str = "auto",
    threads: int | None = None,
    stop: StopRequest | None = None,
    on_line: OnLine | None = None,
) -> None:
    """Train a run from where it stands to its last step, in this process (one rank of several, under DDP).

    Resumes from `last.ckpt` where there is one. On a CPU the result is the same bits however often the run
    was interrupted, for the same machine, versions, devices and threads. The caller holds the folder's lock.

    Args:
        threads: of torch, in this process; those of the run's first start win over it.
        stop: asked after every step whether to save and end.

    Raises:
        Interrupted: somebody asked to stop; the state is saved.
        NonFiniteLossError: the last checkpoint is from before.
        DataError: too little text for one step.
    """
    run = directory.settings()
    log_every = max(1, min(50, run.training.max_steps // 100))
    meter = Meter(directory, log_every=log_every, on_line=on_line)  # whose clock to the first step starts here
    torch.set_num_threads(_threads(directory, threads))
    objective = build(run, tokens)
    on_gpu = accelerator != "cpu" and torch.cuda.is_available()
    data = RunData(objective, tokens, workers=GPU_WORKERS if on_gpu else 0)
    keep = None if run.training.keep_checkpoints == "all" else run.training.keep_checkpoints
    saver = Saver(directory, keep=keep, meter=meter, stop=stop or StopRequest())
    validation = ValidationLog(tokens.validation, every=run.training.validate_every, meter=meter)
    resume = directory.last_checkpoint if directory.last_checkpoint.exists() else None
    with without_lightning_chatter():
        callbacks = [StepSeed(), meter, validation, saver]
        trainer = _trainer(run, directory, callbacks, devices=devices, accelerator=accelerator, resume=resume)
        if trainer.is_global_zero:
            directory.write_state("running", max_steps=run.training.max_steps, pid=os.getpid())
            if data.word_order is not None:
                write_json(directory.path / "word_order.json", data.word_order)
        device = trainer.strategy.root_device.type
        compile_blocks(objective, device)
        with bf16_products(device, enabled=run.training.precision == "bf16-mixed"):
            trainer.fit(objective, data, ckpt_path=resume, weights_only=True)
        saver.finish(trainer, objective)
    if trainer.is_global_zero:
        size = directory.last_checkpoint.stat().st_size
        directory.write_state("done", step=trainer.global_step, last_checkpoint_bytes=size, **meter.summary())
        write_json(directory.path / "provenance.json", directory.provenance() | {"finished": now()})


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
    accelerator: str,
    resume: Path | None,
) -> L.Trainer:
    on_cpu = accelerator == "cpu" or not torch.cuda.is_available()
    trainer = L.Trainer(
        max_steps=run.training.max_steps,
        max_epochs=1,
        accelerator="cpu" if on_cpu else "gpu",
        devices=devices,
        strategy=_strategy(devices, "gloo" if on_cpu else "nccl"),
        precision=run.training.precision,
        plugins=[AtomicCheckpoints(), LightningEnvironment()],
        callbacks=callbacks,
        logger=[JsonLinesLogger(directory.metrics), _tensorboard(directory, resume)],
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


def _strategy(devices: int, backend: str) -> DDPStrategy | str:
    """Return the strategy of one process; or of several, whose gradients are summed where they lie, without a
    copy."""
    return DDPStrategy(process_group_backend=backend, gradient_as_bucket_view=True) if devices > 1 else "auto"


def _tensorboard(directory: RunDirectory, resume: Path | None) -> TensorBoardLogger:
    """Return TensorBoard's log; what it has after the step that the run goes on from is not shown again."""
    step = read_checkpoint(resume)["global_step"] + 1 if resume else None
    return TensorBoardLogger(directory.path, name=None, version="tensorboard", purge_step=step)


def _threads(directory: RunDirectory, threads: int | None) -> int:
    """Return the threads of the first start, so that a resumed run repeats its sums in the same order."""
    return directory.provenance().get("threads") or threads or torch.get_num_threads()


def record_provenance(directory: RunDirectory, *, devices: int, threads: int | None, tokens: Tokens) -> None:
    """Write provenance.json; on a resume, keep the first start's facts and add when and on what it went on."""
    before = directory.provenance()
    record = provenance() | {
        "devices": devices,
        "threads": _threads(directory, threads),
        "tokens": tokens.address,
        "started": now(),
    }
    if before:
        record = before | {"resumed": [*before.get("resumed", []), record["started"]]}
    write_json(directory.path / "provenance.json", record)


def load_tokens(directory: RunDirectory, *, data_root: Path) -> Tokens:
    """Return the token store that run.json names, beside the run folders; made from the text if it is missing.

    Raises:
        DataError: the text is not the one the run was planned with.
    """
    store, address = directory.path.parent.parent / "tokens", directory.description()["tokens"]
    if (store / address).is_dir():
        return load(store / address)
    tokens = prepare(directory.settings().data, data_root=data_root, store=store)
    if tokens.address != address:
        raise DataError(
            f"{directory.path / 'run.json'}: the text has changed since the run was planned "
            f"(tokens {address} then, {tokens.address} now); plan again with `ablate run`."
        )
    return tokens


def start(
    directory: RunDirectory,
    *,
    data_root: Path,
    devices: int = 1,
    accelerator: str = "auto",
    threads: int | None = None,
    stop: StopRequest,
    on_line: OnLine | None = None,
) -> int:
    """Train a run under its lock, keep its state.json true, and return the exit code.

    A sentence about what went wrong goes to stderr and into state.json.
    """
    with directory.lock() as lock:
        if directory.is_done():
            return DONE
        try:
            tokens = load_tokens(directory, data_root=data_root)
            if stop.received:
                raise Interrupted
            trained = directory.is_trained()  # and its checkpoint is not whole, or it would be done
            if (trained and directory.checkpoint() != "whole") or not directory.last_checkpoint.exists():
                directory.forget_training()
            directory.checkpoints.mkdir(exist_ok=True)
            for folder in (directory.path, directory.checkpoints):
                remove_leftovers(folder)
            record_provenance(directory, devices=devices, threads=threads, tokens=tokens)
            if devices > 1:
                code = run_ranks(directory.path, devices=devices, accelerator=accelerator, lock=lock, stop=stop)
                return _settle(directory, code)
            train(directory, tokens, accelerator=accelerator, threads=threads, stop=stop, on_line=on_line)
        except (Interrupted, KeyboardInterrupt):
            return _settle(directory, INTERRUPTED)
        except AblationsError as error:
            click.echo(str(error), err=True)
            code = next((code for kind, code in EXIT_CODES if isinstance(error, kind)), FAILED)
            return _settle(directory, code, str(error))
        except BaseException as error:
            directory.write_state("failed", message=f"{type(error).__name__}: {error}")
            raise
    return DONE


def _settle(directory: RunDirectory, code: int, message: str | None = None) -> int:
    """Write how a start ended, unless it said so itself."""
    if code == INTERRUPTED:
        if not directory.is_trained():  # else it was interrupted before it was to be trained again
            directory.write_state("interrupted")
    elif code != DONE:
        reason = message or directory.state().message or f"training ended with exit code {code}"
        directory.write_state("failed", message=reason)
    return code


def refuse_unsafe_environment() -> None:
    """Stop where the environment would let a checkpoint execute code."""
    if os.environ.get("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"):
        raise RunDirectoryError(
            "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD is set, which lets a checkpoint execute code; unset it."
        )


def _rank(directory: RunDirectory, *, data_root: Path, devices: int, accelerator: str, stop: StopRequest) -> int:
    """Train as one of the processes that `run_ranks` starts; its parent holds the lock and writes how it ended."""
    stop_when_orphaned(stop)
    try:
        train(
            directory,
            load_tokens(directory, data_root=data_root),
            devices=devices,
            accelerator=accelerator,
            stop=stop,
        )
        # Without this the gloo threads abort about one clean exit in five.
        dist.barrier()
        dist.destroy_process_group()
        return DONE
    except (Interrupted, KeyboardInterrupt):
        return INTERRUPTED
    except AblationsError as error:
        if os.environ["LOCAL_RANK"] == "0":
            click.echo(str(error), err=True)
            directory.write_state("failed", message=str(error))
        return next((code for kind, code in EXIT_CODES if isinstance(error, kind)), FAILED)


@click.command()
@click.argument("run_dir", type=click.Path(path_type=Path))
@click.option("--devices", type=click.IntRange(min=1), default=1, show_default=True, help="Processes of this run.")
@click.option("--accelerator", type=click.Choice(["auto", "cpu", "gpu"]), default="auto", show_default=True)
@click.option("--threads", type=click.IntRange(min=1), help="Threads of each process, at the run's first start.")
@click.option(
    "--data-root", type=click.Path(path_type=Path), default=".", help="Where relative paths of the data start."
)
def main(run_dir: Path, devices: int, accelerator: str, threads: int | None, data_root: Path) -> None:
    """Train the run in RUN_DIR from where it stands to its last step.

    Exit codes: 0 done, 2 wrong settings or folder, 65 wrong data, 66 the loss became no number,
    75 interrupted (the same command resumes), 1 anything else.
    """
    keep_freed_memory()
    directory, stop = RunDirectory(run_dir.absolute()), StopRequest()
    stop.install()
    try:
        refuse_unsafe_environment()
        problems = contradictions(directory.settings())
        if problems:
            raise RunDirectoryError(f"{run_dir / 'run.json'}: {'.'.join(problems[0][0])} {problems[0][1]}.")
        if RANK_VARIABLE in os.environ:
            try:
                code = _rank(directory, data_root=data_root, devices=devices, accelerator=accelerator, stop=stop)
            except BaseException as error:
                traceback.print_exc()
                directory.write_state("failed", message=f"{type(error).__name__}: {error}")
                code = FAILED
            sys.stderr.flush()
            os._exit(code)  # after a failure the process group's threads would hang the interpreter's exit
        with progress_display(directory) as on_line:
            code = start(
                directory,
                data_root=data_root,
                devices=devices,
                accelerator=accelerator,
                threads=threads,
                stop=stop,
                on_line=on_line,
            )
    except RunDirectoryError as error:
        click.echo(str(error), err=True)
        code = WRONG_SETTINGS
    sys.exit(code)


@contextmanager
def progress_display(directory: RunDirectory) -> Iterator[OnLine]:
    """Show a bar with loss and tokens per second on a terminal, a plain line now and then elsewhere."""
    steps = directory.settings().training.max_steps
    if not sys.stdout.isatty():
        last = [0.0]

        def plain(step: int, line: dict[str, float]) -> None:
            if step == steps or time.monotonic() - last[0] > SECONDS_BETWEEN_LINES:
                last[0] = time.monotonic()
                parts = [f"step {step}/{steps}", f"loss {line.get('train/loss', math.nan):.3f}"]
                parts += [f"{line['perf/tokens_per_sec']:,.0f} tokens/s", f"{line['perf/mfu']:.0%} MFU"]
                if "perf/first_step_sec" in line:
                    parts.append(f"first step after {line['perf/first_step_sec']:.1f} s")
                click.echo("  ".join(parts))

        yield plain
        return
    columns = (
        TextColumn(directory.path.name),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]:.3f}  {task.fields[speed]:,.0f} tokens/s  {task.fields[mfu]:.0%} MFU"),
        TextColumn("{task.fields[first]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns) as bar:
        task = bar.add_task("", total=steps, loss=math.nan, speed=0.0, mfu=0.0, first="")

        def shown(step: int, line: dict[str, float]) -> None:
            loss, speed, mfu = line.get("train/loss", math.nan), line["perf/tokens_per_sec"], line["perf/mfu"]
            bar.update(task, completed=step, loss=loss, speed=speed, mfu=mfu)
            if "perf/first_step_sec" in line:
                bar.update(task, first=f"first step after {line['perf/first_step_sec']:.1f} s")

        yield shown


if __name__ == "__main__":
    main()
