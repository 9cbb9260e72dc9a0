"""What an experiment would do: its runs, their state, their cost. No torch."""

import hashlib
from pathlib import Path
from typing import Any

from ablations import cost
from ablations.calibration import Calibration, makespan
from ablations.launch import threads_per_process
from ablations.runs import PlannedRun
from ablations.spec import Experiment
from lightning_modules.files import atomic, read_json, write_json
from lightning_modules.provenance import now


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

    A run's `seconds` are of training, start, validation and measures with its share of the machine, null
    where nothing like it is known; the total is the time until all open runs have ended on the slots.
    """
    calibration = Calibration(out)
    threads = devices * threads_per_process(slots * devices)
    runs = [_run(item, calibration, threads=threads) for item in planned]
    once = {run["run_id"]: run["seconds"] for run in runs if run["state"] != "done"}
    total = None if None in once.values() else makespan(list(once.values()), slots=slots)
    return {
        "experiment": experiment.name,
        "question": experiment.question,
        "arms": arms,
        "runs": runs,
        "seconds": total,
    }


def _run(item: PlannedRun, calibration: Calibration, *, threads: int) -> dict[str, Any]:
    settings = item.run.settings
    training = calibration.training_seconds(settings, threads=threads)
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
        "seconds": None if training is None else training + calibration.other_seconds(settings),
    }


def write(
    content: dict[str, Any], folder: Path, *, spec: Path, claims: tuple[str, ...], data: dict[str, Any]
) -> None:
    """Keep the plan and the spec in the experiment's folder, before the first run.

    An unchanged plan keeps the date of its first writing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    text = spec.read_bytes()
    spec_sha256 = hashlib.sha256(text).hexdigest()
    path = folder / "plan.json"
    before = read_json(path) if path.exists() else {}
    created = before.get("created") if before.get("spec_sha256") == spec_sha256 else None
    if created is None:
        with atomic(folder / "spec.yaml") as temporary:
            temporary.write_bytes(text)
    write_json(
        path,
        content | {"spec_sha256": spec_sha256, "created": created or now(), "claims": list(claims), "data": data},
    )
