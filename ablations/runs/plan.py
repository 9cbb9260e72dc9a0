"""What an experiment would do: its runs, their state, their cost. No torch."""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from ablations.catalogue import for_run, tasks_not_run
from ablations.measures.settings import RunDistanceSettings
from ablations.runs import cost
from ablations.runs.calibration import TIMED_BESIDES, Calibration, makespan
from ablations.runs.cost import ValidationText
from ablations.runs.identity import PlannedRun
from ablations.runs.launch import threads_per_process
from ablations.runs.standing import Lacking, checkpoint_sentences, is_to_train, run_labels
from ablations.spec import claims as claims_file
from ablations.spec.claims import Claims
from ablations.spec.experiment import Experiment
from ablations.wording import by_kind, listed
from lightning_modules.config import Data, parameters
from lightning_modules.files import atomic, make_folder, read_json, write_json
from lightning_modules.provenance import now

USUAL_VALIDATION = ValidationText(tokens=50_000, sentences=2_500)
"""Taken to be a validation text from elsewhere that is not prepared yet."""
TOKENS_A_SENTENCE = 15
"""Of the built-in language, about."""


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
) -> dict[str, Any]:
    """The experiment's runs with state and cost, ready for JSON.

    A run's `seconds` are of training, evaluations and measures with its share of the machine, of a run that is
    trained and not measured of the missing measures; null where nothing is known. The total is the time until all
    that is open has ended on the slots, with the start of the processes and the making of the built-in language
    before and the distances between runs, the table and the page after it; `left_out` names the measures that it
    does not count, as nothing is known of them. Notes are sentences about the numbers.

    Args:
        lacking: what the trained runs lack, by identity.
    """
    calibration = Calibration(out)
    data = {item.tokens: item.run.settings.data for item in planned}
    texts = {address: validation_text(out, address, settings) for address, settings in data.items()}

    def on(slots: int) -> list[tuple[dict[str, Any], tuple[str, ...]]]:
        share = devices * threads_per_process(slots * devices)
        return [
            _run(
                item,
                lacking.get(item.run_id),
                calibration,
                experiment,
                data_root=data_root,
                threads=share,
                validation=texts[item.tokens],
            )
            for item in planned
        ]

    told = on(slots)
    to_do = len({run["run_id"] for run, _ in told if is_open(run)})
    if 0 < to_do < slots:  # as `ablate run` does, which leaves no core to a slot without a run
        slots = to_do
        told = on(slots)
    runs = [run for run, _ in told]
    by_arm = {item.run.arm: item.run.settings for item in planned}
    to_train = {run["run_id"] for run in runs if is_to_train(run)}
    pairs, comparing = _distances(experiment, planned, calibration, to_train=to_train, out=out, texts=texts)
    unknown = [kind for run, kinds in told if is_open(run) for kind in kinds]
    unknown += ["run_distance"] if comparing is None else []
    left_out = list(dict.fromkeys(unknown))
    to_make = sum(calibration.text_seconds(settings) for at, settings in data.items() if not token_report(out, at))
    around = calibration.start_and_end_seconds() + to_make
    total = _total(runs, slots=slots, then=comparing or 0.0, around=around)
    return {
        "experiment": experiment.name,
        "question": experiment.question,
        "arms": arms,
        "runs": runs,
        "pairs_to_compare": pairs,
        "left_out": left_out,
        "notes": [
            *_operations(planned),
            *checkpoint_sentences(runs),
            *_to_measure(runs),
            *tasks_not_run(experiment.measures, list(by_arm.items()), data_root=data_root),
            *_uncounted(experiment, left_out),
        ],
        "seconds": total if total or not left_out else None,
    }


def is_open(run: dict[str, Any]) -> bool:
    """Whether a run of a plan is still to be trained or measured."""
    return bool(run.get("not_measured", True))


def _total(runs: Sequence[dict[str, Any]], *, slots: int, then: float, around: float) -> float | None:
    """Seconds until all that is open has ended, and what comes then; `around` only where there is something to do.
    None where a training takes nobody knows how long."""
    once = {run["run_id"]: run for run in runs if is_open(run)}
    if any(run["seconds"] is None and is_to_train(run) for run in once.values()):
        return None
    known = [run["seconds"] or 0.0 for run in once.values()]
    return makespan(known, slots=slots) + (around if any(known) else 0.0) + then


def _operations(planned: Sequence[PlannedRun]) -> list[str]:
    """What the operations of the runs do not say by themselves."""
    vectors = [item.run.arm for item in planned if "pairs" in item.run.settings.objective.predictions]
    if not vectors:
        return []
    names = listed(list(dict.fromkeys(vectors)), "and")
    return [
        f"FLOPs of {names} are an upper bound: sentences end and frequent words are left out, which leaves a "
        "third to a half of the pairs of words; the run counts them."
    ]


