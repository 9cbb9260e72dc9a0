"""Published results: the files of an experiment that a repository keeps, from which its page can be made
again."""

import json
from pathlib import Path
from typing import Any

import pandas as pd

from ablations.errors import ResultsError
from ablations.results import sealed, write_whole
from ablations.runs import rows as run_rows
from ablations.runs.records import RUNS_FILE
from ablations.spec import claims as claims_file
from reports import folder as experiment_folder
from reports.page.flips import publish_predictions
from reports.page.page import is_made

RESULTS = ("plan.json", "spec.yaml", "results.parquet", "looks.json", "tuned.json")
"""Files that a page is made from and that are copied unchanged. Without `tune` there is no tuned.json, and
with a fixed list of seeds no looks.json."""

MADE = ("report.md", "claims.json")
"""Files of a page that are published; an experiment without claims has no claims.json."""


def publish(folder: Path, to: Path) -> Path:
    """Copy the files of a page to a folder in `to` with the experiment's name, and return that folder.

    It then holds report.md with its figures, tables in LaTeX, results.parquet, the verdicts (claims.json),
    spec, plan and claims. provenance.json has commits, versions, machines and dates; runs.parquet has
    settings, state and provenance of each run; predictions.parquet is there if runs keep predictions.
    Figures, tables and claims that only an earlier publication had are removed. Other files stay, such as a
    findings.md that a person wrote.

    Raises:
        ResultsError: `folder` has no page, or a file cannot be written.
    """
    report = _read(folder / "report.json")
    published = to / folder.name
    drawn = {name for name in map(str, report["files"]) if (folder / name).is_file() and is_made(name)}
    claims = _claims(folder)
    for name in [*RESULTS, *MADE, *sorted(drawn), *claims]:
        _copy(folder / name, published / name)
    for path in [
        *published.glob("figures/*"),
        *published.glob("tables/*"),
        *published.glob(f"{claims_file.FOLDER}/*"),
    ]:
        if path.relative_to(published).as_posix() not in drawn | set(claims):
            path.unlink()
    provenance = json.dumps(report["provenance"], ensure_ascii=False, indent=1) + "\n"
    write_whole(published / "provenance.json", provenance.encode())
    _publish_runs(folder, published)
    publish_predictions(folder, published)
    return published


def restore(published: Path, out: Path) -> Path:
    """Copy the files that a page is made from into a folder of the same name in `out`, and return that
    folder.

    A page can then be written there, with claims judged again on the published table. Runs that are added
    later keep the dates at which their claims were planned.

    Raises:
        ResultsError: the folder in `out` holds other results, or a file cannot be written.
    """
    folder = out / published.resolve().name
    plan = folder / "plan.json"
    if plan.exists() and plan.read_bytes() != (published / "plan.json").read_bytes():
        raise ResultsError(
            f"{folder} holds other results than {published}; name another output root with --out, or delete it."
        )
    for name in [*RESULTS, *_claims(published), RUNS_FILE, run_rows.PREDICTIONS]:
        _copy(published / name, folder / name)
    return folder


def _claims(folder: Path) -> list[str]:
    """Return the relative paths of the files of claims that the plan names and that exist."""
    names = [name for name in experiment_folder.read_plan(folder).claims if claims_file.NAME.fullmatch(name)]
    places = [f"{claims_file.FOLDER}/{name}.yaml" for name in names]
    return [place for place in places if (folder / place).is_file()]


def _copy(path: Path, to: Path) -> None:
    """Copy a whole file; without such a file, remove the one at the destination."""
    if path.is_file():
        write_whole(to, path.read_bytes())
    else:
        to.unlink(missing_ok=True)


def _publish_runs(folder: Path, published: Path) -> None:
    """Write the records of each run into one file, which `experiment_folder.read` uses if there are no
    folders of runs."""
    texts = experiment_folder.run_texts(folder, experiment_folder.read_plan(folder).runs)
    table = pd.DataFrame(
        [{"run_id": run_id} | files for run_id, files in texts.items() if files],
        columns=["run_id", *experiment_folder.RUN_RECORDS],
        dtype="string",
    )
    if len(table):
        write_whole(published / RUNS_FILE, sealed(table, compression="zstd", compression_level=19))
    else:
        (published / RUNS_FILE).unlink(missing_ok=True)


def _read(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ResultsError(f"{path}: there is no page to publish; start `ablate report` again.") from error
    return content
