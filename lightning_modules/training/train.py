"""Process that trains one run under its lock: `python -m lightning_modules.training.train RUN_DIR`.

Exit codes: 0 done, 2 wrong settings or folder, 65 wrong data, 66 loss not finite, 67 out of memory, 70 one of
several processes was killed and 75 interrupted (after 70 and 75 the same command resumes), 1 anything else.
"""

import math
import os
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from lightning_modules.config import contradictions
from lightning_modules.config.settings import plugins_of
from lightning_modules.data.token_store import Tokens
from lightning_modules.errors import AblationsError, ExitCode, Interrupted, OutOfMemoryError, StopRequest
from lightning_modules.files import remove_leftovers, write_json
from lightning_modules.model.numerics import keep_freed_memory, out_of_memory
from lightning_modules.plugins import failure
from lightning_modules.provenance import accept_machine, machine_changes, provenance, utc_now
from lightning_modules.training.data_module import load_tokens
from lightning_modules.training.fit import threads_of, train
from lightning_modules.training.log import OnLine
from lightning_modules.training.ranks import (
    RANK_VARIABLE,
    joined_ranks,
    lost_rank,
    rank_of_nodes,
    run_ranks,
    stop_when_orphaned,
)
from lightning_modules.training.run_directory import RunDirectory, RunDirectoryError

SECONDS_BETWEEN_LINES = 5.0


def record_provenance(directory: RunDirectory, *, devices: int, threads: int | None, tokens: Tokens) -> None:
    """Write provenance.json. On a resume, keep the facts of the first start and add the time of the resume.

    Raises:
        RunDirectoryError: the run was begun on another kind of machine, or with other versions or devices, so
            it would not end with the same bits.
    """
    before = directory.provenance()
    record = provenance() | {
        "devices": devices,
        "threads": threads_of(directory, threads),
        "tokens": tokens.address,
        "started": utc_now(),
    }
    if before:
        if changed := machine_changes(before, record):
            raise RunDirectoryError(
                f"{directory.path} was started elsewhere and would not end with the same bits here "
                f"({'; '.join(changed)}); continue it there, or add --other-machine to continue it here."
            )
        record = before | {"resumed": [*before.get("resumed", []), record["started"]]}
    write_json(directory.path / "provenance.json", record)


def start(
    directory: RunDirectory,
    *,
    data_root: Path,
    devices: int = 1,
    nodes: int = 1,
    accelerator: str = "auto",
    threads: int | None = None,
    stop: StopRequest,
    on_line: OnLine | None = None,
) -> ExitCode:
    """Train a run under its lock, keep its state.json up to date, and return the exit code.

    If something goes wrong, a sentence about it goes to stderr and into state.json.

    Args:
        devices: number of devices of each node.
        nodes: number of nodes. If above 1, this process is the first one of the run.

    Raises:
        RunBusyError: another process holds the lock, or has taken it since.
        Exception: any error that is a bug, after state.json says that training failed.
    """
    with directory.lock() as lock:
        if directory.is_done():
            return ExitCode.DONE
        options: dict[str, Any] = {"data_root": data_root, "devices": devices, "accelerator": accelerator}
        options["stop"] = stop
        try:
            tokens = load_tokens(directory, data_root=data_root)
            if stop.received:
                raise Interrupted
            _remove_remains(directory)
            record_provenance(directory, devices=devices * nodes, threads=threads, tokens=tokens)
            if nodes == 1 and devices > 1:
                return _settle(directory, run_ranks(directory.path, lock=lock, **options))
            with joined_ranks(accelerator=accelerator) if nodes > 1 else nullcontext():
                train(directory, tokens, nodes=nodes, threads=threads, on_line=on_line, **options)
        except BaseException as error:
            directory.require_lock()  # without the lock, state.json belongs to another process
            if nodes > 1 and (lost := lost_rank(error)) is not None:
                click.echo(f"{type(error).__name__}: {error}", err=True)
                error = Interrupted() if stop.received else lost
            code, sentence = _outcome(error, directory)
            if sentence is not None:
                click.echo(sentence, err=True)  # first, because a full disk may refuse the state
            _settle(directory, code, sentence or f"{type(error).__name__}: {error}")
            if sentence is None and code == ExitCode.FAILED:
                raise
            return code
    return ExitCode.DONE