def _to_measure(runs: Sequence[dict[str, Any]]) -> list[str]:
    """Which measures trained runs lack, a sentence for those that lack the same; and why, where it is known."""
    lacking: dict[tuple[str, ...], list[str]] = {}
    for run in runs:
        if run.get("not_measured") and not is_to_train(run):
            lacking.setdefault(tuple(run["not_measured"]), []).append(f"{run['arm']} (seed {run['seed']})")
    said = [f"To measure: {by_kind(names)} of {run_labels(labels)}." for names, labels in lacking.items()]
    refused = {(name, why): None for run in runs for name, why in run.get("refused", {}).items()}
    return [*said, *(f"When last tried, {name} was refused: {why}" for name, why in refused)]


def _uncounted(experiment: Experiment, left_out: Sequence[str]) -> list[str]:
    """Which measures are not in the time, and what would tell how long they take."""
    timed = {settings.kind for settings in experiment.measures if cost.rate_of(settings) in TIMED_BESIDES}
    by_doctor = [kind for kind in left_out if kind in timed]
    by_runs = [kind for kind in left_out if kind not in timed]
    said = []
    if by_doctor:
        said.append(f"The time leaves out {listed(by_doctor, 'and')}, which `ablate doctor` times.")
    if by_runs:
        said.append(
            f"The time leaves out {listed(by_runs, 'and')}, of which nothing is known until a run of the kind was "
            "trained and measured here in one go."
        )
    return said


def token_report(out: Path, address: str) -> dict[str, Any]:
    """What the token store says of itself; nothing as long as it is not made."""
    path = out / "tokens" / address / "tokens.json"
    return read_json(path) if path.exists() else {}


def validation_text(out: Path, address: str, data: Data) -> ValidationText:
    """How much validation text there is, or will be."""
    if report := token_report(out, address):
        told = report["splits"]["validation"]
        return ValidationText(tokens=told["source"]["tokens"], sentences=told["sentences"])
    if data.kind == "language":
        return ValidationText(tokens=TOKENS_A_SENTENCE * data.validation, sentences=data.validation)
    return USUAL_VALIDATION


def _run(
    item: PlannedRun,
    lacks: Lacking | None,
    calibration: Calibration,
    experiment: Experiment,
    *,
    data_root: Path,
    threads: int,
    validation: ValidationText,
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """A run with its state and cost, and the measures that its seconds leave out."""
    settings = item.run.settings
    measures = list(for_run(experiment.measures, settings, data_root=data_root))
    training = calibration.training_seconds(settings, threads=threads)
    other = calibration.around_steps(
        settings, measures, asked=experiment.measures, threads=threads, validation=validation
    )
    if lacks is not None and lacks.missing and not lacks.is_to_train:
        training = 0.0
        other = calibration.measuring(settings, lacks.missing, threads=threads, validation=validation)
    seconds = None if training is None else training + other.seconds
    run = {
        "run_id": item.run_id,
        "folder": item.directory.path.name,
        "arm": item.run.arm,
        "seed": item.run.seed,
        "state": item.directory.state()["state"],
        **(lacks.fields() if lacks is not None else {}),
        "max_steps": settings.training.max_steps,
        "tokens": cost.tokens(settings),
        "parameters": parameters(settings),
        "flops": cost.flops(settings),
        "seconds": seconds if seconds or not other.left_out else None,
    }
    return run, other.left_out


def _distances(
    experiment: Experiment,
    planned: Sequence[PlannedRun],
    calibration: Calibration,
    *,
    to_train: Collection[str],
    out: Path,
    texts: Mapping[str, ValidationText],
) -> tuple[int, float | None]:
    """How many pairs of runs are to be compared once all are trained, and how long that takes with the whole
    machine; None where it is unknown."""
    settings = next((one for one in experiment.measures if isinstance(one, RunDistanceSettings)), None)
    if settings is None:
        return 0, 0.0
    from ablations.runs import measure_pairs  # pandas

    open_pairs = measure_pairs.still_open(out / experiment.name, planned, settings, to_train=to_train)
    seconds = 0.0
    for (first, second), times in open_pairs:
        wider = max(first, second, key=lambda item: item.run.settings.encoder.hidden_size).run.settings
        work = times * cost.distance_work(settings, wider, validation=texts[first.tokens])
        takes = calibration.comparing_seconds(wider, work, threads=threads_per_process(1))
        if takes is None:
            return len(open_pairs), None
        seconds += takes
    return len(open_pairs), seconds


def write(
    content: dict[str, Any], folder: Path, *, spec: Path, claims: Sequence[Claims], data: dict[str, Any]
) -> None:
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
    if [run["run_id"] for run in content["runs"]] == [run["run_id"] for run in before.get("runs", [])]:
        data = data or before.get("data", {})
    if created is None:
        with atomic(folder / "spec.yaml") as temporary:
            temporary.write_bytes(text)
    claims_file.keep(claims, folder)
    started = sum(run["state"] != "planned" for run in content["runs"])
    planned = claims_file.planned(claims, before.get("claim_files", []), runs_started=started, at=now())
    plan = {"spec_sha256": spec_sha256, "created": created or now(), "claims": [file.name for file in claims]}
    write_json(path, content | plan | {"claim_files": planned, "data": data})
