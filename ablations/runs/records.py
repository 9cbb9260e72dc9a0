"""Records in plan.json, tuned.json, looks.json and the files of runs. No torch.

A look is an interim analysis of the claims. After it, arms of claims without a verdict may get more seeds.
looks.json says how many seeds each arm has so far, and which looks were taken. It is written before the first
run and after each look. If a command ends before that, the next one takes the same look again.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from ablations.errors import ResultsError, SpecError
from ablations.spec.experiment import Experiment, Run, SeedsUntilDecided
from ablations.spec.figures import PublishedPoint
from ablations.wording import listed, several
from lightning_modules.files import make_folder, may_exist, write_json
from lightning_modules.files import read_file as read_file  # for reports
from lightning_modules.files import read_json as read_json  # for reports
from lightning_modules.files import unreadable as unreadable  # for reports
from lightning_modules.provenance import utc_now
from lightning_modules.training.run_directory import Checkpoint
from lightning_modules.training.run_directory import RunDirectory as RunDirectory  # for reports
from lightning_modules.training.run_directory import RunState as RunState
from lightning_modules.training.run_directory import checksum as checksum

LOOKS_FILE = "looks.json"
"""Name of the file with the looks, in the folder of an experiment's results."""

RUNS_FILE = "runs.parquet"
"""Name of the file with the records of all runs, in a published folder."""

PUBLISHED_PROVENANCE = "provenance.json"
"""Name of the file with commits, versions, machines and dates, which every published folder has."""


PLAN_AGAIN = "restore it, or delete it and start `ablate run` again, which dates the claims anew"
"""What a user should do about a damaged plan.json."""


class Record(BaseModel):
    """Base class of the records. A key that a later version adds is ignored, and a key that is missing has
    its default."""

    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True)


class DataRecord(Record):
    """The text that an experiment trains on."""

    address: str | None = None
    content_sha256: str | None = None
    description: str | None = None
    train_sentences: int | None = None
    validation_sentences: int | None = None
    validation_in_training: int | None = None
    """Number of sentences to validate on that are also in the training text. None if they were not counted."""
    train_tokens: int | None = None
    vocab_size: int | None = None
    cut: dict[str, int] = {}
    """Number of sentences that were longer than the settings allow and lost their end, by side and use, as in
    ``translation to train on``."""


class Machine(Record):
    """The machine that a run ran on."""

    platform: str | None = None
    cpu: str | None = None
    cores: int | None = None
    gpus: list[str] = []


class Move(Record):
    """Resume of a run on another kind of machine, or with other versions or devices."""

    at: str | None = None
    changed: list[str] = []
    """Differences, each as `torch 2.12.0 there, torch 2.13.0 here`."""


class Provenance(Record):
    """Content of provenance.json of a run."""

    commit: str | None = None
    dirty: bool | None = None
    versions: dict[str, str | None] = {}
    machine: Machine = Machine()
    devices: Any = None
    threads: Any = None
    started: str | None = None
    finished: str | None = None
    moved_from: list[Move] = []
    """Resumes of the run on other kinds of machines."""


class RunSettingsRecord(Record):
    """Content of run.json of a run, as far as a page needs it."""

    settings: dict[str, Any] = {}
    tokens: str | None = None
    """Address of the token store that the run reads."""


class Analysed(Record):
    """Settings and provenance of a model that `ablate analyse` measured, which has no folder of a run."""

    settings: dict[str, Any] = {}
    provenance: Provenance = Provenance()


class RunRecord(Record):
    """Run of a plan, with its state and cost."""

    run_id: str
    folder: str
    """Name of the run's folder under OUT/runs. If experiments share the run, the name may hold an arm of
    another experiment."""
    arm: str
    seed: int
    state: str = "planned"
    measures: int | None = None
    """Number of requested measures of a trained run; measures of tasks count once for each task. None if it
    is unknown."""
    not_measured: list[str] | None = None
    """Measures that a trained run lacks, as ``baselines mrpc``; None if the run is not trained or this is
    unknown."""
    refused: dict[str, str] = {}
    """Reasons why missing measures were refused when they were last tried, by name of the measure."""
    checkpoint: Checkpoint | None = None
    """State of the last checkpoint of a trained run; None if it is unknown."""
    max_steps: int | None = None
    tokens: int | None = None
    parameters: int | None = None
    flops: float | None = None
    seconds: float | None = None
    """Estimated seconds of training, and of start, validations and measures if that is known; None if
    unknown."""
    analysed: Analysed | None = None
    unreadable: str | None = None
    """Sentences on the files of the run that are damaged or cannot be read. Such a run is left alone; see
    `plan.unreadable`."""
    without_settings: bool = False
    """Whether every trial of the arm diverged, so that the run is neither trained nor measured."""

    @property
    def is_to_train(self) -> bool:
        """Return whether the run will be trained: it is not trained yet, or it lacks a measure and its
        checkpoint is not whole."""
        return self.is_open and not (self.not_measured and self.checkpoint == "whole")

    @property
    def is_open(self) -> bool:
        """Return whether the run is still to be trained or measured."""
        if self.without_settings or self.unreadable is not None:
            return False
        return self.not_measured is None or bool(self.not_measured)

    @property
    def label(self) -> str:
        """Return arm and seed of the run as part of a sentence: ``mlm (seed 0)``."""
        return f"{self.arm} (seed {self.seed})"


