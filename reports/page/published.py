"""Copy the part of an experiment's results that a repository keeps: small files that need no others."""

import json
from pathlib import Path
from typing import Any

from ablations.errors import ResultsError
from ablations.results import write_whole

COPIED = ("report.md", "results.parquet", "claims.json", "spec.yaml")
"""Files that are copied as they are; an experiment without claims has no claims.json."""


def publish(folder: Path, to: Path) -> Path:
    """Copy the files of a page to a folder of the experiment's name in `to`; return that folder.

    It then holds report.md with its figures, results.parquet, claims.json, spec.yaml, and provenance.json with
    commits, versions, machines and dates. Figures that only an earlier publication had are removed. Files of other
    names stay, as the findings.md that a person writes.

    Raises:
        ResultsError: `folder` has no page, or a file cannot be written.
    """
    report = _read(folder / "report.json")
    published = to / folder.name
    figures = {path.name for path in folder.glob("figures/*") if f"figures/{path.name}" in report["files"]}
    for name in [*COPIED, *(f"figures/{name}" for name in sorted(figures))]:
        if (folder / name).is_file():
            write_whole(published / name, (folder / name).read_bytes())
        else:
            (published / name).unlink(missing_ok=True)
    for path in published.glob("figures/*"):
        if path.name not in figures:
            path.unlink()
    provenance = json.dumps(report["provenance"], ensure_ascii=False, indent=1) + "\n"
    write_whole(published / "provenance.json", provenance.encode())
    return published


def _read(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ResultsError(f"{path}: there is no page to publish; start `ablate report` again.") from error
    return content
