"""Plans of experiments: their runs, what trained runs lack, and the cost of the rest. No torch.

A trained run with all its measures is done, even if its checkpoints are gone. A run that lacks a measure is
measured from its last checkpoint, or trained again if that is gone.
"""

import functools
import hashlib
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ablations import yamlfile
from ablations.catalogue import Measure, RunMeasure, distance_settings, for_run, tasks_not_run
from ablations.errors import SpecError
from ablations.runs.calibration import Calibration, flops, makespan, tokens
from ablations.runs.identity import PlannedRun
from ablations.runs.launch import threads_per_process
from ablations.runs.records import RUNS_FILE, DataRecord, Plan, RunRecord, RunStatus, last_plan
from ablations.spec import claims as claims_file
from ablations.spec.claims import Claims
from ablations.spec.experiment import Experiment
from ablations.wording import by_kind, listed, several
from lightning_modules.config import MaskingSettings, RunSettings, parameters
from lightning_modules.errors import AblationsError
from lightning_modules.files import make_folder, may_exist, write_json, write_whole
from lightning_modules.provenance import utc_now
from lightning_modules.training.run_directory import (
    DAMAGED_DESCRIPTION,
    Checkpoint,
    RunDirectory,
    RunDirectoryError,
    RunState,
    run_directories,
)

if TYPE_CHECKING:
    from ablations.runs import rows

MOST_NAMED = 6
"""Largest number of runs that a sentence names; of more it gives only the number."""


class Lacking(NamedTuple):
    """Measures that a trained run lacks, and the condition of its checkpoint."""

    number_requested: int
    """Number of requested measures; measures of tasks count once for each task."""
    missing: tuple[RunMeasure, ...]
    """Requested measures without rows."""
    names: tuple[str, ...]
    """Names of the missing measures, as in ``baselines mrpc``; also run_distance if the run must be trained
    again for it."""
    refused: Mapping[str, str]
    """Reasons why missing measures were refused when they were last tried, by name."""
    state: RunState
    checkpoint: Checkpoint
    unreadable: str | None = None
    """As in a RunRecord; then nothing else is known of the run."""

    @property
    def is_to_train(self) -> bool:
        """Return whether the run must be trained again for what it lacks."""
        return bool(self.names) and self.checkpoint != "whole"


def lacking(
    experiment: Experiment, planned: Sequence[PlannedRun], *, folder: Path, data_root: Path
) -> dict[str, Lacking]:
    """Return what each trained run lacks, by its identity, and the runs whose files cannot be read. Other runs
    that are not trained are left out.

    Args:
        planned: all runs of the experiment, as distances need pairs of them.
    """
    lacking_by_run: dict[str, Lacking] = {}
    trained = []
    for item in planned:
        state = _readable_state(item.directory)
        if state is not None and state.state == "done":
            trained.append((item, state))
        elif why := unreadable(item.directory):
            lacking_by_run[item.run_id] = _unreadable(why)
    if not trained:
        return lacking_by_run
    from ablations.runs import measure_pairs  # imports pandas, which untrained runs do not need

    lacking_by_run |= _of_trained(experiment, trained, folder=folder, data_root=data_root)
    planned = readable(planned, lacking_by_run)
    if distance := distance_settings(experiment.measures):
        to_train = {item.run_id for item in planned} - lacking_by_run.keys()
        to_train |= {run_id for run_id, lacking_of_run in lacking_by_run.items() if lacking_of_run.is_to_train}
        for run_id in measure_pairs.to_train_again(folder, planned, distance, to_train=to_train):
            lacking_of_run = lacking_by_run[run_id]
            lacking_by_run[run_id] = lacking_of_run._replace(
                number_requested=lacking_of_run.number_requested + 1, names=(distance.kind,)
            )
    return lacking_by_run


