"""Origin of a run: the experiments that have it, with their questions, and its validation losses by step."""

from pathlib import Path

from pydantic import ValidationError

from ablations.runs.records import Plan
from ablations.runs.rows import rows
from lightning_modules.errors import FilesError
from lightning_modules.export.card import Origin
from lightning_modules.files import read_json
from lightning_modules.training.run_directory import RunDirectory


def origin_of(run_dir: Path) -> Origin:
    """Return what the output root of a run says about it. A plan that cannot be read is left out."""
    directory = RunDirectory(run_dir)
    run_id = directory.description()["run_id"]
    questions = {}
    for path in sorted(run_dir.absolute().parent.parent.glob("*/plan.json")):
        try:
            plan = Plan.model_validate(read_json(path))
        except (FilesError, ValidationError):
            continue
        if plan.question and run_id in (run.run_id for run in plan.runs):
            questions[plan.experiment] = plan.question
    table = rows(directory.path)
    chosen = table[(table["measure"] == "validation") & (table["metric"] == "loss") & table["group"].isna()]
    losses = zip(chosen["step"], chosen["value"], strict=True)
    return Origin(questions=questions, losses={int(step): float(loss) for step, loss in losses})
