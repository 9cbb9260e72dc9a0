"""Settings in the file of `--place`: resources of jobs of SLURM or of runs on Ray, and runs of a job. No
torch."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf
from pathlib import Path
from typing import Annotated, Any, Generic, NamedTuple, Self, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, model_validator

from ablations import yamlfile
from ablations.errors import Fault, KeyPath, SpecError, SpecProblems
from ablations.messages import faults, validated
from ablations.wording import guess, shown
from lightning_modules.config import Settings
from lightning_modules.config.settings import sentence_error


def _form(pattern: str, expected: str, remedy: str = "") -> AfterValidator:
    """Return a check that a text matches a pattern; its error says what is expected."""

    def checked(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(f"must be {expected}, but is {shown(text)}{remedy}")
        return text

    return AfterValidator(checked)


def _digits(value: Any) -> Any:
    """Return a whole number as text, so that the error about its form follows, and not one about quotes."""
    return str(value) if type(value) is int else value


def seconds_of(time_limit: str) -> float:
    """Return a time limit in seconds, as in ``2-00:00:00`` or ``30:00``. One of 0, or in words as ``infinite``, is
    no limit."""
    days, _, clock = time_limit.rpartition("-")
    if not re.fullmatch(r"[0-9:]+", clock):
        return inf
    hours, minutes, seconds = map(int, f"0:0:{clock}".split(":")[-3:])
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds or inf


SECONDS_BESIDE_SAVING = 90
"""Least seconds of a job besides those to save: SLURM may warn of the limit a minute early, and a worker needs
some time to start."""

_NAME = r"[A-Za-z0-9][A-Za-z0-9_.,:&|*+@-]*"
_FEATURES = r"[A-Za-z0-9\[(][A-Za-z0-9_.,:&|*+@()\[\]-]*"  # names with signs that combine them: [a100|v100]
_LIMIT = r"([0-9]+-)?[0-9]{1,3}:[0-5][0-9]:[0-5][0-9]"
Word = Annotated[str, _form(_NAME, "a name that SLURM accepts", "; write it without spaces")]
Constraint = Annotated[str, _form(_FEATURES, "features that SLURM accepts", "; write them without spaces")]
TimeLimit = Annotated[
    str, BeforeValidator(_digits), _form(_LIMIT, "hours:minutes:seconds, as in 12:00:00 or 2-00:00:00")
]
Memory = Annotated[str, BeforeValidator(_digits), _form(r"[1-9][0-9]*[MGT]", "a number with M, G or T, as in 16G")]


def megabytes_of(memory: str) -> int:
    """Return an amount of memory, as in ``16G``, in the megabytes of SLURM and Ray, which have 2**20 bytes."""
    return int(memory[:-1]) * {"M": 1, "G": 2**10, "T": 2**20}[memory[-1]]


class Resources(Settings):
    """Resources of a job of SLURM, and the number of runs that share them."""

    partition: Word | None = None
    """Queue of the cluster; None is its default."""
    account: Word | None = None
    """Account that the job is charged to."""
    qos: Word | None = None
    """Quality of service, where the cluster has several."""
    constraint: Constraint | None = None
    """Feature that nodes must have, as in `a100` or `[a100|v100]`."""
    time_limit: TimeLimit | None = None
    """Longest time of a job, as in `12:00:00`; a longer run goes on in the next job. None is the limit of the
    partition, and `0:00:00` is no limit."""
    nodes: int = Field(1, ge=1)
    """Number of nodes of a job. With more than one, a job trains a single run on all of them."""
    gpus: int = Field(0, ge=0)
    """Number of GPUs of a job, on each of its nodes."""
    gpu_type: Word | None = None
    """Type of the GPUs, as the cluster names it."""
    cpus: int = Field(1, ge=1)
    """Number of cores of a job, on each of its nodes; its runs share them."""
    memory: Memory | None = None
    """Memory of a job, on each of its nodes, as in `16G`; None is the default of the partition."""
    devices: int = Field(1, ge=1)
    """Number of processes that train a run, on each node (DDP). Each has a GPU if the job has GPUs."""
    runs_at_once: int = Field(1, ge=1)
    """Number of runs that a job trains at the same time. If they are more than its GPUs, they share the
    GPUs."""
    runs_per_job: int | None = Field(None, ge=1)
    """Total number of runs of a job; None is as many as it trains at once."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.nodes > 1 and max(self.runs_at_once, self.runs_per_job or 1) > 1:
            raise ValueError(
                f"a job on several nodes trains only one run, but nodes is {self.nodes} and runs_at_once or "
                "runs_per_job is above 1; set both to 1"
            )
        if self.runs_per_job is not None and self.runs_per_job < self.runs_at_once:
            raise ValueError(
                f"runs_per_job must be at least runs_at_once = {self.runs_at_once}, but is {self.runs_per_job}"
            )
        processes = self.devices * self.runs_at_once
        if self.gpus and self.devices > 1 and processes > self.gpus:
            raise ValueError(
                f"gpus must be at least devices times runs_at_once = {processes}, but is {self.gpus}; "
                "runs of several devices share no GPU"
            )
        return self

    def options(self) -> list[str]:
        """Return the options of sbatch for these resources, each as one word of the command line."""
        tasks = self.devices if self.nodes > 1 else 1
        gpu = f"gpu:{self.gpu_type}" if self.gpu_type else "gpu"
        options = {
            "partition": self.partition,
            "account": self.account,
            "qos": self.qos,
            "constraint": self.constraint,
            "time": self.time_limit,
            "nodes": self.nodes,
            "ntasks-per-node": tasks,
            "cpus-per-task": max(1, self.cpus // tasks),
            "mem": self.memory,
            "gres": f"{gpu}:{self.gpus}" if self.gpus else None,
        }
        return [f"--{name}={value}" for name, value in options.items() if value is not None]


class SlurmPlace(Resources):
    """Content of the file of `--place` for SLURM."""

    arms: dict[str, Resources] = Field(default_factory=dict)
    """Other resources for runs of some arms, by the name of the arm; resources that are not written stay.
    They also hold for the arms that a grid makes of it and for the trials of its search, unless those are
    named themselves."""
    jobs_at_once: int | None = Field(None, ge=1)
    """Largest number of jobs of an array that run at the same time; None is what the cluster allows."""
    tries: int = Field(3, ge=1)
    """Number of attempts without progress after which a job gives up. Attempts with progress do not count."""
    seconds_to_save: int = Field(120, ge=10)
    """Seconds before the time limit at which the runs of a job are asked to save."""
    before: str | None = None
    """Shell file that each job reads first, as in `cluster.sh`; the path is relative to the folder of this
    file."""

    @model_validator(mode="after")
    def _jobs_have_time(self) -> Self:
        limits: dict[KeyPath, str | None] = {("time_limit",): self.time_limit}
        limits |= {("arms", name, "time_limit"): arm.time_limit for name, arm in self.arms.items()}
        least = self.seconds_to_save + SECONDS_BESIDE_SAVING
        for path, limit in limits.items():
            if limit is not None and seconds_of(limit) < least:
                sentence = (
                    f"{'.'.join(map(str, path))} must be at least {least} seconds, {SECONDS_BESIDE_SAVING} more "
                    f"than seconds_to_save, because SLURM may warn of it a minute early, but is {limit}; raise "
                    "it, or lower seconds_to_save"
                )
                raise sentence_error(sentence, at=path)
        return self

    def of_arm(self, arm: str) -> Resources:
        """Return the resources of the runs of an arm."""
        return Resources(**_of_arm(self, Resources, self.arms, arm))


class RayResources(Settings):
    """Resources of a run on Ray, on each of its nodes."""

    nodes: int = Field(1, ge=1)
    """Number of nodes of a run."""
    cpus: int = Field(1, ge=1)
    """Number of cores of a run, on each of its nodes; its processes there share them."""
    gpus: float = Field(0, ge=0)
    """Number of GPUs of a run, on each of its nodes. Runs with a fraction, as 0.25, share a GPU."""
    gpu_type: Word | None = None
    """Type of the GPUs, as Ray names it: `A100`."""
    memory: Memory | None = None
    """Memory of a run, on each of its nodes, as in `16G`. Ray places runs by it, but does not limit them to
    it."""
    devices: int = Field(1, ge=1)
    """Number of processes that train a run, on each node (DDP). Each has a GPU if the run has GPUs."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.nodes > 1 and self.gpus != int(self.gpus):
            raise ValueError(f"gpus must be a whole number on several nodes, but is {self.gpus:g}")
        if self.gpus > 1 and self.gpus != int(self.gpus):
            raise ValueError(f"gpus above 1 must be a whole number, but is {self.gpus:g}")
        if self.gpus and self.devices > 1 and self.gpus < self.devices:
            raise ValueError(
                f"gpus must be at least devices = {self.devices}, but is {self.gpus:g}; runs of several devices "
                "share no GPU"
            )
        return self

    def of_job(self) -> Resources:
        """Return the resources that the worker of a run reads. A part of a GPU counts as a GPU. GPU type and
        memory, which only Ray needs, are left out."""
        return Resources(nodes=self.nodes, cpus=self.cpus, gpus=ceil(self.gpus), devices=self.devices)

    def needs(self) -> dict[str, float]:
        """Return the resources that a node must have, by Ray's names; memory in bytes. Resources of amount 0
        are left out."""
        needs = {"CPU": float(self.cpus), "GPU": float(self.gpus)}
        if self.memory is not None:
            needs["memory"] = float(megabytes_of(self.memory) * 2**20)
        if self.gpu_type is not None:
            needs[f"accelerator_type:{self.gpu_type}"] = 0.001  # the amount that Ray itself asks for
        return {name: amount for name, amount in needs.items() if amount}


class RayPlace(RayResources):
    """Content of the file of `--place` for Ray."""

    arms: dict[str, RayResources] = Field(default_factory=dict)
    """Other resources for runs of some arms, as for SLURM."""
    address: str = "auto"
    """Address of the cluster, as in `10.0.0.1:6379`; `auto` is the cluster that this machine is a node of."""
    tries: int = Field(3, ge=1)
    """Number of attempts without progress after which a run is given up. Attempts with progress do not
    count."""

    def of_arm(self, arm: str) -> RayResources:
        """Return the resources of the runs of an arm."""
        return RayResources(**_of_arm(self, RayResources, self.arms, arm))


def _of_arm(place: Settings, kind: type[Settings], arms: Mapping[str, Settings], arm: str) -> dict[str, Any]:
    """Return the resources of an arm by their names: those of the whole file with the changes for this arm."""
    entry = _entry(arms, arm)
    changes = kind() if entry is None else arms[entry]
    shared = {name: getattr(place, name) for name in kind.model_fields}
    return shared | {name: getattr(changes, name) for name in changes.model_fields_set}


def _entry(arms: Mapping[str, Settings], arm: str) -> str | None:
    """Return the longest name in `arms` that an arm's name begins with; None if there is none."""
    names = [name for name in arms if f"{arm},".startswith(f"{name},")]
    return max(names, key=len, default=None)


AnyPlace = TypeVar("AnyPlace", SlurmPlace, RayPlace)


@dataclass(frozen=True)
class PlaceFile(Generic[AnyPlace]):
    """File of `--place`, with its content."""

    path: Path | None
    """Path of the file; None if there is none, and the cluster's defaults hold."""
    content: AnyPlace
    document: yamlfile.Document | None = None
    """Lines and columns of the settings."""

    def refusal(self, setting: KeyPath, sentence: str) -> SpecError:
        """Return the error that a setting of the file does not fit the cluster. Without a file, it is about
        `--on`."""
        if self.document is None:
            return SpecError(f"--on {'slurm' if isinstance(self.content, SlurmPlace) else 'ray'}: {sentence}")
        return SpecProblems((self.document.problem(setting, sentence, at="value"),))

    def path_of(self, setting: str, arm: str) -> KeyPath:
        """Return the path of the setting that decides for an arm: in the arm's entry, or at the top of the file if
        the entry does not have it."""
        entry = _entry(self.content.arms, arm)
        if entry is not None and setting in self.content.arms[entry].model_fields_set:
            return "arms", entry, setting
        return (setting,)

    @property
    def before(self) -> Path | None:
        """Return the path of the shell file that each job of SLURM reads first; None if there is none."""
        if self.path is None or not isinstance(self.content, SlurmPlace) or self.content.before is None:
            return None
        return self.path.parent / self.content.before


def load(path: Path | None, kind: type[AnyPlace], *, arms: Sequence[str]) -> PlaceFile[AnyPlace]:
    """Return the content of a file of `--place`; without a file, the defaults of the cluster.

    Args:
        kind: class of the content.
        arms: names of the experiment's arms, which the file may name.

    Raises:
        SpecProblems: the file has problems, or names a file in `before` that is not there; the error has all
            problems, with line and column.
    """
    if path is None:
        return PlaceFile(None, kind())
    document = yamlfile.read(path, example="partition: gpu" if kind is SlurmPlace else "address: auto")
    place, problems = validated(document, kind)
    arm_faults: list[Fault] = []
    for name in place.arms if place else ():
        if name not in arms:
            sentence = f"a name in arms must be the name of an arm, but is {shown(name)}{guess(name, arms)}"
            arm_faults.append(Fault(("arms", name), sentence, "key"))
            continue
        try:
            place.of_arm(name)  # type: ignore[union-attr]
        except ValidationError as error:
            arm_faults += [Fault(("arms", name), fault.sentence) for fault in faults(error, kind)]
    problems.update(document.problems_of(arm_faults))
    if problems or place is None:
        raise SpecProblems(tuple(sorted(problems)))
    file = PlaceFile(path, place, document)
    if file.before is not None and not file.before.is_file():
        raise file.refusal(
            ("before",),
            f"the file of `before`, {file.before}, does not exist; correct its name, or delete `before`",
        )
    return file


class Partition(NamedTuple):
    """Partition of a SLURM cluster."""

    nodes: int
    """Number of nodes."""
    time_limit: str
    """Longest time as SLURM writes it, as in ``1-00:00:00`` or ``30:00``; ``infinite`` is no limit."""
    cpus: int
    """Number of cores of the node that has most."""
    memory: int
    """Memory of the node that has most, in megabytes."""
    gpus: tuple[Mapping[str, float], ...]
    """For each kind of node, the number of GPUs by their type; see `gpus_of_node`."""


def gpus_of_node(resources: str) -> dict[str, float]:
    """Return the number of GPUs of a node by their type, in lower case, or "" without a type.

    Args:
        resources: generic resources as `sinfo` writes them, as in ``gpu:a100:4(S:0-1),shard:8``. An entry of
            GPUs in another form counts as any number of GPUs of any type.
    """
    gpus: dict[str, float] = {}
    for entry in re.sub(r"\([^)]*\)", "", resources.lower()).split(","):
        kind, _, rest = entry.partition(":")
        name, _, count = rest.rpartition(":")
        if kind == "gpu":
            name, number = (name, float(count)) if count.isdecimal() else ("", inf)
            gpus[name] = gpus.get(name, 0) + number
    return gpus


def gpus_of_type(gpus: Mapping[str, float], name: str | None) -> float:
    """Return how many GPUs of a type a node may have; without a type, how many of all types. GPUs of a node that
    names no type may be of any."""
    return sum(gpus.values()) if name is None else gpus.get(name.lower(), 0) + gpus.get("", 0)