def _of_trained(
    experiment: Experiment, trained: Sequence[tuple[PlannedRun, RunState]], *, folder: Path, data_root: Path
) -> dict[str, Lacking]:
    """Return what each trained run lacks, without distances, by its identity.

    Files that have not changed since the table was made were whole then. They are not read again, which would take
    long in a large grid.
    """
    from ablations.runs import gather, rows

    record = gather.read_record(folder)
    requested: tuple[rows.Requested, ...] = ()
    before: RunSettings | None = None
    lacking_by_run = {}
    for item, state in trained:
        measured = record.measured_in(item.directory.path)
        if measured is None and (why := unreadable(item.directory)):
            lacking_by_run[item.run_id] = _unreadable(why)
            continue
        if before is None or not item.run.settings.differs_in_seed_alone(before):
            before = item.run.settings
            requested = rows.requested(for_run(experiment.measures, before, data_root=data_root), data_root)
        try:
            lacking_by_run[item.run_id] = _of_run(item.directory, state, requested, measured)
        except AblationsError as error:
            lacking_by_run[item.run_id] = _unreadable(" ".join(_unreadable_rows(item.directory)) or str(error))
    return lacking_by_run


def _readable_state(directory: RunDirectory) -> RunState | None:
    """Return the state of a run; None if it cannot be read."""
    try:
        return directory.state()
    except RunDirectoryError:
        return None


RECORDS = ("run.json", "state.json", "provenance.json", "metrics.jsonl", "measures.parquet")
"""Files of a run that decide whether its records can be read."""


def unreadable(directory: RunDirectory) -> str | None:
    """Return sentences on the files of a run that are damaged, or that this user may not read; None if all are
    whole. Files that are missing do not count, nor rows and predictions as long as the others are whole.

    Whole files are read again only if they have changed.
    """
    try:
        _require_records(directory.path, tuple(_version(directory.path / name) for name in RECORDS))
    except RunDirectoryError as error:
        return " ".join(dict.fromkeys([str(error), *_unreadable_rows(directory)]))
    return None


def _version(path: Path) -> tuple[int, ...]:
    try:
        status = os.stat(path)
    except OSError:
        return ()
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


@functools.lru_cache(maxsize=65536)  # it keeps no errors, so that these files are read again
def _require_records(path: Path, versions: tuple[tuple[int, ...], ...]) -> None:
    directory = RunDirectory(path)
    is_there = {name for name, version in zip(RECORDS, versions, strict=True) if version}

    states: list[RunState] = []

    def require_log() -> None:
        # A training that begins anew removes first the rows, then the log. The state is read before the log, as
        # another process may train the run.
        if [state.state for state in states] == ["done"] and {"metrics.jsonl", "measures.parquet"} & is_there:
            directory.require_log()

    readers: list[Callable[[], object]] = [
        lambda: states.append(directory.state()),
        directory.provenance,
        require_log,
    ]
    if sentences := _refused([directory.description, *readers] if "run.json" in is_there else readers):
        raise RunDirectoryError(" ".join(sentences))


def _unreadable_rows(directory: RunDirectory) -> list[str]:
    """Return a sentence on each file with rows or predictions of a run that is damaged or cannot be read."""
    from ablations.runs import rows  # imports pandas

    return _refused(
        [lambda: rows.measured_keys([directory.path]), lambda: rows.predictions(directory.path, ["key"])]
    )


def _refused(readers: Iterable[Callable[[], object]]) -> list[str]:
    """Return the sentences of errors, each once, when files are read one after the other."""
    sentences: dict[str, None] = {}
    for read in readers:
        try:
            read()
        except AblationsError as error:
            sentences[str(error)] = None
    return list(sentences)


def readable(planned: Sequence[PlannedRun], lacking_by_run: Mapping[str, Lacking]) -> list[PlannedRun]:
    """Return the runs without those whose files cannot be read."""
    is_unreadable = {run_id for run_id, run in lacking_by_run.items() if run.unreadable is not None}
    return [item for item in planned if item.run_id not in is_unreadable]


def _unreadable(why: str) -> Lacking:
    return Lacking(0, (), (), {}, RunState(state="unreadable", message=why), "whole", unreadable=why)


def _of_run(
    directory: RunDirectory,
    state: RunState,
    requested: "Sequence[rows.Requested]",
    measured: "Sequence[rows.MeasuredStep] | None",
) -> Lacking:
    from ablations.runs import rows

    missing = rows.missing_of(directory.path, requested, measured=measured)
    why = rows.refusals(directory.path) if missing else {}
    refused = {
        rows.name_for_users(settings): why[key] for settings in missing if (key := rows.key(settings)) in why
    }
    names = tuple(rows.name_for_users(settings) for settings in missing)
    return Lacking(len(requested), tuple(missing), names, refused, state, directory.checkpoint_condition(state))


