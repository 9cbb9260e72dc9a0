"""Plans of experiments: their runs, the state of these and their cost. No torch."""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from ablations.catalogue import for_run, tasks_not_run
from ablations.measures.settings import RunDistanceSettings
from ablations.runs import cost
from ablations.runs.calibration import Calibration, makespan
from ablations.runs.identity import PlannedRun
from ablations.runs.launch import threads_per_process
from ablations.runs.records import DataRecord, Plan, RunRecord
from ablations.runs.standing import Lacking, checkpoint_sentences, run_labels
from ablations.spec import claims as claims_file
from ablations.spec.claims import Claims
from ablations.spec.experiment import Experiment
from ablations.wording import by_kind, listed
from lightning_modules.config import parameters
from lightning_modules.files import atomic, make_folder, read_json, write_json
from lightning_modules.provenance import now


def plan(
    experiment: Experiment,
    planned: list[PlannedRun],
    *,
    lacking: Mapping[str, Lacking],
    out: Path,
    data_root: Path,
    arms: list[str],
    slots: int = 1,
    devices: int = 1,
) -> Plan:
    """Return the experiment's runs with their state and cost.

    The seconds of a run are those of training with its share of the machine, and those of its start, validations
    and measures where runs of the same kind have ended here; None where nothing is known. The total is the time
    until all runs that are open have ended on the slots.

    Args:
        lacking: what the trained runs lack, by identity.
    """
    calibration = Calibration(out)
    open_ids = {item.run_id for item in planned if item.run_id not in lacking or lacking[item.run_id].names}
    if 0 < len(open_ids) < slots:  # as `ablate run` does, which leaves no core to a slot without a run
        slots = len(open_ids)
    threads = devices * threads_per_process(slots * devices)
    runs, left_out = [], dict[str, None]()
    for item in planned:
        lacks = lacking.get(item.run_id)
        training, other = _seconds(item, lacks, calibration, experiment, threads=threads)
        seconds = None if training is None else training + (other or 0.0)
        runs.append(_record(item, lacks, seconds=seconds))
        if item.run_id in open_ids and other is None:
            measures = for_run(experiment.measures, item.run.settings, data_root=data_root)
            left_out |= dict.fromkeys(one.kind for one in (measures if lacks is None else lacks.missing))
    pairs = _pairs(experiment, planned, to_train={run.run_id for run in runs if run.is_to_train}, out=out)
    if pairs:
        left_out["run_distance"] = None
    return Plan(
        experiment=experiment.name,
        question=experiment.question,
        arms=arms,
        runs=runs,
        pairs_to_compare=pairs,
        left_out=list(left_out),
        notes=[
            *_operations(planned),
            *checkpoint_sentences(runs),
            *_to_measure(runs),
            *tasks_not_run(
                experiment.measures,
                list({item.run.arm: item.run.settings for item in planned}.items()),
                data_root=data_root,
            ),
            *_uncounted(list(left_out)),
        ],
        seconds=_total(runs, slots=slots, is_partial=bool(left_out)),
    )


def _seconds(
    item: PlannedRun, lacks: Lacking | None, calibration: Calibration, experiment: Experiment, *, threads: int
) -> tuple[float | None, float | None]:
    """Return the seconds of training and of all the rest of a run; None for what is unknown, which of a run that
    is only to be measured is both."""
    if lacks is not None and lacks.names and not lacks.is_to_train:
        return None, None
    training = calibration.training_seconds(item.run.settings, threads=threads)
    return training, calibration.other_seconds(item, experiment.measures)


def _record(item: PlannedRun, lacks: Lacking | None, *, seconds: float | None) -> RunRecord:
    settings = item.run.settings
    return RunRecord(
        run_id=item.run_id,
        folder=item.directory.path.name,
        arm=item.run.arm,
        seed=item.run.seed,
        state=item.directory.state().state,
        **(lacks.fields() if lacks is not None else {}),
        max_steps=settings.training.max_steps,
        tokens=cost.tokens(settings),
        parameters=parameters(settings),
        flops=cost.flops(settings),
        seconds=seconds,
    )


