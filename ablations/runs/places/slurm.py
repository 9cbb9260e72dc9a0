"""Runs of an experiment as jobs of SLURM: submits the missing runs, and watches them until they have ended.

SLURM alone decides when and where a job runs. This module submits arrays and asks for the queue. It
finds arrays by the names of their jobs. So the command that submitted them may end, and the same command watches
them again.
"""

import re
import shlex
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from ablations.catalogue import plain_measures
from ablations.errors import SpecError
from ablations.runs.calibration import longest_first
from ablations.runs.identity import PlannedRun
from ablations.runs.launch import Outcome
from ablations.runs.places import arrays, slurm_queue
from ablations.runs.places.arrays import Array, JobFiles
from ablations.runs.places.place import PlaceFile, Resources, SlurmPlace
from ablations.runs.places.slurm_queue import NoAnswerError, QueuedJob, QueueError
from ablations.runs.places.watch import require_free, watch
from ablations.runs.progress import say_failed
from ablations.runs.workspace import Workspace
from ablations.wording import several
from lightning_modules.files import locked, make_folder, require_writable


class Submission(NamedTuple):
    """Array that is to be submitted."""

    folder: Path
    array: Array
    options: list[str]
    """Options of sbatch."""


class Watched(NamedTuple):
    """Job in the queue, with its runs."""

    queued: QueuedJob
    files: JobFiles


def carry_out(
    workspace: Workspace, items: Sequence[PlannedRun], *, place: PlaceFile[SlurmPlace]
) -> tuple[bool, list[Outcome]]:
    """Train and measure runs in jobs of SLURM, and wait until they have ended. Runs with the same identity
    are trained once.

    Runs that are in the queue already are only watched. Ctrl-C leaves the jobs in the queue.

    Returns whether somebody interrupted it, and the outcomes of the runs that failed.

    Raises:
        FilesError: the output root cannot be written to.
        QueueError: SLURM refuses or is not there; nothing new is in the queue then.
        SpecError: the text is unfit, a partition does not fit, or a process works on a run elsewhere; nothing
            new is in the queue then.
    """
    require_writable(workspace.out)
    require_plain_path(workspace.folder)
    try:
        in_queue(workspace.out)  # fails at once if SLURM is not there
        slurm_queue.require_partitions(place)
    except QueueError as error:
        raise QueueError(f"{str(error).rstrip('.')}; nothing was submitted.") from None
    console = Console(markup=False, highlight=False, emoji=False)
    todo = longest_first(items)
    from ablations.runs.prepare import prepare_text  # imports torch

    prepare_text(workspace, items, console)
    workspace.write_plan()
    todo, why_lost = _submit_missing(workspace, todo, place, console)
    interrupted, outcomes = watch(
        workspace,
        todo,
        console,
        look=lambda _: _look(workspace.out, todo),
        why_lost=lambda name: why_lost.get(name) or lost(workspace.folder / "slurm"),
    )
    failed = say_failed(outcomes, console)
    if interrupted:
        try:
            jobs = [job.queued for job in in_queue_for(workspace.out, todo)]
        except QueueError:  # the user may have interrupted because the queue did not answer
            jobs = []
        to_end = f"; to end them: {slurm_queue.cancel_command(jobs)}" if jobs else ""
        console.print(
            f"interrupted; the jobs continue, and the same command shows them again{to_end}",
            style="yellow",
            soft_wrap=True,
        )
    return interrupted, failed


def lost(folder: Path) -> str:
    """Return why a run did not end although nothing says so: its job, of the array in this folder, is gone."""
    return (
        "its job has left the queue, but the run has not ended; if nobody cancelled it, read the logs in "
        f"{folder}; then give the same command again"
    )


def _submit_missing(
    workspace: Workspace, items: Sequence[PlannedRun], place: PlaceFile[SlurmPlace], console: Console
) -> tuple[list[PlannedRun], dict[str, str]]:
    """Submit the runs that no job in the queue has, and print how many. Return all runs with their folders, and
    for each run in a job why it is lost if it has not ended when its job is gone."""
    for folder in (workspace.folder / "slurm", workspace.out / "runs"):
        make_folder(folder)
    with locked(workspace.out / "runs" / ".slurm.lock"):  # two commands at once must not submit the same runs
        # Holds the lock of each run for an instant, which another command takes for a process.
        todo = workspace.make_run_folders(items)
        watched = in_queue(workspace.out)
        missing = to_submit(workspace, todo, watched)
        require_free(missing, "is no job in the queue")
        planned = submissions(workspace, missing, place=place.content)
        _submit_all(planned, before=place.before)
    if missing:
        console.print(f"submitted: {several(len(missing), 'run')}")
    if earlier := for_earlier_runs(workspace, watched):
        console.print(
            f"SLURM's queue has {several(len(earlier), 'job')} whose runs are not in the spec now; to end "
            f"{'it' if len(earlier) == 1 else 'them'}: {' '.join(['scancel', *earlier])}",
            soft_wrap=True,
        )
    why_lost = {name: lost(job.files.folder) for job in watched for name in job.files.run_names}
    why_lost |= {name: lost(new.folder) for new in planned for names in new.array.jobs for name in names}
    others = "its job was submitted for other measures; give the same command again"
    return todo, why_lost | dict.fromkeys(for_other_measures(workspace, watched), others)


