"""Commands of one job of an array: `python -m ablations.runs.places.job VERB INDEX`.

The script job.sh or a task of Ray starts them in the folder of the array.

begin   counts the attempt; exit code 0 means that there are runs to do
train   becomes one process of the training of a run on several nodes
work    trains and measures the runs of the job; a run on several nodes is only measured; exit code 75 means that
        it was asked to save, and that a run is left
tied    does the same as work; if its standard input closes, as when its parent dies, it saves the runs and ends
left    exit code 0 means that a run is left that is worth another attempt

The folders of the runs say what is done. job-N.json only counts attempts and keeps reasons of failures.
"""

import os
import platform
import re
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ablations.runs.places import arrays
from ablations.runs.places.arrays import Ending, JobFiles
from ablations.wording import several
from lightning_modules.errors import STOP_SIGNALS, AblationsError, ExitCode, FilesError
from lightning_modules.files import read_file
from lightning_modules.provenance import accept_machine
from lightning_modules.training.run_directory import RunDirectoryError

if TYPE_CHECKING:
    from ablations.runs.launch import Outcome, Pool

NEVER_AGAIN = (ExitCode.WRONG_SETTINGS, ExitCode.WRONG_DATA, ExitCode.NOT_FINITE)
"""Exit codes of training that would fail in the same way again."""

BEGUN = "without progress so far"
"""Words in the line of a job's log with which each attempt begins."""

OVER_MEMORY = re.compile("^slurmstepd.*(exceeded memory limit.*being killed|oom[-_]kill event)", re.MULTILINE)
"""Line of a job's log after SLURM, or the kernel in its place, killed a process that used too much memory."""

LACKED_MEMORY = (
    "its job used more memory than it has, so SLURM ended it; raise memory in the file of --place, or lower "
    "runs_at_once."
)


def begin(job: JobFiles) -> bool:
    """Count an attempt, and return whether there are runs to do.

    If too many attempts ended without progress, the job gives up here.
    """
    attempts, progress_now = job.attempts(), progress(job)
    number = 1 if progress_now != attempts.progress else attempts.without_progress + 1
    if number > job.array.tries:
        give_up(job)
    elif open_runs := worth_trying(job):
        job.write(attempts.model_copy(update={"without_progress": number, "progress": progress_now}))
        print(f"attempt {number} {BEGUN}; to do: {' '.join(open_runs)}", flush=True)
    return bool(worth_trying(job))


def is_left(job: JobFiles) -> bool:
    """Return whether a run is left that is worth another attempt. After too many attempts without progress
    the job gives up."""
    if lacked_memory(job):
        for name in worth_trying(job):
            note(job, name, LACKED_MEMORY, is_final=False)
    attempts = job.attempts()
    if attempts.without_progress >= job.array.tries and progress(job) == attempts.progress:
        give_up(job)
    return bool(worth_trying(job))


def lacked_memory(job: JobFiles) -> bool:
    """Return whether SLURM killed a process of the present attempt because the job used too much memory. Only the
    job's log says so."""
    logs = [read_file(path).decode(errors="replace") for path in job.folder.glob(f"*_{job.number}.log")]
    return any(OVER_MEMORY.search(log.rpartition(BEGUN)[2]) for log in logs)


def worth_trying(job: JobFiles) -> list[str]:
    """Return the names of the runs that are neither done nor given up."""
    endings = job.attempts().endings
    open_runs = [name for name in job.run_names if job.missing(name) != 0]  # None: it is not trained
    return [name for name in open_runs if name not in endings or not endings[name].is_final]


def progress(job: JobFiles) -> int:
    """Return a number that grows whenever a run of the job is saved at a later step or gets another measure. It
    falls when a run is trained anew, because what its checkpoints lack has to be measured."""
    from ablations.runs import rows  # imports pandas

    return sum(rows.progress(job.directory(name)) for name in job.run_names)


def give_up(job: JobFiles) -> None:
    """Record that the open runs of the job are not tried again."""
    for name in worth_trying(job):
        before = job.attempts().endings.get(name)
        log = job.directory(name).path / "log.txt"
        logs = f"{log} and the logs in {job.folder}" if log.exists() else f"the logs in {job.folder}"
        reason = (
            before.message
            if before
            else f"its job was ended each time, by a time limit that is too short or otherwise; read {logs}"
        )
        message = f"given up after {several(job.array.tries, 'attempt')} without progress: {reason}"
        note(job, name, message, is_final=True)
        directory = job.directory(name)
        code = ExitCode.OUT_OF_MEMORY if reason == LACKED_MEMORY else ExitCode.FAILED
        with suppress(RunDirectoryError, FilesError), directory.lock():  # for the page
            if not directory.is_trained():
                directory.write_state("failed", message=message, exit_code=int(code))


def note(job: JobFiles, name: str, message: str, *, is_final: bool) -> None:
    """Record why a run did not end well."""
    attempts = job.attempts()
    endings = attempts.endings | {name: Ending(message=message, is_final=is_final)}
    job.write(attempts.model_copy(update={"endings": endings}))