def _remove_remains(directory: RunDirectory) -> None:
    """Remove half-written files, and the files of an earlier training that has no whole checkpoint."""
    trained = directory.is_trained()  # but without a whole checkpoint, or `is_done` would be true
    if trained or not directory.last_checkpoint.exists():
        directory.forget_training()
    directory.checkpoints.mkdir(exist_ok=True)
    for folder in (directory.path, directory.checkpoints):
        remove_leftovers(folder)


def _outcome(error: BaseException, directory: RunDirectory) -> tuple[ExitCode, str | None]:
    """Return the exit code for an exception, and its sentence if it is meant for a user, otherwise None.

    An unexpected error of a run with an objective or selection of a user's own gets a sentence with the line of
    that file, and its traceback goes to stderr.
    """
    if isinstance(error, Interrupted | KeyboardInterrupt):
        return ExitCode.INTERRUPTED, None
    if not isinstance(error, AblationsError) and (no_room := out_of_memory(error)) is not None:
        error = OutOfMemoryError(
            f"training ran out of memory ({no_room}); raise training.accumulate (which cuts a step into parts), "
            "or lower training.tokens_per_step or --slots."
        )
    if not isinstance(error, AblationsError) and (files := plugins_of([directory.settings().objective])):
        traceback.print_exception(error)
        name, record = next(iter(files.items()))
        error = failure(name, Path(record["path"]), error)
    if isinstance(error, AblationsError):
        return error.exit_code, str(error)
    return ExitCode.FAILED, None


def _settle(directory: RunDirectory, code: ExitCode, message: str | None = None) -> ExitCode:
    """Write into state.json that training was interrupted or has failed, and return the code.

    DONE is written elsewhere. If `message` is None, a message that a rank has written into state.json is
    kept.
    """
    if code == ExitCode.INTERRUPTED:
        if not directory.is_trained():  # a trained run may be interrupted before it is trained again
            # A killed attempt may have written a later step, which was not saved.
            directory.write_state("interrupted", step=directory.state().saved_step or 0)
    elif code != ExitCode.DONE:
        reason = message or directory.state().message or f"training ended with exit code {code}"
        directory.write_state("failed", message=reason, exit_code=int(code))
    return code


def refuse_unsafe_environment() -> None:
    """Raise an error if an environment variable would let a checkpoint execute code."""
    if os.environ.get("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"):
        raise RunDirectoryError(
            "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD is set, so a checkpoint could execute code; unset this variable."
        )


def _rank(
    directory: RunDirectory, *, data_root: Path, devices: int, accelerator: str, stop: StopRequest
) -> ExitCode:
    """Train as one of the processes of `run_ranks`. The parent holds the lock and writes the outcome."""
    stop_when_orphaned(stop)
    try:
        tokens = load_tokens(directory, data_root=data_root)
        options: dict[str, Any] = {"devices": devices, "accelerator": accelerator}
        with joined_ranks(accelerator=accelerator):
            train(directory, tokens, data_root=data_root, stop=stop, **options)
        return ExitCode.DONE
    except BaseException as error:
        code, sentence = _outcome(error, directory)
        if (lost := lost_rank(error)) is not None:
            click.echo(f"{type(error).__name__}: {error}\n{lost}", err=True)
            if directory.state().state != "failed":  # the other process has written the reason, if it could
                directory.write_state("failed", message=str(lost))
        elif sentence is None and code == ExitCode.FAILED:
            traceback.print_exc()
            directory.write_state("failed", message=f"{type(error).__name__}: {error}")
        elif sentence is not None and (os.environ["LOCAL_RANK"] == "0" or code == ExitCode.OUT_OF_MEMORY):
            # Every rank has this error, so the first reports it. Out of memory alone may hit one rank only.
            click.echo(sentence, err=True)
            directory.write_state("failed", message=sentence)
        return code