class TrialRecord(Record):
    """Trial of a tuned arm."""

    model_config = ConfigDict(allow_inf_nan=False)

    values: dict[str, Any]
    """Tried values of the tuned settings, by dotted path."""
    run_ids: list[str]
    """Identities of the trial's runs, one for each seed of the trials."""
    losses: list[float | None] = Field(min_length=1)
    """Validation loss of each run after its last step, in nats; None if training diverged."""

    @property
    def loss(self) -> float | None:
        """Return the mean of the losses; None if a run diverged."""
        ended = [loss for loss in self.losses if loss is not None]
        return sum(ended) / len(ended) if len(ended) == len(self.losses) else None


class TunedArm(Record):
    """Tuned arm: its ended trials, and the values that were chosen."""

    arm: str
    trials: list[TrialRecord] = []
    open_trials: int = 0
    """Number of known trials with a run that has not ended; a trial has one run for each seed."""
    chosen: dict[str, Any] | None = None
    """Values with the lowest loss, which the runs of the arm get; None until all trials of the arm have
    ended."""
    at_edge: list[str] = []
    """Settings whose chosen value is the smallest or the largest that was tried, or near an end of the range."""


class Tuning(Record):
    """Content of tuned.json: the search for each arm's settings."""

    settings: dict[str, Any]
    """Values, or the range of values, that were searched, by the dotted path of the setting."""
    seeds: list[int]
    part_of_steps: float
    budget: int | None = None
    arms: list[TunedArm]
    earlier: dict[str, FiniteFloat | None] = {}
    """Losses of runs of trials that the spec had earlier, by their identity; None where training diverged."""

    @property
    def chosen(self) -> dict[str, dict[str, Any]]:
        """Return the chosen values of each arm whose search has ended, by its name."""
        return {tuned.arm: tuned.chosen for tuned in self.arms if tuned.chosen is not None}


class Look(Record):
    """Interim analysis (look) of the claims with a number of seeds."""

    seeds: int
    """Number of seeds of each arm in this look: the first of `Looks.all_seeds`."""
    arms: list[str]
    """Arms whose runs with these seeds were all trained and measured."""
    measures: list[str] = []
    """Kinds of measures that the spec asked for; empty in older files."""
    first_runs: dict[str, str] = {}
    """Identity of the run with the first seed, by arm. It tells whether the arm was changed later. Empty in older
    files."""
    taken: str | None = None
    """Time of the look."""
    futile: list[str] = []
    """Claims that were given up at this look, because the seeds that are left would hardly decide them."""


class Looks(Record):
    """Content of looks.json: the looks at the claims, and the seeds of each arm."""

    all_seeds: list[int]
    """Every seed that an arm may get, in order."""
    sizes: list[int]
    """Number of seeds at each look that may be taken, fixed before the first run."""
    seeds_of: dict[str, int]
    """Number of seeds that each arm has, or gets now."""
    taken: list[Look] = []

    def sizes_of(self, arms: Collection[str]) -> list[int]:
        """Return the sizes of the looks that were taken with all of the given arms, the smallest first."""
        looked_at: dict[int, set[str]] = {}
        for look in self.taken:
            looked_at.setdefault(look.seeds, set()).update(look.arms)
        return [size for size in self.sizes if set(arms) <= looked_at.get(size, set())]

    def next_size(self, size: int) -> int | None:
        """Return the number of seeds at the look after the one with `size` seeds; None after the last
        look."""
        return next((later for later in self.sizes if later > size), None)


class RunStatus(NamedTuple):
    """Record of a run, with the progress of its training."""

    record: RunRecord
    progress: RunState

    def fields(self) -> dict[str, Any]:
        """Return record and progress as one mapping for JSON."""
        return self.record.model_dump(exclude_unset=True) | self.progress.model_dump(exclude_unset=True)