def note_outcome(job: JobFiles, outcome: "Outcome") -> None:
    """Record why a run did not end well. If it is done, forget why earlier attempts were not."""
    name = outcome.run_dir.name
    if outcome.code == ExitCode.DONE:
        attempts = job.attempts()
        endings = {other: why for other, why in attempts.endings.items() if other != name}
        job.write(attempts.model_copy(update={"endings": endings}))
    elif outcome.code != ExitCode.INTERRUPTED:
        answered = outcome.seconds > 0
        # A measure that was refused is refused again, but the next node may have more memory free.
        refused = answered and job.directory(name).is_trained() and outcome.code != ExitCode.OUT_OF_MEMORY
        message = outcome.message or f"training ended with exit code {outcome.code}"
        note(job, name, message, is_final=refused or outcome.code in NEVER_AGAIN)


def train_command(job: JobFiles, *, threads: int) -> list[str]:
    """Return the command of one process of the training of the job's run on several nodes."""
    resources = job.array.resources
    options = {
        "--nodes": resources.nodes,
        "--devices": resources.devices,
        "--accelerator": "gpu" if resources.gpus else "cpu",
        "--threads": threads,
        "--data-root": job.array.data_root,
    }
    run_dir = str(job.directory(job.run_names[0]).path)
    words = [str(word) for option in options.items() for word in option]
    return [sys.executable, "-P", "-m", "lightning_modules.training.train", run_dir, *words]


def work(job: JobFiles, trained_with: int, *, tied: bool = False) -> bool:
    """Train and measure the open runs of the job. Return whether it was asked to save.

    Each attempt without progress begins with another run, so that a run that ends the whole job does not
    block the others.

    Args:
        trained_with: exit code of a training on several nodes.
        tied: whether to save and end if standard input closes.
    """
    from ablations.runs.launch import Pool, visible_gpus
    from ablations.runs.progress import stopped_by_signals

    resources = job.array.resources
    names = rotated(worth_trying(job), job.attempts().without_progress - 1)
    if not names:  # a process of several nodes failed after all were done
        return False
    if resources.nodes > 1 and trained_with != ExitCode.DONE:
        state = job.directory(names[0]).state()
        if state.state == "failed":
            note(job, names[0], state.message or "", is_final=trained_with in NEVER_AGAIN)
        return trained_with == ExitCode.INTERRUPTED
    gpus = visible_gpus() if resources.gpus else []
    if len(gpus) < resources.gpus:
        node = os.environ.get("SLURMD_NODENAME", platform.node())
        for name in names:
            message = (
                f"the job requested {several(resources.gpus, 'GPU')}, but torch finds {len(gpus)} on {node}; "
                "install torch with CUDA, or set gpus to 0."
            )
            note(job, name, message, is_final=False)
        return False

    devices = 1 if resources.nodes > 1 else resources.devices
    slots = max(1, min(resources.runs_at_once, len(names)))
    pool = Pool(
        slots=slots,
        devices=devices,
        threads=max(1, resources.cpus // (slots * devices)),
        data_root=Path(job.array.data_root),
        measures=job.measures(),
        gpus=gpus,
    )
    for name in names:  # a job that was requeued may be on a node of another kind
        accept_machine(job.directory(name), devices=devices)
    with stopped_by_signals(pool, (signal.SIGINT, *STOP_SIGNALS)) as signalled:
        if tied:
            threading.Thread(target=stop_with_parent, args=(pool,), daemon=True).start()
        run_dirs = [job.directory(name).path for name in names]
        pool.run(run_dirs, ended=partial(note_outcome, job), tried_again=print)
    return signalled.is_set()


def stop_with_parent(pool: "Pool") -> None:
    """Wait until standard input closes, then stop a pool."""
    while os.read(sys.stdin.fileno(), 1024):
        pass
    pool.stop()


def rotated(names: Sequence[str], number: int) -> list[str]:
    """Return the names with `number` of them moved from the front to the end."""
    first = number % len(names) if names else 0
    return [*names[first:], *names[:first]]


def main(verb: str, index: str, code: str = "0") -> int:
    """Carry out a command of the job with this index, and return its exit code. `code` is the exit code of a
    training on several nodes."""
    job = arrays.read(Path.cwd())[int(index)]
    match verb:
        case "begin":
            return 0 if begin(job) else 1
        case "left":
            return 0 if is_left(job) else 1
        case "train":
            threads = int(os.environ.get("SLURM_CPUS_PER_TASK", "1"))
            os.execv(sys.executable, train_command(job, threads=threads))
        case "work" | "tied":
            if work(job, int(code), tied=verb == "tied") and worth_trying(job):
                return ExitCode.INTERRUPTED
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:]))
    except AblationsError as error:
        sys.exit(str(error))  # into the log, with exit code 1
