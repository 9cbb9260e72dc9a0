"""Records of plan.json and of the files of runs, as they are written and as they are read, and of looks at claims.
No torch.

looks.json says how many seeds each arm has so far, and which looks were taken. It is written before the first run,
and when a look has been taken. A command that ends before that takes the same look again.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from ablations.errors import ResultsError, SpecError
from ablations.spec.experiment import Experiment, Run, SeedsUntilDecided
from ablations.spec.figures import PublishedPoint
from ablations.wording import listed, several
from lightning_modules.files import make_folder, read_json, write_json
from lightning_modules.provenance import now
from lightning_modules.training.run_directory import Checkpoint
from lightning_modules.training.run_directory import RunState as RunState  # for reports
from lightning_modules.training.run_directory import checksum as checksum

LOOKS_FILE = "looks.json"
"""Name of the record in the experiment's folder."""

RUNS_FILE = "runs.parquet"
"""Name of the file in a published folder that has the records of all its runs."""


class Record(BaseModel):
    """Base of the records: a key that a later version adds is ignored, and one that is left out is None."""

    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True)


class DataRecord(Record):
    """The text that an experiment trains on."""

    address: str | None = None
    content_sha256: str | None = None
    description: str | None = None
    train_sentences: int | None = None
    validation_sentences: int | None = None
    train_tokens: int | None = None
    vocab_size: int | None = None
    cut: dict[str, int] = {}
    """Number of sentences longer than the settings allow, of which the rest was dropped, by what they are, as in
    ``translation to train on``."""


class Machine(Record):
    """The machine that a run ran on."""

    platform: str | None = None
    cpu: str | None = None
    cores: int | None = None
    gpus: list[str] = []


class Move(Record):
    """A resume of a run on another kind of machine, or with other versions or devices."""

    at: str | None = None
    changed: list[str] = []
    """Each as `torch 2.12.0 there, torch 2.13.0 here`."""


class Provenance(Record):
    """provenance.json of a run."""

    commit: str | None = None
    dirty: bool | None = None
    versions: dict[str, str | None] = {}
    machine: Machine = Machine()
    devices: Any = None
    threads: Any = None
    started: str | None = None
    finished: str | None = None
    moved_from: list[Move] = []
    """Where the run went on on another kind of machine."""


class RunSettingsRecord(Record):
    """run.json of a run, as far as a page needs it."""

    settings: dict[str, Any] = {}
    tokens: str | None = None
    """Address of the token store that the run reads."""


class Analysed(Record):
    """A model that was trained elsewhere and measured by `ablate analyse`, in place of a run's folder."""

    settings: dict[str, Any] = {}
    provenance: Provenance = Provenance()


class RunRecord(Record):
    """A run of a plan, with its state and cost."""

    run_id: str
    folder: str
    """Name of its folder under OUT/runs; its arm's name there may be that of another experiment."""
    arm: str
    seed: int
    state: str = "planned"
    measures: int | None = None
    """Of a trained run, the number of measures that are asked for; those of tasks count once a task."""
    not_measured: list[str] | None = None
    """Of a trained run, the measures that it lacks, as ``baselines mrpc``; None where the plan does not say."""
    refused: dict[str, str] = {}
    """Reasons why measures that it lacks were refused when they were tried, by name."""
    checkpoint: Checkpoint | None = None
    """Of a trained run, the state of its last checkpoint."""
    max_steps: int | None = None
    tokens: int | None = None
    parameters: int | None = None
    flops: float | None = None
    seconds: float | None = None
    """Estimated seconds of what is to be done: training, and all the rest where that is known; None if unknown."""
    analysed: Analysed | None = None

    @property
    def is_to_train(self) -> bool:
        """Return whether the run will be trained: it never was, or it lacks both a measure and its checkpoint."""
        return self.not_measured is None or bool(self.not_measured and self.checkpoint != "whole")

    @property
    def is_open(self) -> bool:
        """Return whether the run is still to be trained or measured."""
        return self.not_measured is None or bool(self.not_measured)

    @property
    def label(self) -> str:
        """Return arm and seed of the run for a sentence."""
        return f"{self.arm} (seed {self.seed})"


class TrialRecord(Record):
    """A trial of a tuned arm."""

    values: dict[str, Any]
    """Tried values of the tuned settings, by dotted path."""
    run_ids: list[str]
    """Identities of its runs, one for each seed of the trials."""
    losses: list[float | None]
    """Validation loss of each of them after its last step, in nats; None where training diverged."""

    @property
    def loss(self) -> float | None:
        """Return the mean of the losses; None where one diverged."""
        ended = [loss for loss in self.losses if loss is not None]
        return sum(ended) / len(ended) if len(ended) == len(self.losses) else None