def checkpoint_sentences(runs: Sequence[RunRecord]) -> list[str]:
    """Return sentences on what `ablate run` will do with trained runs whose last checkpoint is gone or
    damaged, one for each group of runs with the same checkpoint state and the same missing measures.
    """
    groups: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for run in runs:
        if run.checkpoint not in (None, "whole"):
            group = run.checkpoint, tuple(run.not_measured or ())
            groups.setdefault(group, []).append(run.label)
    sentences = []
    for (state, names), labels in groups.items():
        of = run_labels(labels)
        pronoun, folders = ("it", "its folder") if len(labels) == 1 else ("them", "their folders")
        if names:
            sentences.append(
                f"The last checkpoint of {of} is {state}, but {by_kind(names)} must be measured from it: "
                f"`ablate run` removes the rows and the log of {pronoun} and trains {pronoun} again from the "
                "first step."
            )
        else:
            sentences.append(
                f"The last checkpoint of {of} is {state}, and no measure needs it: `ablate run` does not train "
                f"{pronoun} again. To have {pronoun} trained again, delete {folders} in runs."
            )
    return sentences


def run_labels(labels: Sequence[str]) -> str:
    """Return the labels of runs as part of a sentence; only their number if they are more than MOST_NAMED."""
    return listed(labels, "and") if len(labels) <= MOST_NAMED else several(len(labels), "trained run")


def run_status(item: PlannedRun, lacking_of_run: Lacking | None = None) -> RunStatus:
    """Return the status of a run; with `lacking_of_run`, which is for trained runs, also what it lacks."""
    state = item.directory.state() if lacking_of_run is None else lacking_of_run.state
    unmeasured: dict[str, Any] = {}
    if lacking_of_run is not None and lacking_of_run.unreadable is not None:
        unmeasured["unreadable"] = lacking_of_run.unreadable
    elif lacking_of_run is not None:
        unmeasured["measures"] = lacking_of_run.number_requested
        unmeasured["not_measured"] = list(lacking_of_run.names)
        unmeasured["refused"] = dict(lacking_of_run.refused)
        unmeasured["checkpoint"] = lacking_of_run.checkpoint
    arm, seed, folder = item.run.arm, item.run.seed, item.directory.path.name
    record = RunRecord(run_id=item.run_id, folder=folder, arm=arm, seed=seed, state=state.state, **unmeasured)
    return RunStatus(record, state)


def all_statuses(out: Path) -> list[RunStatus]:
    """Return the status of every run folder of an output root.

    Raises:
        RunDirectoryError: the folder of all runs cannot be read.
    """
    statuses = []
    for directory in run_directories(out):
        folder = directory.path.name
        # Of a run that cannot be read, the name of the folder says which it is.
        named = re.fullmatch("(.*)-s([0-9]+)-([0-9a-f]{10})", folder, re.DOTALL)
        arm, seed, run_id = named.groups() if named else (folder, 0, "")
        about: dict[str, Any] = {"run_id": run_id, "arm": arm, "seed": int(seed)}
        why = unreadable(directory)
        run = {} if why else directory.description()
        if not why and not about.keys() <= run.keys():
            why = f"{directory.path / 'run.json'} {DAMAGED_DESCRIPTION}"
        if why:
            state = RunState(state="unreadable", message=why)
        else:
            state = directory.state()
            about = {name: run[name] for name in about}
        statuses.append(RunStatus(RunRecord(**about, folder=folder, state=state.state), state))
    return statuses


