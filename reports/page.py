"""The page of an experiment: one HTML file that needs nothing else, and the same content as Markdown and JSON.

Its one script sorts and filters tables; without it everything is there.
"""

import base64
import hashlib
import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ablations.results import write_whole
from reports import claim_texts, markdown, numbers, svg
from reports import folder as experiment_folder
from reports.claim_entries import claim_entries
from reports.claim_plots import draw_claim
from reports.claims import Judged, judge_claims
from reports.content import content, page_figures
from reports.descriptions import axis_head, place
from reports.drawings import Drawing, draw
from reports.freshness import digest
from reports.score_words import mark
from reports.table_files import tables_of

TEMPLATES = Path(__file__).parent / "templates"

EMBEDDED_CSV_BYTES = 500_000
"""Most bytes of CSV inside the page, all panels together; once they are used up, a panel links its file alone."""


def write(folder: Path, judged: Judged | None = None) -> Path:
    """Write report.html, .md and .json and figures/ into the experiment's folder; returns the HTML's path.

    Reads only what lies in `folder` and in the `runs` beside it. The same input gives the same bytes. Files of
    figures/ that a page before has written, and this one has not, are removed; other files stay.
    Runs that are missing or failed are said to be so; a page is written whatever the state.

    Args:
        folder: of the experiment.
        judged: the experiment that lies there with its claims judged, if a command has done that already.

    Raises:
        ResultsError: a file of the experiment is damaged or plan.json missing, or the page cannot be written.
    """
    judged = judge_claims(experiment_folder.read(folder)) if judged is None else judged
    figures = page_figures(judged.experiment)
    said = content(judged, figures) | {"made_from": digest(folder)}
    said["claims"] = claim_entries(judged.claims, said)
    drawn: dict[str, Drawing] = {}
    files: dict[str, str] = {}
    for panel in (panel for figure in figures for panel in figure.panels):
        drawn[panel.name] = made = draw(panel)
        files |= {panel.svg: made.svg, panel.csv: made.csv}
    for entry in said["claims"]:
        if entry["plot"]:
            drawn[entry["id"]] = made = draw_claim(entry)
            files |= {entry["plot"]["svg"]: made.svg, entry["plot"]["csv"]: made.csv}
    files |= {f"figures/{name}.csv": text for name, text in tables_of(said).items()}
    for name, text in files.items():
        write_whole(folder / name, text.encode())
    for name in _files_before(folder) - set(files):
        (folder / name).unlink(missing_ok=True)
    said["files"] = sorted(files)
    written = json.dumps(_finite(said), ensure_ascii=False, allow_nan=False, indent=1)
    write_whole(folder / "report.json", written.encode())
    write_whole(folder / "report.md", markdown.text(said).encode())
    write_whole(folder / "report.html", html(said, drawn).encode())
    return folder / "report.html"


def _files_before(folder: Path) -> set[str]:
    """What the page that lies there has in figures/, if it says so."""
    try:
        said = json.loads((folder / "report.json").read_bytes())
    except (OSError, ValueError):
        return set()
    names = said.get("files") if isinstance(said, dict) else None
    listed = names if isinstance(names, list) else []
    return {name for name in listed if isinstance(name, str) and Path("figures", Path(name).name) == Path(name)}


def html(said: dict[str, Any], drawn: dict[str, Drawing]) -> str:
    """The page: `said` is the content, `drawn` its panels by name. Everything but the drawings is escaped."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    written = ("count", "duration", "interval", "moment", "number", "percent", "share")
    environment.filters |= {name: getattr(numbers, name) for name in written}
    environment.filters |= {"place": place, "known": lambda values: values or numbers.ABSENT, "mark": mark}
    environment.filters |= {"anywhere": _anywhere, "axis_head": axis_head, "verdicts": _verdicts}
    environment.filters["breakable"] = _breakable
    environment.filters |= {name: getattr(claim_texts, name) for name in claim_texts.FILTERS}
    environment.filters["digest"] = _sha256
    arms = [arm["arm"] for arm in said["arms"]]
    return environment.get_template("page.html").render(
        said,
        style=Markup((TEMPLATES / "page.css").read_text(encoding="utf-8") + svg.swatch_style(arms)),
        script=Markup((TEMPLATES / "tables.js").read_text(encoding="utf-8")),
        image={name: svg.data_url(panel.svg) for name, panel in drawn.items()},
        csv=_embedded(_csv_files(said, drawn)),
        table_number=_table_numbers(said),
        swatch=svg.swatch_classes(arms),
    )


def _sha256(text: str) -> str:
    """As a policy of contents names what it allows."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _anywhere(rows: list[dict[str, Any]], name: str) -> bool:
    """Whether any row of a table has a number of that name, alone or as a mean."""
    values = [row[name]["mean"] if isinstance(row[name], dict) else row[name] for row in rows]
    return not all(numbers.is_absent(value) for value in values)


def _breakable(name: str) -> Markup:
    """A name that a narrow column may break after its commas, as those of the arms of a grid have them, and after
    its underscores, as those of paradigms have them."""
    return Markup("<wbr>").join(re.split("(?<=[,_])", name))


def _verdicts(cells: dict[str, dict[str, Any]]) -> list[str]:
    """Of a row of a table of scores."""
    return [cell["verdict"] for cell in cells.values()]


def _csv_files(said: dict[str, Any], drawn: dict[str, Drawing]) -> dict[str, str]:
    """By name, those of the claims first, which are small."""
    first = [entry["id"] for entry in said["claims"] if entry["plot"]]
    names = [*first, *(name for name in drawn if name not in first)]
    return {name: drawn[name].csv for name in names} | tables_of(said)


def _embedded(files: Mapping[str, str]) -> dict[str, str]:
    """The CSV of the first panels and tables, in base64, as far as there is room."""
    found, room = {}, EMBEDDED_CSV_BYTES
    for name, text in files.items():
        room -= len(text)
        if room < 0:
            break
        found[name] = base64.b64encode(text.encode()).decode()
    return found


def _table_numbers(said: dict[str, Any]) -> dict[str, int]:
    """Of each table about tasks, in the order of the page."""
    return {name: number for number, name in enumerate(tables_of(said), start=1)}


def _finite(value: Any) -> Any:
    """The value with None for what JSON has no number for."""
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