class TunedArm(Record):
    """Trials of an arm that have ended, and what they chose."""

    arm: str
    trials: list[TrialRecord] = []
    open_trials: int = 0
    """Trials that are known and have not ended."""
    chosen: dict[str, Any] | None = None
    """Values with the lowest loss, which the arm has in its runs; None before all its trials have ended."""
    at_edge: list[str] = []
    """Settings of which the chosen value is the smallest or the largest that was tried."""


class Tuning(Record):
    """tuned.json: the search for each arm's settings."""

    settings: dict[str, Any]
    """Values, or the range of values, that were searched, by the dotted path of the setting."""
    seeds: list[int]
    part_of_steps: float
    budget: int | None = None
    arms: list[TunedArm]

    @property
    def chosen(self) -> dict[str, dict[str, Any]]:
        """Return the values of each arm that is tuned to the end."""
        return {tuned.arm: tuned.chosen for tuned in self.arms if tuned.chosen is not None}


class Look(Record):
    """Look at the claims with a number of seeds."""

    seeds: int
    """Seeds of each arm that counted: the first of them all."""
    arms: list[str]
    """Arms of which so many seeds were trained and measured."""
    taken: str | None = None
    """Time of the look."""
    futile: list[str] = []
    """Claims that were given up at it, as the seeds that are left would hardly decide them."""


class Looks(Record):
    """looks.json: looks at the claims, between which seeds are added."""

    all_seeds: list[int]
    """Every seed that an arm may get, in order."""
    sizes: list[int]
    """Number of seeds at each look that may be taken, fixed before the first run."""
    seeds_of: dict[str, int]
    """Number of seeds that each arm has or is to get now."""
    taken: list[Look] = []

    def sizes_of(self, arms: Collection[str]) -> list[int]:
        """Return the sizes of the looks that were taken with all of some arms, the smallest first."""
        looked_at: dict[int, set[str]] = {}
        for look in self.taken:
            looked_at.setdefault(look.seeds, set()).update(look.arms)
        return [size for size in self.sizes if set(arms) <= looked_at.get(size, set())]

    def next_size(self, size: int) -> int | None:
        """Return the number of seeds at the look after one; None after the last."""
        return next((later for later in self.sizes if later > size), None)


class RunStatus(NamedTuple):
    """A run with how far its training is."""

    record: RunRecord
    progress: RunState

    def fields(self) -> dict[str, Any]:
        """Return both as one object, ready for JSON."""
        return self.record.model_dump(exclude_unset=True) | self.progress.model_dump(exclude_unset=True)


class PlannedClaims(Record):
    """A file of claims as the plan knows it."""

    name: str
    """Name of the file without its ending."""
    planned: str | None = None
    """Time when it was first planned with this experiment."""
    planned_sha256: str | None = None
    """Hash of the file as it was then."""
    planned_claims: dict[str, str] = {}
    """Hash of each of its claims as it was then."""
    runs_before: int | None = None
    """Runs of the experiment that had started by then: what was claimed after them is no prediction."""


class Plan(Record):
    """plan.json: the runs of an experiment, their state and their cost."""

    experiment: str
    question: str | None = None
    spec_sha256: str | None = None
    given: list[str] = []
    """Settings that a command line laid over the spec, each with what the spec says."""
    changed_from: str | None = None
    """Name that the experiment has without them."""
    created: str | None = None
    claims: list[str] = []
    claim_files: list[PlannedClaims] = []
    published: list[PublishedPoint] = []
    """Points of published curves, for figures."""
    described: dict[str, str] = {}
    """Descriptions of the measures of one's own, by name."""
    figures: dict[str, dict[str, str]] = {}
    """Figures of one's own by name, each with the path and the hash of its file."""
    arms: list[str]
    data: DataRecord = DataRecord()
    runs: list[RunRecord]
    pairs_to_compare: int | None = None
    """Pairs of runs whose distance is asked for and not measured; None where the plan does not say."""
    left_out: list[str] = []
    """Kinds of measures whose time is unknown and not in the seconds."""
    notes: list[str] = []
    """Sentences about the numbers of the plan."""
    notices: list[str] = []
    """Sentences that a reader of the page must know: measures that are not run, and why."""
    warnings: list[str] = []
    """Sentences about what the spec may say and probably does not mean."""
    tuning: Tuning | None = None
    """Search for the arms' settings, where the spec asks for one."""
    trials: list[RunRecord] = []
    """Runs of the trials that have not ended, as far as these are chosen."""
    looks: Looks | None = None
    """Looks at the claims, where seeds are added until these are decided."""
    seconds: float | None = None
    """Estimated seconds until all that is to be done has ended; None if unknown."""