class PlannedClaims(Record):
    """File of claims in a plan."""

    name: str
    """Name of the file without its ending."""
    planned: str | None = None
    """Time when the file was planned with this experiment."""
    planned_sha256: str | None = None
    """SHA-256 of the file at that time."""
    planned_claims: dict[str, str] = {}
    """Hash of each of its claims at that time, by name of the claim."""
    runs_before: int | None = None
    """Number of the experiment's runs that had started by then. What was claimed after them is no
    prediction."""


class Plan(Record):
    """Content of plan.json: the runs of an experiment, their state and their cost."""

    experiment: str
    question: str | None = None
    spec_sha256: str | None = None
    given: list[str] = []
    """Settings from the command line, each with the value in the spec."""
    changed_from: str | None = None
    """Name of the experiment without the settings from the command line."""
    created: str | None = None
    claims: list[str] = []
    claim_files: list[PlannedClaims] = []
    published: list[PublishedPoint] = []
    """Points of published curves, for figures."""
    described: dict[str, str] = {}
    """Descriptions of the user's own measures, by name."""
    figures: dict[str, dict[str, str]] = {}
    """User's own figures by name, each with the path and the hash of its file."""
    arms: list[str]
    copied_arms: list[str] = []
    """Arms whose runs have equal weights for all seeds; see `RunSettings.is_same_for_all_seeds`."""
    data: DataRecord = DataRecord()
    runs: list[RunRecord]
    earlier: list[RunRecord] = []
    """Runs of earlier versions of the spec that have started and have a folder."""
    pairs_to_compare: int | None = None
    """Number of pairs of runs whose distance is requested and not measured; None if it is unknown."""
    left_out: list[str] = []
    """Kinds of measures whose time is unknown and therefore not in `seconds`."""
    notes: list[str] = []
    """Sentences about the numbers of the plan."""
    notices: list[str] = []
    """Sentences that readers of the page must know, such as which measures are not run, and why."""
    warnings: list[str] = []
    """Warnings about parts of the spec that are valid and probably not meant."""
    tuning: Tuning | None = None
    """Search for the arms' settings; None if the spec has no `tune`."""
    trials: list[RunRecord] = []
    """Runs of trials that have not ended. Trials that are chosen only later are not among them."""
    looks: Looks | None = None
    """Looks at the claims; None if the seeds are a fixed list."""
    judged_with: list[int] = []
    """Numbers of seeds with which claims were judged before seeds were added to a fixed list."""
    seconds: float | None = None
    """Estimated seconds until everything is trained and measured; None if unknown."""


def last_plan(folder: Path) -> Plan | None:
    """Return the plan in an experiment's folder; None without one.

    Raises:
        FilesError: plan.json cannot be read.
        ResultsError: it is no plan.
    """
    path = folder / "plan.json"
    if not path.exists():
        return None
    try:
        return Plan.model_validate(read_json(path, remedy=PLAN_AGAIN))
    except ValidationError as error:
        raise ResultsError(f"{path} is not as `ablate run` writes it; {PLAN_AGAIN}.") from error


def require_runs(folder: Path, runs: Path, *, planned: Collection[str]) -> None:
    """Raise a ResultsError if an experiment's folder has a table of runs that are not all in the folder `runs`,
    because a new table of the other runs would lose their rows.

    Args:
        planned: ids of the runs of the spec. Of results that are not published, only these count.
    """
    table = folder / "results.parquet"
    if not table.exists() or (before := last_plan(folder)) is None:
        return
    is_published = (folder / RUNS_FILE).is_file()
    trained = [
        run
        for run in before.runs
        if (run.state != "planned" if is_published else run.state == "done" and run.run_id in planned)
    ]
    present = {path.name[-10:] for path in runs.glob("*-s*-*")}
    absent = sum(run.run_id not in present for run in trained)
    if absent:
        kind = "published results" if is_published else "results"
        without = f"judge the published table with `ablate report {folder}`" if is_published else f"delete {table}"
        raise ResultsError(
            f"{folder} has {kind} of {several(len(trained), 'run')}, but {absent:,} of them are not in {runs}, "
            "and the table would lose their rows; copy their folders there, name another output root with --out, "
            "or "
            f"{without}."
        )