def plan(
    experiment: Experiment,
    planned: list[PlannedRun],
    *,
    lacking: Mapping[str, Lacking],
    out: Path,
    data_root: Path,
    arms: list[str],
    without_settings: Collection[str] = (),
    slots: int = 1,
    devices: int = 1,
) -> Plan:
    """Return the plan of an experiment: its runs with their state and cost.

    The seconds of a run are those of training with its share of the machine, and those of its start,
    validations and measures if runs of the same kind have ended here. They are None if the seconds of
    training are unknown. The total is the time until all open runs have ended on the slots.

    Args:
        lacking: what the trained runs lack, by identity.
        without_settings: arms of which every trial diverged. Their runs are not to be trained.
    """
    records = [
        run_status(item, lacking.get(item.run_id)).record.model_copy(
            update={"without_settings": True} if item.run.arm in without_settings else {}
        )
        for item in planned
    ]
    open_runs = len({item.run_id for item, record in zip(planned, records, strict=True) if record.is_open})
    if 0 < open_runs < slots:  # as in `ablate run`, where slots without a run get no cores
        slots = open_runs
    threads = devices * threads_per_process(slots * devices)
    about: dict[str, Any] = {
        "lacking": lacking,
        "calibration": Calibration(out),
        "threads": threads,
        "data_root": data_root,
    }
    runs, left_out = _with_costs(experiment.measures, planned, records, **about)
    pairs = _pairs_to_compare(experiment, readable(planned, lacking), runs, out)
    left_out += ["run_distance"] if pairs else []
    uncounted = (
        f"The time does not include {listed(left_out, 'and')}. Measures take extra time, which is unknown "
        "until one run has been measured here without interruption."
    )
    return Plan(
        experiment=experiment.name,
        question=experiment.question,
        arms=arms,
        runs=runs,
        pairs_to_compare=pairs,
        left_out=left_out,
        notes=[
            *_operations(planned),
            *(f"{run.folder}: {run.unreadable}" for run in runs if run.unreadable),
            *checkpoint_sentences(runs),
            *_to_measure(runs),
            *tasks_not_run(
                experiment.measures, {item.run.arm: item.run.settings for item in planned}, data_root=data_root
            ),
            *([uncounted] if left_out else []),
        ],
        seconds=_total(runs, slots=slots, is_partial=bool(left_out)),
    )


def _with_costs(
    measures: Sequence[Measure],
    planned: Sequence[PlannedRun],
    records: Sequence[RunRecord],
    *,
    lacking: Mapping[str, Lacking],
    calibration: Calibration,
    threads: int,
    data_root: Path,
) -> tuple[list[RunRecord], list[str]]:
    """Return the runs with their costs, and the kinds of measures whose time the costs leave out."""
    runs, left_out = [], dict[str, None]()
    before: RunSettings | None = None
    for item, record in zip(planned, records, strict=True):
        settings, lacking_of_run = item.run.settings, lacking.get(item.run_id)
        if before is None or not settings.differs_in_seed_alone(before):
            before = settings
            cost = {"tokens": tokens(settings), "parameters": parameters(settings), "flops": flops(settings)}
            training = calibration.training_seconds(settings, threads=threads)
            other = calibration.other_seconds(item, measures)
        is_only_measured = record.is_open and not record.is_to_train  # its time is unknown
        seconds = None if training is None or is_only_measured else training + (other or 0.0)
        costs: dict[str, Any] = {"max_steps": settings.training.max_steps, **cost, "seconds": seconds}
        runs.append(record.model_copy(update=costs))
        if record.is_open and (other is None or is_only_measured):
            needed = for_run(measures, settings, data_root=data_root)
            missing = needed if lacking_of_run is None else lacking_of_run.missing
            left_out |= dict.fromkeys(measure.kind for measure in missing)
    return runs, list(left_out)


def _pairs_to_compare(
    experiment: Experiment, planned: Sequence[PlannedRun], runs: Sequence[RunRecord], out: Path
) -> int:
    """Return the number of pairs of runs whose distance is not measured yet."""
    if (distance := distance_settings(experiment.measures)) is None:
        return 0
    from ablations.runs import measure_pairs  # imports pandas

    to_train = {run.run_id for run in runs if run.is_to_train}
    return len(measure_pairs.still_open(out / experiment.name, planned, distance, to_train=to_train))


def _total(runs: Sequence[RunRecord], *, slots: int, is_partial: bool) -> float | None:
    """Return the seconds until all open runs have ended; None if the time of a training, or every time, is
    unknown."""
    once = {run.run_id: run for run in runs if run.is_open}
    if any(run.seconds is None and run.is_to_train for run in once.values()):
        return None
    seconds = [run.seconds or 0.0 for run in once.values()]
    return None if is_partial and not any(seconds) else makespan(seconds, slots=slots)