def _total(runs: Sequence[RunRecord], *, slots: int, is_partial: bool) -> float | None:
    """Return the seconds until all open runs have ended; None where a training takes nobody knows how long, and
    where nothing at all is known."""
    once = {run.run_id: run for run in runs if run.is_open}
    if any(run.seconds is None and run.is_to_train for run in once.values()):
        return None
    seconds = [run.seconds or 0.0 for run in once.values()]
    return None if is_partial and not any(seconds) else makespan(seconds, slots=slots)


def _operations(planned: Sequence[PlannedRun]) -> list[str]:
    """Return a sentence about operations that are a bound; none where all are exact."""
    vectors = [item.run.arm for item in planned if "pairs" in item.run.settings.objective.predictions]
    if not vectors:
        return []
    names = listed(list(dict.fromkeys(vectors)), "and")
    return [
        f"FLOPs of {names} are an upper bound: sentences end and frequent words are left out, which leaves a "
        "third to a half of the pairs of words; the run counts them."
    ]


def _to_measure(runs: Sequence[RunRecord]) -> list[str]:
    """Return which measures trained runs lack, a sentence for those that lack the same; and why, where it is
    known."""
    lacking: dict[tuple[str, ...], list[str]] = {}
    for run in runs:
        if run.not_measured and not run.is_to_train:
            lacking.setdefault(tuple(run.not_measured), []).append(run.label)
    sentences = [f"To measure: {by_kind(names)} of {run_labels(labels)}." for names, labels in lacking.items()]
    refused = {(name, why): None for run in runs for name, why in run.refused.items()}
    return [*sentences, *(f"When last tried, {name} was refused: {why}" for name, why in refused)]


def _uncounted(left_out: Sequence[str]) -> list[str]:
    """Return a sentence about the measures whose time is unknown; none where all of it is known."""
    if not left_out:
        return []
    return [
        f"The time does not count {listed(left_out, 'and')}: how long a measure takes is known once a run of the "
        "same kind was trained and measured here in one go."
    ]


def _pairs(experiment: Experiment, planned: Sequence[PlannedRun], *, to_train: Collection[str], out: Path) -> int:
    """Return how many pairs of runs are to be compared once all are trained."""
    settings = next((one for one in experiment.measures if isinstance(one, RunDistanceSettings)), None)
    if settings is None:
        return 0
    from ablations.runs import measure_pairs  # pandas

    return len(measure_pairs.still_open(out / experiment.name, planned, settings, to_train=to_train))


def write(content: Plan, folder: Path, *, spec: Path, claims: Sequence[Claims], data: DataRecord) -> None:
    """Keep the plan, the spec and the claims in the experiment's folder, before the first run.

    An unchanged plan keeps the date of its first writing, unchanged runs what was known of text that is gone.
    A file of claims keeps the hashes it had when the first run started, whatever becomes of it later.
    """
    make_folder(folder)
    text = spec.read_bytes()
    spec_sha256 = hashlib.sha256(text).hexdigest()
    path = folder / "plan.json"
    before = read_json(path) if path.exists() else {}
    created = before.get("created") if before.get("spec_sha256") == spec_sha256 else None
    if not data.address and [run.run_id for run in content.runs] == [
        run["run_id"] for run in before.get("runs", [])
    ]:
        data = DataRecord.model_validate(before.get("data", {}))
    if created is None:
        with atomic(folder / "spec.yaml") as temporary:
            temporary.write_bytes(text)
    claims_file.keep(claims, folder)
    started = sum(run.state != "planned" for run in content.runs)
    planned = claims_file.planned(claims, before.get("claim_files", []), runs_started=started, at=now())
    whole = content.model_dump(mode="json", exclude_unset=True) | {
        "spec_sha256": spec_sha256,
        "created": created or now(),
        "claims": [file.name for file in claims],
        "claim_files": planned,
        "data": data.model_dump(mode="json", exclude_unset=True),
    }
    write_json(path, whole)
