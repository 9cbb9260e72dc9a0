"""The queue of SLURM: its commands, the jobs and partitions that they show, and sentences on both."""

import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ablations.errors import SpecError
from ablations.runs.places.place import (
    Partition,
    PlaceFile,
    Resources,
    SlurmPlace,
    gpus_of_node,
    gpus_of_type,
    megabytes_of,
    seconds_of,
)
from ablations.wording import guess, listed, shown
from lightning_modules.errors import AblationsError

SECONDS_TO_ANSWER = 60.0

LARGEST_ARRAY = 1001
"""Default of SLURM's MaxArraySize, for a machine without SLURM."""

KEPT_VARIABLES = ("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT")
"""Environment variables of SLURM that its commands need. Others, which SLURM sets inside a job, are removed,
because its commands would take them for options."""

WRONG_ACCOUNT = "the partition does not accept its account; `scancel` the job, change account, start again"

WAITS = {
    "JobHeldUser": "give `scontrol release` to let it start",
    "JobHeldAdmin": "an administrator holds it; ask why",
    "job requeued in held state": "look into its log, then give `scontrol release` to let it start",
    "launch failed requeued held": "look into its log, then give `scontrol release` to let it start",
    "PartitionTimeLimit": (
        "time_limit is above the limit of the partition; `scancel` the job, lower time_limit, start again"
    ),
    "PartitionNodeLimit": (
        "it needs more nodes than the partition has; `scancel` the job, lower nodes, start again"
    ),
    "PartitionConfig": "no node has the resources; `scancel` the job, lower cpus, gpus or memory, start again",
    "PartitionDown": "the partition is down; wait, or choose another",
    "PartitionInactive": "the partition is inactive; wait, or choose another",
    "BadConstraints": "no node meets its constraint; `scancel` the job, change constraint, start again",
    "AccountNotAllowed": WRONG_ACCOUNT,
    "Job's account": WRONG_ACCOUNT,
    "Job's QOS": "the partition does not accept its qos; `scancel` the job, change qos, start again",
    "Nodes required for job are DOWN": "wait, ask an administrator, or choose another partition",
    "ReqNodeNotAvail": "wait, ask an administrator, or choose another partition",
    "AssocMaxJobsLimit": "your account runs as many jobs as it may; the job waits for others to end",
    "BeginTime": "SLURM starts a job again about two minutes after it ended",
}
"""Advice by the beginning of SLURM's reason why a job waits: for reasons that do not go away by themselves, and
for some that do."""


class QueueError(AblationsError, RuntimeError):
    """Error of SLURM: it is not installed, does not answer, or refuses a command."""


class NoAnswerError(QueueError):
    """Error that a command of SLURM did not end in time."""


class QueuedJob(NamedTuple):
    """Job of an array in the queue."""

    job: str
    """Number of the job, as in ``12_3``."""
    name: str
    element: int
    """Index of the job in the array."""
    state: str
    """State of the job, such as ``PENDING`` or ``RUNNING``."""
    reason: str
    """Reason why the job waits."""


def is_installed() -> bool:
    """Return whether this machine has the commands of SLURM."""
    return shutil.which("sbatch") is not None


def submit(options: Sequence[str], script: Path, *arguments: str) -> str:
    """Submit an array to the queue, and return its number.

    Raises:
        QueueError: SLURM refuses it or cannot be asked; nothing is in the queue then.
    """
    return _answer_of(submit_command(options, script, *arguments)).strip().partition(";")[0]


def submit_command(options: Sequence[str], script: Path, *arguments: str) -> list[str]:
    """Return the command that `submit` starts, without a shell."""
    return ["sbatch", "--parsable", *options, str(script), *arguments]