def _operations(planned: Sequence[PlannedRun]) -> list[str]:
    """Return a sentence for each reason why the operations of arms are only an upper bound."""
    objectives = {item.run.arm: item.run.settings.objective for item in planned}
    masking = {arm: getattr(objective, "masking", MaskingSettings()) for arm, objective in objectives.items()}
    vectors = [arm for arm, objective in objectives.items() if "pairs" in objective.predictions]
    selections = [arm for arm in objectives if masking[arm].leaves_out]
    reasons = (
        (
            vectors,
            "only a third to a half of the pairs of words is left, because sentences end and frequent words "
            "are left out",
        ),
        (selections, "a sentence may have fewer tokens that may be hidden than masking.ratio asks for"),
    )
    return [
        f"FLOPs of {listed(arms, 'and')} are an upper bound: {reason}; the run counts the text."
        for arms, reason in reasons
        if arms
    ]


def _to_measure(runs: Sequence[RunRecord]) -> list[str]:
    """Return sentences on the measures that trained runs lack, one for each group of runs that lack the same,
    and on the reasons for refusals."""
    lacking: dict[tuple[str, ...], list[str]] = {}
    for run in runs:
        if run.not_measured and not run.is_to_train:
            lacking.setdefault(tuple(run.not_measured), []).append(run.label)
    sentences = [f"To measure: {by_kind(names)} of {run_labels(labels)}." for names, labels in lacking.items()]
    refused = {(name, why): None for run in runs for name, why in run.refused.items()}
    return [*sentences, *(f"The last attempt to measure {name} failed: {why}" for name, why in refused)]


def _equal_content(path: Path, spec: bytes) -> bool:
    """Return whether a file holds this spec, whatever its comments are; False if it cannot be read."""
    try:
        return yamlfile.read(path).content == yamlfile.parsed("spec", yamlfile.decoded(path, spec)).content
    except SpecError:
        return False


def _start(directory: RunDirectory) -> str | None:
    """Return the time at which a run started; None if that is not known."""
    try:
        return directory.provenance().get("started")
    except RunDirectoryError:
        return None


def write(content: Plan, folder: Path, *, spec: bytes, claims: Sequence[Claims], data: DataRecord) -> None:
    """Write the plan, the text of the spec and the claims into the experiment's folder, before the first run.

    If the spec has not changed, but for comments, the plan keeps its first date. If the runs have not
    changed and their text is gone, the plan keeps what was known of it. Files of claims keep the hashes that
    they had when the first run started.
    """
    from ablations.runs import rows as run_rows

    make_folder(folder)
    for published in (RUNS_FILE, run_rows.PREDICTIONS):  # of a published folder; now the runs here count
        (folder / published).unlink(missing_ok=True)
    before = last_plan(folder) or Plan(experiment=content.experiment, arms=[], runs=[])
    created = before.created if _equal_content(folder / "spec.yaml", spec) else None
    if not data.address and [run.run_id for run in content.runs] == [run.run_id for run in before.runs]:
        data = before.data
    write_whole(folder / "spec.yaml", spec)
    claims_file.keep(claims, folder)
    run_ids, runs = {run.run_id for run in content.runs}, folder.parent / "runs"
    earlier = [
        run.model_dump(mode="json", exclude_unset=True)
        for run in (*before.runs, *before.earlier)
        if run.run_id not in run_ids and may_exist(runs / run.folder / "state.json")
    ]
    started = {run.run_id: run for run in content.runs if run.state != "planned"}
    joined = started.keys() - {run.run_id for run in before.runs}
    times = [_start(RunDirectory(runs / started[name].folder)) for name in joined]
    claims_before = [file.model_dump(mode="json") for file in before.claim_files]
    planned = claims_file.planned(
        claims, claims_before, runs_started=len(started), joined=sorted(filter(None, times)), at=utc_now()
    )
    whole = content.model_dump(mode="json", exclude_unset=True) | {
        "spec_sha256": hashlib.sha256(spec).hexdigest(),
        "created": created or utc_now(),
        "claims": [file.name for file in claims],
        "claim_files": planned,
        "data": data.model_dump(mode="json", exclude_unset=True),
        **({"earlier": earlier} if earlier else {}),
    }
    write_json(folder / "plan.json", whole)
