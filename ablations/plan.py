"""What an experiment would do: its runs, their state, their cost. No torch."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ablations import claimfile, cost
from ablations.calibration import Calibration, makespan
from ablations.claimfile import Claims
from ablations.launch import threads_per_process
from ablations.measurable import Measure
from ablations.runs import PlannedRun
from ablations.spec import Experiment
from ablations.wording import listed
from lightning_modules.files import atomic, read_json, write_json
from lightning_modules.provenance import now

USUAL_VALIDATION_TOKENS = 50_000
"""Taken to be in a validation text that is not prepared yet."""


def plan(
    experiment: Experiment,
    planned: list[PlannedRun],
    *,
    out: Path,
    arms: list[str],
    slots: int = 1,
    devices: int = 1,
) -> dict[str, Any]:
    """The experiment's runs with state and cost, ready for JSON.

    A run's `seconds` are of training, evaluations and measures with its share of the machine, null where nothing
    like it is known; the total is the time until all open runs have ended on the slots. Notes are sentences about
    the numbers.
    """
    calibration = Calibration(out)
    threads = devices * threads_per_process(slots * devices)
    texts = {address: _validation_tokens(out, address) for address in {item.tokens for item in planned}}
    runs = [
        _run(item, calibration, experiment.measures, threads=threads, validation_tokens=texts[item.tokens])
        for item in planned
    ]
    once = {run["run_id"]: run["seconds"] for run in runs if run["state"] != "done"}
    total = None
    if None not in once.values():
        total = makespan(list(once.values()), slots=slots) + (calibration.start_seconds() if once else 0.0)
    return {
        "experiment": experiment.name,
        "question": experiment.question,
        "arms": arms,
        "runs": runs,
        "notes": _notes(planned),
        "seconds": total,
    }


def _notes(planned: Sequence[PlannedRun]) -> list[str]:
    """What the numbers of the runs do not say by themselves, a sentence each."""
    vectors = [item.run.arm for item in planned if item.run.settings.objective.kind == "skip_gram"]
    if not vectors:
        return []
    names = listed(list(dict.fromkeys(vectors)), "and")
    return [
        f"FLOPs of {names} are an upper bound: sentences end and frequent words are left out, which leaves a "
        "third to a half of the pairs of words; the run counts them."
    ]


def _validation_tokens(out: Path, address: str) -> int:
    """Source tokens of the validation text; a usual number of them as long as the text is not prepared."""
    path = out / "tokens" / address / "tokens.json"
    return (
        read_json(path)["splits"]["validation"]["source"]["tokens"] if path.exists() else USUAL_VALIDATION_TOKENS
    )


def _run(
    item: PlannedRun,
    calibration: Calibration,
    measures: Sequence[Measure],
    *,
    threads: int,
    validation_tokens: int,
) -> dict[str, Any]:
    settings = item.run.settings
    training = calibration.training_seconds(settings, threads=threads)
    other = calibration.other_seconds(settings, measures, threads=threads, validation_tokens=validation_tokens)
    return {
        "run_id": item.run_id,
        "folder": item.directory.path.name,
        "arm": item.run.arm,
        "seed": item.run.seed,
        "state": item.directory.state()["state"],
        "max_steps": settings.training.max_steps,
        "tokens": cost.tokens(settings),
        "parameters": cost.parameters(settings),
        "flops": cost.flops(settings),
        "seconds": None if training is None else training + other,
    }


def write(
    content: dict[str, Any], folder: Path, *, spec: Path, claims: Sequence[Claims], data: dict[str, Any]
) -> None:
    """Keep the plan, the spec and the claims in the experiment's folder, before the first run.

    An unchanged plan keeps the date of its first writing, unchanged runs what was known of text that is gone.
    A file of claims keeps the hashes it had when the first run started, whatever becomes of it later.
    """
    folder.mkdir(parents=True, exist_ok=True)
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
    claimfile.keep(claims, folder)
    started = sum(run["state"] != "planned" for run in content["runs"])
    planned = claimfile.planned(claims, before.get("claim_files", []), runs_started=started, at=now())
    plan = {"spec_sha256": spec_sha256, "created": created or now(), "claims": [file.name for file in claims]}
    write_json(path, content | plan | {"claim_files": planned, "data": data})
