"""The commands of SLURM: submit an array, look at the queue, cancel. No torch."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ablations.errors import AblationsError

SECONDS_TO_ANSWER = 60.0
LARGEST_ARRAY = 1001
"""SLURM's own default of MaxArraySize, where no cluster is at hand."""

KEPT = ("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT")
"""Variables of SLURM that its commands need. The others describe the job that our command is started in, if it is
one, and would be taken for options."""

WAITS_FOR_EVER = {
    "JobHeldUser": "`scontrol release` lets it start",
    "JobHeldAdmin": "an administrator held it; ask why",
    "job requeued in held state": "look into its log, then `scontrol release` lets it start",
    "launch failed requeued held": "look into its log, then `scontrol release` lets it start",
    "PartitionTimeLimit": "time_limit is above that of the partition; `scancel` the job, lower it, start again",
    "PartitionNodeLimit": "it asks for more nodes than the partition has; `scancel` it, lower nodes, start again",
    "PartitionConfig": "no node has what it asks for; `scancel` the job, lower cpus, gpus or memory, start again",
    "PartitionDown": "the partition is down; wait, or choose another",
    "PartitionInactive": "the partition is inactive; wait, or choose another",
    "BadConstraints": "no node has its constraint; `scancel` it, change constraint, start again",
    "AccountNotAllowed": "the partition does not take its account; `scancel` it, change account, start again",
    "AssocMaxJobsLimit": "your account may run no more jobs at once; it waits for others to end",
    "BeginTime": "SLURM starts a job again about two minutes after it ended",
}
"""What to do about jobs that wait for a reason that does not go away by itself, and what looks so."""


class QueueError(AblationsError, RuntimeError):
    """SLURM is not installed, does not answer, or refuses."""


class QueuedJob(NamedTuple):
    """Job of an array in the queue."""

    job: str
    """Its number, as in ``12_3``."""
    name: str
    element: int
    """Its place in the array."""
    state: str
    """As in ``PENDING`` or ``RUNNING``."""
    reason: str
    """Reason why it waits."""

    @property
    def waits(self) -> bool:
        """Return whether the job has yet to start."""
        return self.state == "PENDING"


def is_installed() -> bool:
    """Return whether this machine has the commands of SLURM."""
    return shutil.which("sbatch") is not None


def submit(options: Sequence[str], script: Path, *arguments: str) -> str:
    """Put an array into the queue; returns its number.

    Raises:
        QueueError: SLURM refuses it or cannot be asked; nothing is in the queue then.
    """
    return _answer(submit_command(options, script, *arguments)).strip().partition(";")[0]


def submit_command(options: Sequence[str], script: Path, *arguments: str) -> list[str]:
    """Return the command that `submit` starts, without a shell."""
    return ["sbatch", "--parsable", *options, str(script), *arguments]


def jobs() -> list[QueuedJob]:
    """Return the jobs of arrays that this user has in the queue, running ones included.

    Raises:
        QueueError: SLURM cannot be asked.
    """
    form = "--format=%F_%K|%K|%T|%r|%j"
    lines = [
        line.split("|", 4) for line in _answer(["squeue", "--me", "--array", "--noheader", form]).splitlines()
    ]
    return [
        QueuedJob(job=job, name=name.strip(), element=int(element), state=state, reason=reason)
        for job, element, state, reason, name in (line for line in lines if len(line) == 5)
        if element.isdigit()
    ]


def cancel(name: str) -> None:
    """Take the jobs of a name out of the queue.

    Raises:
        QueueError: SLURM cannot be asked.
    """
    _answer(["scancel", "--me", f"--name={name}"])


def partitions() -> list[str]:
    """Return the names of the partitions of this cluster."""
    return sorted(set(_answer(["sinfo", "--noheader", "--format=%R"]).split()))


def largest_array() -> int:
    """Return the most jobs that an array of this cluster may have; SLURM's default where none is installed."""
    if not is_installed():
        return LARGEST_ARRAY
    size = re.search(r"^MaxArraySize\s*=\s*(\d+)", _answer(["scontrol", "show", "config"]), re.MULTILINE)
    return max(1, int(size[1])) if size else LARGEST_ARRAY


def _answer(command: list[str]) -> str:
    name = command[0]
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
            f"{name} is not on this machine, and `--on slurm` needs SLURM's commands; start it on a login node of "
            "the cluster, or leave `--on slurm` out."
        ) from None
    except subprocess.TimeoutExpired:
        raise QueueError(
            f"{name} did not answer within {SECONDS_TO_ANSWER:.0f} seconds, so nobody knows what is in the queue; "
            "start the same command again when `squeue` answers."
        ) from None
    if done.returncode:
        raise QueueError(f"{name} refuses: {_reason(done.stderr)}.")
    return done.stdout


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables without those of a job that the command itself is started in."""
    return {name: value for name, value in variables.items() if not name.startswith("SLURM_") or name in KEPT}


def _reason(errors: str) -> str:
    """Return what a command of SLURM said, as part of a sentence."""
    lines = [re.sub(r"^\w+: (error: )?", "", line.strip()) for line in errors.splitlines() if line.strip()]
    return "; ".join(dict.fromkeys(line.rstrip(". ") for line in lines)) or "it does not say why"