def to_submit(workspace: Workspace, items: Sequence[PlannedRun], watched: Sequence[Watched]) -> list[PlannedRun]:
    """Return the runs that no job in the queue has, and that have not ended since the command began."""
    covered = {name for job in watched for name in job.files.run_names}
    measures, data_root = workspace.experiment.measures, workspace.data_root
    return [
        item
        for item in items
        if item.directory.path.name not in covered
        and arrays.number_of_missing_measures(item.directory, measures, data_root=data_root) != 0
    ]


def for_other_measures(workspace: Workspace, watched: Sequence[Watched]) -> set[str]:
    """Return the names of the runs whose job in the queue lacks a measure of the experiment, as it was submitted
    for another spec or before the measure was added."""
    requested = plain_measures(workspace.experiment.measures)
    return {
        name
        for job in watched
        if any(measure not in job.files.array.measures for measure in requested)
        for name in job.files.run_names
    }


def for_earlier_runs(workspace: Workspace, watched: Sequence[Watched]) -> list[str]:
    """Return the numbers of the experiment's jobs in the queue whose runs the spec no longer has. Other jobs of
    their arrays may have runs of the spec."""
    trials = [] if workspace.search is None else workspace.search.trials
    planned = {item.directory.path.name for item in (*workspace.planned, *trials)}
    return [
        job.queued.job
        for job in watched
        if job.files.folder.parent.parent == workspace.folder and planned.isdisjoint(job.files.run_names)
    ]


def require_plain_path(folder: Path) -> None:
    r"""Raise a SpecError if the path of an experiment's folder has a % or a \. SLURM replaces them in the paths
    of logs, and a job whose log has no folder does not start."""
    if re.search(r"[%\\]", str(folder)):
        raise SpecError(
            f"{folder}: jobs of SLURM cannot write their logs to a path with % or \\; choose another output root "
            "(--out)."
        )


