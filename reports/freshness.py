"""Whether a page still says what lies on disk, found out without drawing it again."""

import hashlib
import json
from pathlib import Path

from reports.folder import read_plan

HERE = Path(__file__).parent


def digest(folder: Path) -> str:
    """Hash of everything a page is made from: the experiment's files, those of its runs, and this package.

    Raises:
        ResultsError: plan.json is missing or damaged.
    """
    runs = [folder.parent / "runs" / run.folder for run in read_plan(folder).runs]
    paths = [folder / name for name in ("plan.json", "spec.yaml", "results.parquet")]
    paths += [run / name for run in runs for name in ("state.json", "provenance.json", "run.json")]
    paths += sorted(folder.glob("claims/*.yaml"))
    paths += sorted([*HERE.glob("*.py"), *HERE.glob("templates/*")])
    sha256 = hashlib.sha256()
    for path in paths:
        content = path.read_bytes() if path.is_file() else b"absent"
        sha256.update(hashlib.sha256(content).digest())
    return sha256.hexdigest()


def is_fresh(folder: Path) -> bool:
    """Whether page, twin and figures are there and were made from what is there now."""
    try:
        told = json.loads((folder / "report.json").read_bytes())
        panels = [panel for figure in told["figures"] for panel in figure["panels"]]
        made = ["report.html", "report.md", *(panel[kind] for panel in panels for kind in ("svg", "csv"))]
        made += [table["csv"] for table in (*told["tasks"], told["joined"]) if table["rows"]]
        made += [claim["plot"][kind] for claim in told["claims"] if claim["plot"] for kind in ("svg", "csv")]
        return told["made_from"] == digest(folder) and all((folder / name).is_file() for name in made)
    except (OSError, ValueError, KeyError, TypeError):
        return False