def _rank_of_nodes(
    directory: RunDirectory,
    *,
    data_root: Path,
    devices: int,
    nodes: int,
    accelerator: str,
    threads: int | None,
    stop: StopRequest,
) -> ExitCode:
    """Train as one of the processes on several nodes. The first one holds the lock and writes the outcome.

    A job that was requeued continues on any nodes. After an interruption all processes but the first return
    0: SLURM kills all processes as soon as one ends with another code, and the first may still be writing.
    """
    options: dict[str, Any] = {"devices": devices, "nodes": nodes, "accelerator": accelerator, "threads": threads}
    is_first = rank_of_nodes(devices=devices, nodes=nodes) == 0
    try:
        if is_first:
            accept_machine(directory, devices=devices * nodes)
            with progress_display(directory) as on_line:
                return start(directory, data_root=data_root, stop=stop, on_line=on_line, **options)
        if directory.is_done():
            return ExitCode.DONE
        with joined_ranks(accelerator=accelerator):
            train(
                directory, load_tokens(directory, data_root=data_root), data_root=data_root, stop=stop, **options
            )
        return ExitCode.DONE
    except RunDirectoryError:
        raise
    except BaseException as error:
        code, sentence = _outcome(error, directory)
        if sentence is not None:
            click.echo(sentence, err=True)
        elif code == ExitCode.FAILED:
            traceback.print_exc()
        return ExitCode.DONE if code == ExitCode.INTERRUPTED and not is_first else code


@click.command()
@click.argument("run_dir", type=click.Path(path_type=Path))
@click.option(
    "--devices", type=click.IntRange(min=1), default=1, show_default=True, help="Number of processes on each node."
)
@click.option(
    "--nodes",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Number of nodes; above 1, start the command with srun or torchrun.",
)
@click.option("--accelerator", type=click.Choice(["auto", "cpu", "gpu"]), default="auto", show_default=True)
@click.option(
    "--threads",
    type=click.IntRange(min=1),
    help="Number of threads of each process, read only at the first start of the run.",
)
@click.option(
    "--data-root",
    type=click.Path(path_type=Path),
    default=".",
    help="Folder from which relative paths of the data start.",
)
@click.option("--tied", is_flag=True, help="Save the run and end when standard input closes.")
@click.option("--other-machine", is_flag=True, help="Continue a run that started on another kind of machine.")
def main(
    run_dir: Path,
    devices: int,
    nodes: int,
    accelerator: str,
    threads: int | None,
    data_root: Path,
    tied: bool,
    other_machine: bool,
) -> None:
    """Train the run in RUN_DIR from where it stands to its last step.

    Exit codes: 0 done, 2 wrong settings or folder, 65 wrong data, 66 the loss became NaN or infinite, 67 out of
    memory, 70 one of several processes was killed, 75 interrupted (after 70 and 75 the same command resumes), 1
    anything else.
    """
    keep_freed_memory()
    directory, stop = RunDirectory(run_dir.absolute()), StopRequest()
    stop.install()
    if tied:
        stop_when_orphaned(stop)
    options: dict[str, Any] = {"data_root": data_root, "devices": devices, "accelerator": accelerator}
    options["stop"] = stop
    try:
        refuse_unsafe_environment()
        problems = contradictions(directory.settings())
        if problems:
            raise RunDirectoryError(f"{run_dir / 'run.json'}: {'.'.join(problems[0][0])} {problems[0][1]}.")
        if RANK_VARIABLE in os.environ:
            code = _rank(directory, **options)
            sys.stderr.flush()
            os._exit(code)  # after a failure the process group's threads would hang the interpreter's exit
        if nodes > 1:
            code = _rank_of_nodes(directory, nodes=nodes, threads=threads, **options)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        if other_machine:
            accept_machine(directory, devices=devices)
        with progress_display(directory) as on_line:
            code = start(directory, threads=threads, on_line=on_line, **options)
    except RunDirectoryError as error:
        click.echo(str(error), err=True)
        code = error.exit_code
    sys.exit(code)


@contextmanager
def progress_display(directory: RunDirectory) -> Iterator[OnLine]:
    """Show a bar with loss and tokens per second on a terminal; elsewhere a plain line every few seconds."""
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
