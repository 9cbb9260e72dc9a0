"""The page of an experiment: one HTML file that needs nothing else, and the same content as Markdown and JSON.

Its one script sorts and filters tables; without it everything is there.

Tables of the page as CSV, the numbers as they are computed, not as they are rounded.
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
from pandas import DataFrame

from ablations.results import write_whole
from reports import folder as experiment_folder
from reports import words
from reports.claims import words as claim_words
from reports.claims.judge import Judged, judge_claims
from reports.figures import svg
from reports.figures.panel import axis_head, place
from reports.folder import digest
from reports.page import markdown
from reports.page.content import content, page_figures
from reports.page.entries import claim_entries, draw_claim
from reports.page.figures import Drawing, draw
from reports.scores.tables import mark

COLUMNS = (
    *("task", "part", "metric", "layer", "arm", "beside", "mean", "low", "high"),
    *("band", "seeds", "floor", "verdict", "n"),
)
"""Of scores: a row has an arm, or is about what stands beside them."""


def score_csv(table: dict[str, Any]) -> str:
    """All rows of a table of scores, its folded ones too."""
    bodies = [("", table["rows"]), *((part["title"], part["rows"]) for part in table["folded"])]
    rows = []
    for title, body in bodies:
        for row in body:
            same = {name: row[name] for name in ("task", "metric", "layer")} | {"part": title or None}
            same["n"] = max(row["n"], default=None)
            rows += [same | {"beside": head, "mean": value} for head, value in row["beside"].items()]
            rows += [same | {"arm": arm} | cell for arm, cell in row["arms"].items()]
    return _csv(DataFrame(rows, columns=list(COLUMNS)).astype({"seeds": "Int64"}))


def joined_csv(table: dict[str, Any]) -> str:
    """A row a run."""
    names = ["arm", "seed", "run_id", *(column["name"] for column in table["columns"])]
    return _csv(DataFrame(table["rows"], columns=names))


def tables_of(said: dict[str, Any]) -> dict[str, str]:
    """The CSV of every table of the page's content, by its name."""
    found = {table["name"]: score_csv(table) for table in said["tasks"]}
    return found | ({"joined": joined_csv(said["joined"])} if said["joined"]["rows"] else {})


def _csv(frame: DataFrame) -> str:
    return frame.to_csv(index=False, lineterminator="\n")


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
    environment.filters |= {name: getattr(words, name) for name in written}
    environment.filters |= {"place": place, "known": lambda values: values or words.ABSENT, "mark": mark}
    environment.filters |= {"anywhere": words.anywhere, "axis_head": axis_head, "verdicts": _verdicts}
    environment.filters["breakable"] = _breakable
    environment.filters |= {name: getattr(claim_words, name) for name in claim_words.FILTERS}
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