def queued_jobs() -> list[QueuedJob]:
    """Return the jobs of arrays that this user has in the queue, running ones included.

    Raises:
        QueueError: SLURM cannot be asked.
    """
    form = "--format=%F_%K|%K|%T|%r|%j"
    lines = _answer_of(["squeue", "--me", "--array", "--noheader", form]).splitlines()
    return [
        QueuedJob(job=job, name=name.strip(), element=int(element), state=state, reason=reason)
        for job, element, state, reason, name in (line.split("|", 4) for line in lines if line.count("|") >= 4)
        if element.isdigit()
    ]


def cancel(name: str) -> None:
    """Cancel all jobs with a name.

    Raises:
        QueueError: SLURM cannot be asked.
    """
    _answer_of(["scancel", "--me", f"--name={name}"])


def cancel_command(jobs: Iterable[QueuedJob]) -> str:
    """Return the command that cancels the arrays of these jobs, by their numbers: scancel heeds only the last of
    several names."""
    numbers = {int(job.job.partition("_")[0]) for job in jobs}
    return " ".join(["scancel", *map(str, sorted(numbers))])


def partitions() -> dict[str, Partition]:
    """Return the partitions of this cluster, by name. The default partition also has the name ""."""
    by_name: dict[str, Partition] = {}
    for line in _answer_of(["sinfo", "--noheader", "--exact", "--format=%P %D %l %c %m %G"]).splitlines():
        name, number, limit, cores, megabytes, resources = line.split(maxsplit=5)
        for partition in [name.removesuffix("*"), *([""] if name.endswith("*") else [])]:
            before = by_name.get(partition, Partition(0, limit, 0, 0, ()))
            by_name[partition] = Partition(
                nodes=before.nodes + int(number),
                time_limit=limit,
                cpus=max(before.cpus, int(cores)),
                memory=max(before.memory, int(megabytes)),
                gpus=(*before.gpus, gpus_of_node(resources)),
            )
    return dict(sorted(by_name.items()))


def largest_array() -> int:
    """Return the largest number of jobs of an array on this cluster; SLURM's default if it is not
    installed."""
    if not is_installed():
        return LARGEST_ARRAY
    size = re.search(r"^MaxArraySize\s*=\s*(\d+)", _answer_of(["scontrol", "show", "config"]), re.MULTILINE)
    return max(1, int(size[1])) if size else LARGEST_ARRAY


