"""What an experiment would do: its runs, their state, their cost. No torch."""

import hashlib
from pathlib import Path
from typing import Any

from ablations import cost
from ablations.runs import PlannedRun
from ablations.spec import Experiment
from lightning_modules.files import atomic, read_json, write_json
from lightning_modules.provenance import now


def plan(experiment: Experiment, planned: list[PlannedRun], *, out: Path, arms: list[str]) -> dict[str, Any]:
    """The experiment's runs with state and cost, ready for JSON.

    `seconds` is of training alone, null where this machine has not yet run one like it; the total leaves
    out runs that are done.
    """
    runs = [_run(item, calibration=out / "calibration.json") for item in planned]
    open_runs = [run["seconds"] for run in runs if run["state"] != "done"]
    total = None if None in open_runs else sum(open_runs)
    return {
        "experiment": experiment.name,
        "question": experiment.question,
        "arms": arms,
        "runs": runs,
        "seconds": total,
    }


def _run(item: PlannedRun, *, calibration: Path) -> dict[str, Any]:
    settings = item.run.settings
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
        "seconds": cost.seconds(settings, calibration),
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