def looks_of(experiment: Experiment, *, arms: Sequence[str], folder: Path) -> Looks | None:
    """Return the looks that were taken and the seeds of each arm; None for a spec with a fixed list of seeds.

    Args:
        arms: all arms of the experiment. One that was added since has the seeds of the first look.
        folder: of the experiment's results.

    Raises:
        SpecError: the runs have begun, and the spec now has other seeds.
        ResultsError: looks.json is damaged.
    """
    seeds = experiment.seeds
    if not isinstance(seeds, SeedsUntilDecided):
        return None
    fresh = Looks(all_seeds=list(seeds.all), sizes=list(seeds.looks), seeds_of=dict.fromkeys(arms, seeds.looks[0]))
    path = folder / LOOKS_FILE
    if not path.exists():
        return fresh
    try:
        kept = Looks.model_validate(read_json(path))
    except (ValueError, ValidationError) as error:
        raise ResultsError(
            f"{path} cannot be read; delete it, and `ablate run` takes the looks again, with the same results."
        ) from error
    if (kept.all_seeds, kept.sizes) != (fresh.all_seeds, fresh.sizes):
        raise SpecError(
            f"seeds: the runs began with looks at {listed([str(size) for size in kept.sizes], 'and')} seeds, the "
            f"first of them {kept.all_seeds[0]}, and others would change the error rate; write the seeds as they "
            "were, or give the experiment another name and another start."
        )
    return kept.model_copy(update={"seeds_of": fresh.seeds_of | kept.seeds_of})


def runs_so_far(looks: Looks, runs: Iterable[Run]) -> tuple[Run, ...]:
    """Return the runs of the seeds that each arm has so far."""
    place = {seed: number for number, seed in enumerate(looks.all_seeds)}
    return tuple(run for run in runs if place[run.seed] < looks.seeds_of[run.arm])


def look_due(looks: Looks, *, ended: Collection[str]) -> Look | None:
    """Return the look that is to be taken now; None where every arm that ended was looked at with its seeds.

    Args:
        ended: arms of which every run so far is trained and measured.
    """
    for size in looks.sizes:
        arms = [arm for arm in ended if looks.seeds_of[arm] == size and size not in looks.sizes_of([arm])]
        if arms:
            return Look(seeds=size, arms=arms, taken=now())
    return None


def with_look(looks: Looks, look: Look) -> Looks:
    """Return the looks with another one."""
    return looks.model_copy(update={"taken": [*looks.taken, look]})


def with_more_seeds(looks: Looks, *, seeds_of: Mapping[str, int], futile: Sequence[str]) -> Looks:
    """Return the looks after the last one, with the seeds that arms get.

    Args:
        seeds_of: arms of open claims with their seeds at the next look; no arm loses seeds.
        futile: claims that are given up at the last look.
    """
    more = {arm: max(seeds, looks.seeds_of[arm]) for arm, seeds in seeds_of.items()}
    taken = list(looks.taken)
    if futile:
        taken[-1] = taken[-1].model_copy(update={"futile": [*taken[-1].futile, *futile]})
    return looks.model_copy(update={"taken": taken, "seeds_of": looks.seeds_of | more})


def write_looks(looks: Looks, folder: Path) -> None:
    """Write looks.json into an experiment's folder."""
    make_folder(folder)
    write_json(folder / LOOKS_FILE, looks.model_dump(mode="json"))


def looks_in_words(looks: Looks) -> str:
    """Return a sentence on how many seeds are planned, and may be."""
    arms_with = {size: sum(seeds == size for seeds in looks.seeds_of.values()) for size in looks.sizes}
    so_far = [f"{size} for {several(arms, 'arm')}" for size, arms in arms_with.items() if arms]
    return (
        f"seeds: planned so far are {listed(so_far, 'and')}; the claims are looked at with "
        f"{listed([str(size) for size in looks.sizes], 'and')} seeds, and arms of open claims get more, which "
        f"makes {several(looks.sizes[-1] * len(looks.seeds_of), 'run')} at most."
    )