def looks_of(experiment: Experiment, *, arms: Sequence[str], folder: Path) -> Looks | None:
    """Return the looks at the claims and the seeds of each arm; None for a spec with a fixed list of seeds.

    Args:
        arms: names of all arms of the experiment. An arm that looks.json lacks has the seeds of the first
            look.

    Raises:
        SpecError: runs have started or a look was taken, and the spec now has other seeds.
        ResultsError: looks.json is damaged.
    """
    seeds, path = experiment.seeds, folder / LOOKS_FILE
    fresh = None
    if isinstance(seeds, SeedsUntilDecided):
        seeds_of = dict.fromkeys(arms, seeds.looks[0])
        fresh = Looks(all_seeds=list(seeds.all_seeds), sizes=list(seeds.looks), seeds_of=seeds_of)
    if not path.exists():
        return fresh
    try:
        kept = Looks.model_validate(read_json(path))
    except ValueError as error:
        raise ResultsError(
            f"{path} cannot be read; delete it, and `ablate run` judges the claims again at each look, with the "
            "same results."
        ) from error
    if fresh is None or (kept.all_seeds, kept.sizes) != (fresh.all_seeds, fresh.sizes):
        if not kept.taken and not _has_started(folder):
            return fresh
        raise SpecError(
            f"seeds: this experiment started with looks at {listed([str(size) for size in kept.sizes], 'and')} "
            f"seeds, beginning with seed {kept.all_seeds[0]}, and other looks would change the error rate; "
            "write the seeds as they were, or give the experiment another name and another first seed."
        )
    return kept.model_copy(update={"seeds_of": fresh.seeds_of | kept.seeds_of})


def _has_started(folder: Path) -> bool:
    """Return whether a run of the plan in an experiment's folder has started; a plan is written before that."""
    try:
        plan = last_plan(folder)
    except ResultsError:
        return True  # nobody knows
    runs = [] if plan is None else plan.runs
    return any(may_exist(folder.parent / "runs" / run.folder / "state.json") for run in runs)


def runs_so_far(looks: Looks, runs: Iterable[Run]) -> tuple[Run, ...]:
    """Return the runs whose seeds are among those that their arm has so far."""
    place = {seed: number for number, seed in enumerate(looks.all_seeds)}
    return tuple(run for run in runs if place[run.seed] < looks.seeds_of[run.arm])


def look_due(looks: Looks, *, ended: Collection[str], measures: Sequence[str]) -> Look | None:
    """Return the look that is to be taken now; None if every finished arm was already looked at with its
    number of seeds.

    Args:
        ended: arms whose runs so far are all trained and measured.
        measures: kinds of measures that the spec asks for.
    """
    for size in looks.sizes:
        arms = [arm for arm in ended if looks.seeds_of[arm] == size and size not in looks.sizes_of([arm])]
        if arms:
            return Look(seeds=size, arms=arms, measures=list(measures), taken=utc_now())
    return None


def with_look(looks: Looks, look: Look) -> Looks:
    """Return the looks with one more look."""
    return looks.model_copy(update={"taken": [*looks.taken, look]})


def with_more_seeds(looks: Looks, *, seeds_of: Mapping[str, int], futile: Sequence[str]) -> Looks:
    """Return the looks with more seeds for some arms, after the last look was taken.

    Args:
        seeds_of: number of seeds at the next look, for arms with open claims. No arm loses seeds.
        futile: claims that are given up at the last look.
    """
    seeds_for_arm = {arm: max(seeds, looks.seeds_of[arm]) for arm, seeds in seeds_of.items()}
    taken = list(looks.taken)
    if futile:
        taken[-1] = taken[-1].model_copy(update={"futile": [*taken[-1].futile, *futile]})
    return looks.model_copy(update={"taken": taken, "seeds_of": looks.seeds_of | seeds_for_arm})


def write_looks(looks: Looks, folder: Path) -> None:
    """Write looks.json into an experiment's folder."""
    make_folder(folder)
    write_json(folder / LOOKS_FILE, looks.model_dump(mode="json"))


def looks_in_words(looks: Looks, arms: Sequence[str], *, most_runs: int) -> str:
    """Return a sentence on how many seeds the arms of the spec have so far, and how many runs there can be at
    most. looks.json may have further arms, which the spec had earlier.

    Args:
        most_runs: number of runs if every claim gets all seeds.
    """
    arms_with = {size: sum(looks.seeds_of[arm] == size for arm in arms) for size in looks.sizes}
    so_far = [f"{size} for {several(arms, 'arm')}" for size, arms in arms_with.items() if arms]
    return (
        f"seeds: {listed(so_far, 'and')} planned so far; the claims are judged with "
        f"{listed([str(size) for size in looks.sizes], 'and')} seeds, and arms of open claims get more seeds, "
        f"up to {several(most_runs, 'run')} in all."
    )