def _answer_of(command: list[str]) -> str:
    name = command[0]
    if (configuration := os.environ.get("SLURM_CONF")) and not Path(configuration).exists():
        # SLURM's commands would look for the file for a minute.
        raise QueueError(
            f"SLURM_CONF names {configuration}, which does not exist; name the slurm.conf of the cluster, or "
            "unset SLURM_CONF."
        )
    try:
        done = subprocess.run(
            command,
            env=environment(os.environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=SECONDS_TO_ANSWER,
        )
    except FileNotFoundError:
        raise QueueError(
            f"{name} is not on this machine, and `--on slurm` needs SLURM's commands; start `ablate` on a login "
            "node of the cluster, or leave `--on slurm` out."
        ) from None
    except subprocess.TimeoutExpired as error:
        printed = (error.stderr or b"").decode(errors="replace")  # bytes, also of a process whose output is text
        why = f" ({_reason(printed)})" if printed else ""  # sbatch tries again for minutes if the queue is full
        raise NoAnswerError(
            f"{name} did not answer within {SECONDS_TO_ANSWER:.0f} seconds{why}, so the state of the queue is "
            "unknown; give the same command again when `squeue` answers."
        ) from None
    if done.returncode:
        is_outside = "Could not establish a configuration source" in done.stderr  # this machine is in no cluster
        remedy = "; start it on a node of the cluster, or leave `--on slurm` out" if is_outside else ""
        raise QueueError(f"{name} refuses: {_reason(done.stderr)}{remedy}.")
    return done.stdout


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return environment variables without those that SLURM sets inside a job; KEPT_VARIABLES stay."""
    return {
        name: value for name, value in variables.items() if not name.startswith("SLURM_") or name in KEPT_VARIABLES
    }


def _reason(errors: str) -> str:
    """Return the error output of a command of SLURM as part of a sentence."""
    lines = [re.sub(r"^\w+: (error: )?", "", line.strip()) for line in errors.splitlines() if line.strip()]
    return "; ".join(dict.fromkeys(line.rstrip(". ") for line in lines)) or "it does not say why"


def require_partitions(place: PlaceFile[SlurmPlace]) -> None:
    """Raise a SpecError for partitions that the cluster lacks, and for jobs on more nodes than their partition
    has, with more cores, memory or GPUs than its nodes have, or for longer than it allows. SLURM would refuse
    such a job only after the text was prepared, or let it wait for ever."""
    jobs: dict[tuple[str, ...], Resources] = {(): place.content}
    jobs |= {("arms", name): place.content.of_arm(name) for name in place.content.arms}
    if not any(
        job.partition or job.nodes > 1 or job.cpus > 1 or job.memory or job.gpus or job.time_limit
        for job in jobs.values()
    ):
        return
    available = partitions()
    existing = [*filter(None, available)]
    for above, job in jobs.items():

        def refusal(setting: str, sentence: str, above: tuple[str, ...] = above) -> SpecError:
            path = (*above, setting)
            return place.refusal(path, f"{'.'.join(path)} {sentence}")

        names = (job.partition or "").split(",")
        unknown = [name for name in names if name not in existing]
        if job.partition is not None and existing and unknown:
            guessed = guess(unknown[0], existing)
            raise refusal("partition", f"must be {listed(existing)}, but is {shown(unknown[0])}{guessed}")
        of_job = [available[name] for name in names if name in available]
        if not of_job:
            continue
        gpus_available = max(gpus_of_type(gpus, job.gpu_type) for partition in of_job for gpus in partition.gpus)
        of_type = f"{job.gpu_type} GPUs" if job.gpu_type else "GPUs"
        for setting, needed, available_there, lack in (
            ("nodes", job.nodes, max(partition.nodes for partition in of_job), "the partition has no more nodes"),
            ("cpus", job.cpus, max(part.cpus for part in of_job), "no node of the partition has more cores"),
            ("gpus", job.gpus, gpus_available, f"no node of the partition has more {of_type}"),
        ):
            if needed > available_there:
                raise refusal(setting, f"must be at most {available_there:g}, because {lack}, but is {needed}")
        megabytes = max(partition.memory for partition in of_job)
        if job.memory is not None and megabytes_of(job.memory) > megabytes:
            sentence = (
                f"must be at most {megabytes}M, because no node of the partition has more, but is {job.memory}"
            )
            raise refusal("memory", sentence)
        longest = max((partition.time_limit for partition in of_job), key=seconds_of)
        may_exceed = job.time_limit is None or job.qos is not None  # some qos set aside the partition's limit
        if not may_exceed and seconds_of(str(job.time_limit)) > seconds_of(longest):
            sentence = f"must be at most {longest}, the limit of the partition, but is {job.time_limit}"
            raise refusal("time_limit", sentence)


def queue_in_words(jobs: Sequence[QueuedJob]) -> str:
    """Return a sentence on the jobs in the queue: how many run, are suspended and wait, and why they wait."""
    waiting = Counter(job.reason for job in jobs if job.state == "PENDING")
    suspended = sum(job.state == "SUSPENDED" for job in jobs)
    parts = [f"{len(jobs) - waiting.total() - suspended} at work"]
    if suspended:
        parts.append(f"{suspended} suspended (they go on when SLURM resumes them)")
    for reason, count in waiting.most_common():
        remedy = next((advice for begin, advice in WAITS.items() if reason.startswith(begin)), None)
        why = "" if reason == "None" else f" ({reason}{f': {remedy}' if remedy else ''})"
        parts.append(f"{count} waiting{why}")
    return f"in SLURM's queue: {', '.join(parts)}"