def submissions(workspace: Workspace, items: Sequence[PlannedRun], *, place: SlurmPlace) -> list[Submission]:
    """Return the arrays to submit for some runs, with long runs first.

    There is one array for each combination of resources, or several if it has more jobs than the cluster
    allows in one.
    """
    items_by_resources: dict[Resources, list[PlannedRun]] = {}
    for item in longest_first(items):
        items_by_resources.setdefault(place.of_arm(item.run.arm), []).append(item)
    largest = slurm_queue.largest_array() if items else 0
    planned = []
    for resources, alike in items_by_resources.items():
        count = -(-len(alike) // (resources.runs_per_job or resources.runs_at_once))
        # Long and short runs are spread evenly over the jobs.
        jobs = [[item.directory.path.name for item in alike[number::count]] for number in range(count)]
        for start in range(0, count, largest):
            planned.append(_submission(workspace, jobs[start : start + largest], resources, place))
    return planned


def _submission(
    workspace: Workspace, jobs: list[list[str]], resources: Resources, place: SlurmPlace
) -> Submission:
    folder = arrays.new_folder(workspace.folder)
    at_once = "" if place.jobs_at_once is None else f"%{place.jobs_at_once}"
    array = arrays.of_workspace(workspace, jobs, resources, tries=place.tries)
    options = [
        f"--array=0-{len(jobs) - 1}{at_once}",
        f"--job-name={arrays.job_name(folder)}",
        f"--chdir={folder}",
        "--output=%A_%a.log",
        "--open-mode=append",
        "--requeue",
        f"--signal=USR2@{place.seconds_to_save}",
        *resources.options(),
    ]
    return Submission(folder, array, options)


def _submit_all(planned: Sequence[Submission], *, before: Path | None) -> None:
    """Submit all arrays. If one fails, it and those before it are cancelled, and their folders removed."""
    for number, submission in enumerate(planned):
        try:
            arrays.write(submission.folder, submission.array, before=before)
            slurm_queue.submit(submission.options, submission.folder / "job.sh", sys.executable)
        except BaseException as error:
            for earlier in planned[: number + 1]:
                slurm_queue.cancel(arrays.job_name(earlier.folder))
                shutil.rmtree(earlier.folder, ignore_errors=True)
            if isinstance(error, QueueError):
                is_refused = not isinstance(error, NoAnswerError)
                remedy = "; change the file of --place, then start again" if is_refused else ""
                raise QueueError(f"{str(error).rstrip('.')}; nothing was submitted{remedy}.") from error
            raise


def dry_run(workspace: Workspace, items: Sequence[PlannedRun], *, place: PlaceFile[SlurmPlace]) -> Iterator[str]:
    """Yield lines on what would be submitted: each command, the runs of each job, and once the script of all
    jobs.

    Raises:
        SpecError: as `require_plain_path`; and as `require_partitions`, on a machine with SLURM.
    """
    require_plain_path(workspace.folder)
    if slurm_queue.is_installed():
        slurm_queue.require_partitions(place)
    for submission in submissions(workspace, items, place=place.content):
        script = submission.folder / "job.sh"
        yield shlex.join(slurm_queue.submit_command(submission.options, script, sys.executable))
        for index, names in enumerate(submission.array.jobs):
            yield f"  job {index}: {' '.join(names)}"
    if items:
        yield f"\njob.sh:\n{arrays.SCRIPT.read_text(encoding='utf-8')}"


def in_queue(out: Path) -> list[Watched]:
    """Return the jobs of an output root that are in the queue, with their runs.

    A copy of an output root has the files of the same jobs, which train the runs of the original alone. So jobs
    of another folder that this machine can see are left out.

    Raises:
        QueueError: SLURM cannot be asked.
    """
    folders = arrays.written(out)
    queued = [job for job in slurm_queue.queued_jobs() if job.name in folders]
    files = {name: arrays.read(folders[name]) for name in {job.name for job in queued}}
    watched = [Watched(job, files[job.name][job.element]) for job in queued]
    return [job for job in watched if _is_same(Path(job.files.array.runs), out / "runs")]


def in_queue_for(out: Path, items: Sequence[PlannedRun]) -> list[Watched]:
    """Return the jobs of an output root in the queue that train some of these runs, as `in_queue`."""
    names = {item.directory.path.name for item in items}
    return [job for job in in_queue(out) if names & set(job.files.run_names)]


def _is_same(trained: Path, runs: Path) -> bool:
    """Return whether jobs train these runs: two folders that this machine can see are the same one."""
    return not (trained.exists() and runs.exists()) or trained.samefile(runs)


def _look(out: Path, items: Sequence[PlannedRun]) -> tuple[set[str] | None, str]:
    """Return the names of these runs that are in the queue (None if SLURM does not answer), and a sentence on
    their jobs. Jobs of other experiments in the output root are left out."""
    try:
        watched = in_queue_for(out, items)
    except QueueError as error:
        return None, f"the queue does not answer, but the jobs continue: {error}"
    return {name for job in watched for name in job.files.run_names}, slurm_queue.queue_in_words(
        [job.queued for job in watched]
    )


def status_notes(out: Path, waiting: Set[str]) -> list[str]:
    """Return a sentence on the jobs of an output root in the queue, or on a queue that does not answer, and one
    on the runs of each array that wait although their job has left the queue.

    Args:
        waiting: names of the folders of runs that are neither at work nor trained nor failed.
    """
    if not arrays.written(out):
        return []
    if not slurm_queue.is_installed():
        return ["The state of the queue is unknown, because this machine has no commands of SLURM."]
    try:
        watched = in_queue(out)
    except QueueError as error:
        return [f"The state of the queue is unknown: {error}"]
    covered = {name for job in watched for name in job.files.run_names}
    folders = [job.folder for name, job in arrays.latest_jobs(out).items() if name in waiting - covered]
    notes = [
        f"No job in the queue has {several(count, 'open run')} of {folder} any more; if nobody cancelled the job, "
        "read its log there; then start `ablate run` again."
        for folder, count in Counter(folders).items()
        if folder.parent.name == "slurm"
    ]
    if not watched:
        return notes
    numbers = [job.queued.job for job in watched]
    few = f" ({' '.join(numbers)})" if len(numbers) <= 20 else ""
    return [f"{slurm_queue.queue_in_words([job.queued for job in watched])}{few}.", *notes]


def require_not_queued(out: Path, items: Sequence[PlannedRun]) -> None:
    """Raise an error if runs that are to be trained on this machine are in SLURM's queue.

    Without SLURM on this machine nothing is checked, and the lock of each run protects it.

    Raises:
        SpecError: runs are in the queue; the error names their jobs.
        QueueError: SLURM cannot be asked.
    """
    if not arrays.written(out) or not slurm_queue.is_installed():
        return
    jobs = [job.queued for job in in_queue_for(out, items)]
    if jobs:
        raise SpecError(
            f"{several(len(jobs), 'job')} in SLURM's queue will train the same runs; add `--on slurm` to watch "
            f"them, or end them with `{slurm_queue.cancel_command(jobs)}`."
        )
